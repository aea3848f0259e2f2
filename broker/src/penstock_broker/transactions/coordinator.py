"""The transaction coordinator: owns the transactional ids, and ends their transactions.

The rules are in :mod:`.transaction`; this writes what they say to the internal topic, and then
the markers. Everything runs in the event loop, so a request is: check, append, replace the value
in memory, answer. What is in memory is exactly what a replay of the internal topic gives, but for
the epoch that a repeated InitProducerId may name.

A transaction is decided by the record that says Prepare…: from then on its markers are written,
again and again if need be, also by the process that comes after a kill. When all are there, the
record that says Complete… follows. A marker that is written twice does no harm: no transaction is
open any more at its offset, since the next one begins after Complete….
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from penstock_broker.clock import Clock, Timer, Timers
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.keys import ProducerAndEpoch, TopicPartition
from penstock_broker.metrics import Metrics
from penstock_broker.transactions.markers import Markers, Written
from penstock_broker.transactions.states import BY_TITLE, TransactionState
from penstock_broker.transactions.topic import Stored, TransactionStore
from penstock_broker.transactions.transaction import NO_EPOCH, Transaction

_logger = logging.getLogger(__name__)

MARKERS_AT_ONCE = 200
"""Markers written before others are served."""
RETRY_SECONDS = 0.5
SYNC_SECONDS = 0.005
"""How long a marker takes to the disk, about, where it counts only then."""

ID_CHARACTERS_MAX = 4_096


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Settings of the coordinator."""

    timeout_max_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    verifies_partitions: bool = True
    ids_max: int = 50_000


