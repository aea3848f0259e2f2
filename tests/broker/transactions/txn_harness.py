"""A broker's transactions on a simulated disk: everything but the network."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from storage import Storage

from penstock_broker.cluster.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.coordinator import CoordinatorLimits, GroupCoordinator
from penstock_broker.groups.members import GroupLimits
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.log.append_result import AppendResult
from penstock_broker.metrics import Metrics
from penstock_broker.replication.partition import Partition
from penstock_broker.steps import run
from penstock_broker.testing import MemFiles, SimClock
from penstock_broker.transactions.coordinator import TransactionCoordinator, TransactionLimits
from penstock_broker.transactions.markers import MarkerWriter
from penstock_broker.transactions.states import TransactionState
from penstock_broker.transactions.topic import TransactionsTopic
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import iter_batches

DATA = Path("/data")
TOPIC = "t"
TIMEOUT_MS = 60_000
ID_EXPIRATION_MS = 7 * 24 * 3_600_000
SETTINGS = {"log.segment.bytes": "700", "log.index.interval.bytes": "100"}


class Harness:
    """A broker's storage, its groups and its transactions, without a network."""

    def __init__(
        self,
        files: MemFiles | None = None,
        clock: SimClock | None = None,
        *,
        partitions: int = 3,
        settings: dict[str, str] | None = None,
        limits: TransactionLimits | None = None,
    ) -> None:
        self.clock = clock or SimClock()
        self.metrics = Metrics()
        self.files = files or MemFiles(self.clock)
        self.partitions = partitions
        self.settings = SETTINGS if settings is None else settings
        storage = Storage(DATA, self.clock, self.files, self.settings)
        self.logs, self.replicas, metadata = storage.logs, storage.replicas, storage.metadata
        if not self.replicas.has_partition(TOPIC, 0):
            self.replicas.create_topic(TOPIC, partitions, {})
        self.offsets = storage.offsets_topic()
        self.groups = GroupCoordinator(
            clock=self.clock,
            timers=self.clock,
            store=self.offsets,
            group_limits=GroupLimits(),
            limits=CoordinatorLimits(),
        )
        self.groups.load(self.offsets.load())
        ids = itertools.chain.from_iterable(
            iter(lambda: run(metadata.allocating_producer_ids()), ())
        )
        self.topic = TransactionsTopic(
            clock=self.clock,
            metadata=metadata,
            replicas=self.replicas,
            create=lambda: self.replicas.create_topic(TRANSACTIONS_TOPIC, 2, {}),
        )
        self.transactions = TransactionCoordinator(
            clock=self.clock,
            timers=self.clock,
            store=self.topic,
            markers=MarkerWriter(
                self.clock, self.replicas, self.groups.offsets.transaction_decided
            ),
            new_producer_id=lambda: next(ids),
            limits=limits or TransactionLimits(),
            metrics=self.metrics,
        )
        self.transactions.load(self.topic.load())
        self.transactions.resume()

    def after_a_kill(self) -> Harness:
        return self.after(self.files.kill())

    def after(self, files: MemFiles) -> Harness:
        """The next process, on what is left of the disk."""
        self.transactions.close()
        return Harness(files, self.clock, partitions=self.partitions, settings=self.settings)

    def after_a_stop(self) -> Harness:
        self.replicas.close()
        return self.after_a_kill()

    def partition(self, index: int = 0, topic: str = TOPIC) -> Partition:
        return self.replicas.partition(topic, index)

    # -- what clients do ---------------------------------------------------------------------

    def init(
        self, transactional_id: str = "x", expected: tuple[int, int] | None = None
    ) -> tuple[int, int]:
        return self.transactions.init_producer_id(transactional_id, TIMEOUT_MS, expected)

    def add(self, producer: tuple[int, int], *indexes: int, transactional_id: str = "x") -> None:
        places = [(TOPIC, index) for index in indexes]
        self.transactions.add_partitions(transactional_id, *producer, places)

    def end(self, producer: tuple[int, int], *, commit: bool, transactional_id: str = "x") -> None:
        self.transactions.end(transactional_id, *producer, commit=commit)

    def produce(
        self,
        producer: tuple[int, int],
        value: str,
        *,
        sequence: int = 0,
        index: int = 0,
        transactional_id: str = "x",
    ) -> AppendResult:
        """As a Produce request does it: with the coordinator asked first."""
        partition = self.partition(index)
        if not partition.has_open_transaction(producer[0]):
            self.transactions.verify(transactional_id, *producer, [(TOPIC, index)])
        return partition.append(transactional_batch(producer, value, sequence), is_verified=True)

    def commit_offset(
        self,
        producer: tuple[int, int],
        offset: int,
        *,
        group: str = "g",
        transactional_id: str = "x",
    ) -> None:
        """AddOffsetsToTxn and TxnOffsetCommit. KafkaError."""
        self.offsets.ensure_topic()
        place = (OFFSETS_TOPIC, self.offsets.partition_of(group))
        self.transactions.add_partitions(transactional_id, *producer, [place])
        given = {(TOPIC, 0): CommittedOffset(offset, -1, "", self.clock.now_ms())}
        codes = self.groups.offsets.commit(group, "", None, -1, given, producer=producer)
        if codes[TOPIC, 0] is not ErrorCode.NONE:
            raise KafkaError(codes[TOPIC, 0])

    def committed(self, group: str = "g") -> int | None:
        found = self.groups.offsets.of(group).get((TOPIC, 0))
        return None if found is None else found.offset

    def read(self, index: int = 0, *, max_bytes: int = 1 << 20) -> list[str]:
        """What a read_committed consumer gets that reads the partition in pieces."""
        return read_committed(self.partition(index), max_bytes)


