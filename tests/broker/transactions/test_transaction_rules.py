"""A transactional id as a value: what each request makes of it, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.keys import ProducerAndEpoch
from penstock_broker.transactions.states import IDLE, PREPARED, TransactionState
from penstock_broker.transactions.transaction import Transaction

A, B, C = ("t", 0), ("t", 1), ("u", 0)
NOW = 5_000
NEW_ID = 99
TRANSACTION = Transaction(
    "x", 7, 60_000, 3, previous_producer_id=6, last_epoch=2, state=TransactionState.ONGOING,
    partitions=frozenset({A}), started_ms=1_000, updated_ms=2_000,
)  # fmt: skip
UNINITIALIZED = Transaction("x", 7, 60_000)
LAST_EPOCH = 32_766
"""Kafka keeps the largest 16-bit number for the fence."""


def in_state(state: TransactionState) -> Transaction:
    return replace(TRANSACTION, state=state)


def error_of(call: Callable[[], object]) -> ErrorCode:
    """What a check, or a step, is refused with."""
    try:
        call()
    except KafkaError as refused:
        return refused.code
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("epoch", "exhausted"), [(-1, False), (LAST_EPOCH - 1, False), (LAST_EPOCH, True)]
)
def test_the_last_epoch_but_one_is_given_out(epoch: int, exhausted: bool) -> None:
    assert replace(TRANSACTION, producer_epoch=epoch).is_exhausted is exhausted


@pytest.mark.parametrize(("now_ms", "expired"), [(1_000, False), (61_000, False), (61_001, True)])
def test_an_open_transaction_expires_after_its_timeout(now_ms: int, expired: bool) -> None:
    assert TRANSACTION.has_expired(now_ms) is expired
    for state in set(TransactionState) - {TransactionState.ONGOING}:
        assert in_state(state).has_expired(now_ms) is False


# -- InitProducerId ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        (None, ErrorCode.NONE),
        ((7, 3), ErrorCode.NONE),
        ((7, 1), ErrorCode.NONE),  # the epoch is looked at later
        ((7, LAST_EPOCH), ErrorCode.NONE),
        ((6, 3), ErrorCode.PRODUCER_FENCED),
        ((6, LAST_EPOCH - 1), ErrorCode.PRODUCER_FENCED),
        ((6, LAST_EPOCH), ErrorCode.NONE),  # its answer, with the next id, was lost
        ((6, LAST_EPOCH + 1), ErrorCode.NONE),
        ((5, LAST_EPOCH), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_producer_may_initialize_its_own_id(
    expected: ProducerAndEpoch | None, error: ErrorCode
) -> None:
    assert error_of(lambda: TRANSACTION.check_expected(expected)) is error
    for state in PREPARED:
        due = error_of(partial(in_state(state).check_expected, expected))
        assert due is (error or ErrorCode.CONCURRENT_TRANSACTIONS)


def test_any_producer_may_initialize_what_never_was() -> None:
    assert error_of(lambda: UNINITIALIZED.check_expected((1, 5))) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("before", "expected", "after"),
    [
        # id, epoch, last epoch, previous id
        ((7, -1, -1, -1), None, (7, 0, -1, 7)),
        ((7, 3, 2, 6), None, (7, 4, -1, 7)),
        ((7, 3, 2, 6), (7, 3), (7, 4, 3, 7)),
        ((7, -1, -1, -1), (7, 5), (7, 0, -1, 7)),
        ((7, 3, 2, 6), (7, 2), (7, 3, 2, 6)),  # a repeat: as it is
        ((7, LAST_EPOCH - 1, -1, 6), None, (7, LAST_EPOCH, -1, 7)),
        ((7, LAST_EPOCH, -1, 6), None, (NEW_ID, 0, -1, 7)),
        ((7, LAST_EPOCH, -1, 6), (7, LAST_EPOCH), (NEW_ID, 0, LAST_EPOCH, 7)),
        ((7, LAST_EPOCH, 5, 6), (7, 5), (7, LAST_EPOCH, 5, 6)),
        ((NEW_ID, 0, LAST_EPOCH, 7), (7, LAST_EPOCH), (NEW_ID, 0, LAST_EPOCH, 7)),
    ],
)
def test_initializing_gives_the_next_epoch(
    before: tuple[int, int, int, int],
    expected: ProducerAndEpoch | None,
    after: tuple[int, int, int, int],
) -> None:
    producer_id, epoch, last, previous = before
    known = replace(
        in_state(TransactionState.COMPLETE_COMMIT),
        producer_id=producer_id, producer_epoch=epoch, last_epoch=last,
        previous_producer_id=previous,
    )  # fmt: skip
    producer_id, epoch, last, previous = after
    assert known.initialized(expected, 9_000, NOW, lambda: NEW_ID) == Transaction(
        "x", producer_id, 9_000, epoch, previous_producer_id=previous, last_epoch=last,
        state=TransactionState.EMPTY, partitions=frozenset(), started_ms=-1, updated_ms=NOW,
    )  # fmt: skip


@pytest.mark.parametrize("epoch", [0, 1, 4, LAST_EPOCH])
def test_another_epoch_than_the_current_or_the_last_is_fenced(epoch: int) -> None:
    known = in_state(TransactionState.EMPTY)
    refused = error_of(lambda: known.initialized((7, epoch), 9_000, NOW, lambda: NEW_ID))
    assert refused is ErrorCode.PRODUCER_FENCED


# -- the transaction -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [
        (7, 3, ErrorCode.NONE),
        (6, 3, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (8, 2, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (7, 2, ErrorCode.PRODUCER_FENCED),
        (7, 4, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_transaction_is_its_producers(producer_id: int, epoch: int, error: ErrorCode) -> None:
    assert error_of(lambda: TRANSACTION.check_producer(producer_id, epoch)) is error


@pytest.mark.parametrize("state", sorted(IDLE))
def test_the_first_partitions_begin_it(state: TransactionState) -> None:
    idle = replace(in_state(state), partitions=frozenset())
    assert idle.with_partitions([A, B], NOW) == replace(
        TRANSACTION, partitions=frozenset({A, B}), started_ms=NOW, updated_ms=NOW
    )


def test_further_partitions_join_it() -> None:
    assert TRANSACTION.with_partitions([A], NOW) is TRANSACTION
    assert TRANSACTION.with_partitions([], NOW) is TRANSACTION
    assert TRANSACTION.with_partitions([A, C], NOW) == replace(
        TRANSACTION, partitions=frozenset({A, C}), updated_ms=NOW
    )


@pytest.mark.parametrize("state", sorted(PREPARED))
def test_no_partition_joins_while_markers_are_due(state: TransactionState) -> None:
    refused = error_of(lambda: in_state(state).with_partitions([B], NOW))
    assert refused is ErrorCode.CONCURRENT_TRANSACTIONS


def test_there_is_no_way_out_of_the_last_state() -> None:
    dead = in_state(TransactionState.DEAD)
    with pytest.raises(ValueError, match="x: no way from"):
        dead.with_partitions([A], NOW)


@pytest.mark.parametrize(
    ("commit", "prepared", "complete"),
    [
        (True, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
        (False, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
    ],
    ids=["commit", "abort"],
)
def test_the_way_of_a_transaction_to_its_end(
    commit: bool, prepared: TransactionState, complete: TransactionState
) -> None:
    decided = TRANSACTION.decided(commit=commit, now_ms=NOW)
    assert decided == replace(TRANSACTION, state=prepared, updated_ms=NOW)
    assert decided.is_commit is commit
    ended = decided.completed(NOW + 1)
    assert ended == replace(decided, state=complete, partitions=frozenset(), updated_ms=NOW + 1)
    assert ended.decided(commit=commit, now_ms=NOW) is ended, "a repeat"


@pytest.mark.parametrize(
    ("state", "to_commit", "to_abort"),
    [
        (
            TransactionState.PREPARE_COMMIT,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.INVALID_TXN_STATE,
        ),
        (
            TransactionState.PREPARE_ABORT,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ),
        (TransactionState.COMPLETE_COMMIT, ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_ABORT, ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE),
        (TransactionState.EMPTY, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.DEAD, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_what_has_ended_ends_no_other_way(
    state: TransactionState, to_commit: ErrorCode, to_abort: ErrorCode
) -> None:
    decide = partial(in_state(state).decided, now_ms=NOW)
    assert error_of(lambda: decide(commit=True)) is to_commit
    assert error_of(lambda: decide(commit=False)) is to_abort


@pytest.mark.parametrize("epoch", [3, LAST_EPOCH])
def test_a_fenced_transaction_aborts_under_the_next_epoch(epoch: int) -> None:
    known = replace(TRANSACTION, producer_epoch=epoch)
    assert known.fenced(NOW) == replace(
        known, producer_epoch=epoch + 1, last_epoch=-1, state=TransactionState.PREPARE_ABORT,
        updated_ms=NOW,
    )  # fmt: skip


def test_a_marker_that_is_written_is_due_no_more() -> None:
    due = replace(TRANSACTION, partitions=frozenset({A, B, C}))
    assert due.without([A, C]) == replace(due, partitions=frozenset({B}))