class TransactionCoordinator:
    """All transactional ids of this broker. Owned by the event loop."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        store: TransactionStore,
        markers: Markers,
        new_producer_id: Callable[[], int],
        limits: TransactionLimits,
        metrics: Metrics,
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._store = store
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._limits = limits
        self._metrics = metrics
        self._transactions: dict[str, Transaction] = {}
        self._timed: dict[str, Timer] = {}
        self._timed_out: set[str] = set()

    # -- start -------------------------------------------------------------------------------

    def load(self, stored: Iterable[Stored]) -> None:
        """Take over what the internal topic says, in the order in which it was written."""
        for transactional_id, transaction in stored:
            if transaction is None or transaction.state is TransactionState.DEAD:
                self._transactions.pop(transactional_id, None)
            else:
                self._transactions[transactional_id] = transaction

    def resume(self) -> None:
        """Finish what was decided before the start, and abort what the coordinator does not know.

        A power cut may take the last records of the internal topic away and leave those of the
        transaction in its partitions. Nothing would ever end it, and read_committed consumers would
        wait there for good; on a single broker such a transaction is recognised by being unknown to
        the coordinator. What is known may be an older transaction of the same producer in the same
        partition: it has an older epoch, under which no marker ends the newer one.
        """
        for transaction in list(self._transactions.values()):
            if transaction.state.is_prepared:
                _logger.info(
                    "transactional id %s was left in %s: finishing it",
                    transaction.transactional_id, transaction.state.title,
                )  # fmt: skip
                self._finish(transaction.transactional_id)
        if not self._store.is_whole:
            return
        known = {
            (topic, partition, transaction.producer_id): transaction.producer_epoch
            for transaction in self._transactions.values()
            for topic, partition in transaction.partitions
        }
        for found in self._markers.open():
            epoch = known.get((found.topic, found.partition, found.producer_id), NO_EPOCH)
            if found.producer_epoch > epoch:
                _logger.warning(
                    "%s-%d: producer %d has a transaction open, of epoch %d, unknown to the "
                    "coordinator: aborting it",
                    found.topic, found.partition, found.producer_id, found.producer_epoch,
                )  # fmt: skip
                self._markers.abort_orphan(found)

    def close(self) -> None:
        """Leave what is not finished to the next start."""
        for timer in self._timed.values():
            timer.cancel()

    # -- requests ----------------------------------------------------------------------------

    def prepare(self, transactional_id: str) -> None:
        """FindCoordinator: have the internal topic made, if need be. KafkaError
        COORDINATOR_NOT_AVAILABLE where this id cannot be served."""
        self._store.ensure_topic()
        try:
            self._store.check(transactional_id)
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error

    def _require_space(self, transactional_id: str) -> None:
        """Any client may invent ids, and they are kept for a week."""
        if len(transactional_id) > ID_CHARACTERS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A transactional id has at most {ID_CHARACTERS_MAX} characters.",
            )
        if len(self._transactions) >= self._limits.ids_max:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"There are {self._limits.ids_max} transactional ids "
                "(transaction.coordinator.max.ids).",
            )

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerAndEpoch | None = None
    ) -> ProducerAndEpoch:
        """InitProducerId with a transactional id: its producer id and next epoch.

        ``expected`` is the id and epoch that the producer sends (KIP-360). An open transaction of
        an earlier instance is aborted, its producer fenced, and the caller gets the retriable
        CONCURRENT_TRANSACTIONS. KafkaError INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT,
        PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._limits.timeout_max_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        self._store.ensure_topic()
        self._store.check(transactional_id)
        now_ms = self._clock.now_ms()
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            self._require_space(transactional_id)
            transaction = Transaction(transactional_id, self._new_producer_id(), timeout_ms)
        transaction.check_expected(expected)
        if transaction.state is TransactionState.ONGOING:
            self._fence(transaction)
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        new = transaction.initialized(expected, timeout_ms, now_ms, self._new_producer_id)
        self._put(new)
        return new.producer_id, new.producer_epoch

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
    ) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn: the first partitions begin a transaction.

        KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE.
        """
        transaction = self._require(transactional_id, producer_id, epoch)
        new = transaction.with_partitions(partitions, self._clock.now_ms())
        if new is not transaction:
            self._put(new)

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> None:
        """EndTxn: when this returns it is decided, and, as a rule, the markers are written.

        KafkaError as :meth:`add_partitions`, and INVALID_TXN_STATE where there is none, or it
        has ended the other way.
        """
        transaction = self._require(transactional_id, producer_id, epoch)
        new = transaction.decided(commit=commit, now_ms=self._clock.now_ms())
        if new is not transaction:
            self._put(new)
            self._finish(transactional_id)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Whether partitions are part of an open transaction (KIP-890), so that what is written
        to them will be ended by a marker.

        KafkaError as :meth:`add_partitions`, and TRANSACTION_ABORTABLE for one that is not.
        """
        if not self._limits.verifies_partitions:
            return
        transaction = self._require(transactional_id, producer_id, epoch)
        if transaction.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if not transaction.partitions.issuperset(partitions):
            raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE)

    def _require(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._store.check(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        try:
            transaction.check_producer(producer_id, epoch)
        except KafkaError as error:
            if error.code is ErrorCode.PRODUCER_FENCED:
                self._metrics.producers_fenced.inc()
            raise
        return transaction

    # -- admin -------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Transaction:
        """DescribeTransactions. KafkaError INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND,
        NOT_COORDINATOR."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._store.check(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction

    def find(
        self, states: Collection[str], producer_ids: Collection[int], open_for_ms: int
    ) -> tuple[list[Transaction], list[str]]:
        """ListTransactions: those that pass the filters (empty, -1: all do), and the names among
        ``states`` that no state has. ``open_for_ms``: begun more than so long ago (KIP-994)."""
        wanted = {BY_TITLE[name] for name in states if name in BY_TITLE}
        now_ms = self._clock.now_ms()
        found = [
            transaction
            for transaction in self._transactions.values()
            if (not states or transaction.state in wanted)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (open_for_ms < 0 or now_ms - transaction.started_ms > open_for_ms)
        ]
        return found, [name for name in states if name not in BY_TITLE]

    # -- time --------------------------------------------------------------------------------

    def abort_expired(self) -> None:
        """Abort transactions that have been open for too long; their producers are fenced."""
        now_ms = self._clock.now_ms()
        for transaction in list(self._transactions.values()):
            if not transaction.has_expired(now_ms):
                continue
            _logger.info(
                "transactional id %s: aborting a transaction that has been open for %d ms",
                transaction.transactional_id, now_ms - transaction.started_ms,
            )  # fmt: skip
            self._timed_out.add(transaction.transactional_id)
            try:
                self._fence(transaction)
            except KafkaError as error:
                self._timed_out.discard(transaction.transactional_id)
                _logger.warning("it is not aborted yet: %s", error)

    def expire_ids(self) -> None:
        """Remove ids that have not been used for ``transactional.id.expiration.ms``."""
        oldest_ms = self._clock.now_ms() - self._limits.id_expiration_ms
        for transactional_id, transaction in list(self._transactions.items()):
            if not transaction.state.may_expire or transaction.updated_ms > oldest_ms:
                continue
            try:
                self._store.write(transactional_id, None)
            except KafkaError as error:
                _logger.warning("transactional id %s stays: %s", transactional_id, error)
                continue
            del self._transactions[transactional_id]

    # -- mechanics ---------------------------------------------------------------------------

    def _put(self, transaction: Transaction) -> None:
        """Write a value, and only then continue with it."""
        self._store.write(transaction.transactional_id, transaction)
        self._transactions[transaction.transactional_id] = transaction

    def _fence(self, transaction: Transaction) -> None:
        self._put(transaction.fenced(self._clock.now_ms()))
        self._finish(transaction.transactional_id)

    def _finish(self, transactional_id: str) -> None:
        """Write the markers of a prepared transaction, then say that they are written; continue
        later where that is not possible now, or where there are many."""
        self._timed.pop(transactional_id, None)
        try:
            later = self._write_markers(self._transactions[transactional_id])
            transaction = self._transactions[transactional_id]
            if later is None:
                self._put(transaction.completed(self._clock.now_ms()))
        except KafkaError as error:
            _logger.warning("transactional id %s is not finished yet: %s", transactional_id, error)
            later = RETRY_SECONDS
        if later is not None:
            self._timed[transactional_id] = self._timers.call_at(
                self._clock.monotonic() + later, lambda: self._finish(transactional_id)
            )
            return
        self._count(transaction)

    def _write_markers(self, transaction: Transaction) -> float | None:
        """None when all are written; else the seconds after which to continue."""
        transactional_id = transaction.transactional_id
        epoch = self._store.coordinator_epoch(transactional_id)
        count: list[TopicPartition] = []
        later = RETRY_SECONDS
        for asked, place in enumerate(sorted(transaction.partitions), 1):
            written = self._markers.write(transaction, *place, epoch)
            if written is Written.COUNTS:
                count.append(place)
            elif written is Written.IS_ON_ITS_WAY:
                later = SYNC_SECONDS
            if asked % MARKERS_AT_ONCE == 0 and count:
                later = 0.0
                break
        left = transaction.without(count)
        self._transactions[transactional_id] = left
        return later if left.partitions else None

    def _count(self, transaction: Transaction) -> None:
        result = "commit" if transaction.is_commit else "abort"
        if transaction.transactional_id in self._timed_out:
            self._timed_out.discard(transaction.transactional_id)
            result = "timeout"
        self._metrics.transactions_ended.labels(result).inc()
