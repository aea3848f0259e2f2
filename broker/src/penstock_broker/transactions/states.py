"""The states of a transaction, with Kafka's numbers and names (KIP-98)."""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """``name`` in Python's case; :attr:`title` is what the protocol says."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    """Kafka's name for a bump of the epoch that is about to abort. Never stored, and not needed
    here, where nothing comes between the bump and the abort; known because clients filter by it."""

    @property
    def title(self) -> str:
        """``CompleteCommit``."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided, but not everywhere written that it is."""
        return self in PREPARED

    @property
    def may_expire(self) -> bool:
        """Whether an id in this state expires when it has not been used for long."""
        return self in IDLE


IDLE = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

MAY_FOLLOW: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: IDLE,
    TransactionState.ONGOING: IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.ONGOING}),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: IDLE,
}
"""State -> the states that it may come from."""

BY_TITLE = {state.title: state for state in TransactionState}