def state(harness: Harness, transactional_id: str = "x") -> TransactionState:
    return harness.transactions.describe(transactional_id).state


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    """Expects a KafkaError of this code."""
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code is code)


def transactional_batch(producer: tuple[int, int], value: str, sequence: int = 0) -> memoryview:
    """A batch of one record."""
    producer_id, epoch = producer
    record = NewRecord(None, value.encode(), 1_700_000_000_000)
    return memoryview(
        build_batch(
            [record],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
    )


def read_committed(partition: Partition, max_bytes: int) -> list[str]:
    """The values that are committed, by the algorithm of Java's consumer: aborted transactions
    begin where the list says and end at their marker."""
    found = []
    offset = partition.log_start_offset
    while offset < partition.last_stable_offset:
        part = partition.fetch(offset, max_bytes, committed=True)
        assert part.size, f"nothing at {offset} below {partition.last_stable_offset}"
        aborted = partition.aborted_transactions(offset, part)
        assert [a.first_offset for a in aborted] == sorted(a.first_offset for a in aborted)
        open_aborts: set[int] = set()
        for batch in iter_batches(memoryview(part.read())):
            while aborted and aborted[0].first_offset <= batch.last_offset:
                open_aborts.add(aborted.pop(0).producer_id)
            if batch.is_control:
                (record,) = batch.records()
                assert record.key is not None
                if record.key[2:4] == b"\0\0":
                    open_aborts.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in open_aborts):
                found += [(r.value or b"").decode() for r in batch.records() if r.offset >= offset]
            offset = batch.next_offset
    return found


class KilledError(BaseException):
    """The process ends here."""


def kill_at(files: MemFiles, countdown: int) -> None:
    """End the process at the n-th change of the disk from now on."""
    check: Callable[[str, Path], None] = files.check
    left = itertools.count(countdown, -1)

    def counted(operation: str, path: Path) -> None:
        if operation in {"write", "truncate", "rename", "remove", "sync"} and next(left) <= 0:
            raise KilledError
        check(operation, path)

    files.check = counted  # type: ignore[method-assign]
