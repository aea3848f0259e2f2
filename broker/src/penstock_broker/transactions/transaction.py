"""A transactional id as a pure state machine: what it is, and what each request makes of it.

No clock, no I/O: a method takes what happened and the time, and gives the value that is to be
written to ``__transaction_state``. Only when that is written does the coordinator continue with it,
so a write that fails changes nothing, not even the epoch (KAFKA-9666).

    Empty, CompleteCommit, CompleteAbort --add--> Ongoing --decide--> PrepareCommit, PrepareAbort
    PrepareCommit, PrepareAbort --complete (markers are written)--> CompleteCommit, CompleteAbort
    Empty, CompleteCommit, CompleteAbort --initialize--> Empty, with the next epoch
    Ongoing --fence (a new instance, or the time is up)--> PrepareAbort, with the next epoch

The rules are those of Kafka 3.9's ``TransactionMetadata`` and ``TransactionCoordinator`` for
clients below transaction version 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.keys import ProducerAndEpoch, TopicPartition
from penstock_broker.transactions.states import MAY_FOLLOW, TransactionState
from penstock_broker.wire.records import NO_PRODUCER_ID

NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
LAST_EPOCH = EPOCH_MAX - 1
"""The largest epoch that a producer gets: one more is kept, to fence it."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of a transactional id; a value that is replaced, never changed."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    producer_epoch: int = NO_EPOCH
    """-1 while the id has never been initialized."""
    previous_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    """The epoch that a repeated InitProducerId may still name; not stored, as in Kafka."""
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """Where records or offsets of it may be; while it is prepared, where a marker is due."""
    started_ms: int = -1
    updated_ms: int = -1

    @property
    def is_exhausted(self) -> bool:
        """Whether its producer id has no epoch left to give."""
        return self.producer_epoch >= LAST_EPOCH

    def has_expired(self, now_ms: int) -> bool:
        """Whether an open transaction has been open for too long."""
        return self.state is TransactionState.ONGOING and self.started_ms + self.timeout_ms < now_ms

    def _to(self, state: TransactionState, now_ms: int, **changes: object) -> Transaction:
        if self.state not in MAY_FOLLOW[state]:
            raise ValueError(f"{self.transactional_id}: no way from {self.state} to {state}")
        return replace(self, state=state, updated_ms=now_ms, **changes)  # type: ignore[arg-type]

    # -- InitProducerId ------------------------------------------------------------------------

    def check_expected(self, expected: ProducerAndEpoch | None) -> None:
        """Whether a producer that sends its id and epoch may initialize (KIP-360); the epoch is
        checked later. KafkaError PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while markers are due."""
        if expected is not None and self.producer_epoch != NO_EPOCH:
            producer_id, epoch = expected
            is_retry = producer_id == self.previous_producer_id and epoch >= LAST_EPOCH
            if producer_id != self.producer_id and not is_retry:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if self.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def initialized(
        self,
        expected: ProducerAndEpoch | None,
        timeout_ms: int,
        now_ms: int,
        new_producer_id: Callable[[], int],
    ) -> Transaction:
        """What InitProducerId makes of an id without an open transaction.

        KafkaError PRODUCER_FENCED where the expected epoch is neither the current one nor that of
        the request that is being repeated.
        """
        producer_id, previous_id = self.producer_id, self.producer_id
        current, expected_epoch = self.producer_epoch, None if expected is None else expected[1]
        if self.is_exhausted and expected_epoch in (None, current):
            producer_id, epoch = new_producer_id(), 0
            last = NO_EPOCH if expected is None else current
        elif expected_epoch is None:
            epoch, last = current + 1, NO_EPOCH
        elif current in {expected_epoch, NO_EPOCH}:
            epoch, last = current + 1, current
        elif expected_epoch == self.last_epoch:
            # A repeat of what succeeded: no other producer can have come in between, or it would
            # have reset last_epoch (KAFKA-8710).
            epoch, last, previous_id = current, self.last_epoch, self.previous_producer_id
        else:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return self._to(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            previous_producer_id=previous_id,
            producer_epoch=epoch,
            last_epoch=last,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=-1,
        )

    # -- the transaction -----------------------------------------------------------------------

    def check_producer(self, producer_id: int, epoch: int) -> None:
        """Whether it is this producer's. KafkaError INVALID_PRODUCER_ID_MAPPING,
        PRODUCER_FENCED."""
        if producer_id != self.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if epoch != self.producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def with_partitions(self, partitions: Iterable[TopicPartition], now_ms: int) -> Transaction:
        """Add partitions; the first begin it. The same value where they all are part of it.

        KafkaError CONCURRENT_TRANSACTIONS while markers of the last one are due.
        """
        if self.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        added = self.partitions.union(partitions)
        if self.state is not TransactionState.ONGOING:
            return self._to(TransactionState.ONGOING, now_ms, partitions=added, started_ms=now_ms)
        if added == self.partitions:
            return self
        return self._to(TransactionState.ONGOING, now_ms, partitions=added)

    def decided(self, *, commit: bool, now_ms: int) -> Transaction:
        """End it. The same value where it has ended so before.

        KafkaError CONCURRENT_TRANSACTIONS while its markers are being written, INVALID_TXN_STATE
        where there is none, or it has ended the other way.
        """
        state = self.state
        if state is TransactionState.ONGOING:
            return self._to(
                TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
                now_ms,
            )
        complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        if state is complete:
            return self
        if state is prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    def fenced(self, now_ms: int) -> Transaction:
        """Abort it under an epoch that no producer is given, which fences its producer
        everywhere."""
        return replace(
            self.decided(commit=False, now_ms=now_ms),
            producer_epoch=self.producer_epoch + 1,
            last_epoch=NO_EPOCH,
        )

    @property
    def is_commit(self) -> bool:
        """How a prepared transaction ends."""
        return self.state is TransactionState.PREPARE_COMMIT

    def without(self, partitions: Iterable[TopicPartition]) -> Transaction:
        """The markers of partitions are written. That is not stored: after a restart they are
        written again."""
        return replace(self, partitions=self.partitions.difference(partitions))

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        return self._to(
            TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT,
            now_ms,
            partitions=frozenset(),
        )
