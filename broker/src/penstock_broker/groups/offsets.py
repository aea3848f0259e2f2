"""The internal topic ``__consumer_offsets``: where commits and generations are kept.

Records as in :mod:`.offset_records`, in the partition that Kafka would choose (Java's hash of the
group id), so a log written here can be read by Kafka's tools and the other way round.

The topic is compacted, in segments small enough (``offsets.topic.segment.bytes``) that what has
to be replayed at a start, history and all, is read in a fraction of a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from penstock_broker.clock import Clock
from penstock_broker.cluster.java_hash import partition_for
from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.coordinator import Change, ProducerAndEpoch
from penstock_broker.groups.members import StoredGroup
from penstock_broker.groups.offset_records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    RecordError,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from penstock_broker.groups.pending_offsets import Decision, PendingChange
from penstock_broker.log.markers import read_marker
from penstock_broker.replication.partition import Partition
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import Record, iter_batches

_logger = logging.getLogger(__name__)

READ_BYTES = 4 << 20


class OffsetsTopic:
    """The store of the group coordinator."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        metadata: MetadataStore,
        replicas: ReplicaManager,
        create: Callable[[], object],
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._create = create
        self._count: int | None = None
        self._unread: set[int] = set()

    def ensure_topic(self) -> None:
        """Make the topic when the first group asks for it. KafkaError when that fails."""
        if self.partition_count() == 0:
            self._create()
            self._count = None

    def partition_count(self) -> int:
        """Partitions of the topic; 0 while there is none."""
        if not self._count:
            topic = self._metadata.topic(OFFSETS_TOPIC)
            self._count = len(topic.partitions) if topic is not None else 0
        return self._count

    def partition_of(self, group_id: str) -> int:
        """The partition that a group's records are in."""
        return partition_for(group_id, self.partition_count())

    def problem(self, group_id: str) -> ErrorCode:
        """NOT_COORDINATOR for groups of a partition that is offline or was not read to its end."""
        if self.partition_count() == 0:
            return ErrorCode.NONE
        index = self.partition_of(group_id)
        partition = self._replicas.find(OFFSETS_TOPIC, index)
        if partition is None or not partition.is_online or index in self._unread:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def write(
        self, group_id: str, changes: Iterable[Change], producer: ProducerAndEpoch | None = None
    ) -> None:
        """Append one batch; acknowledged by the log or KafkaError."""
        self.ensure_topic()
        now_ms = self._clock.now_ms()
        records = [NewRecord(*_encode(change), now_ms) for change in changes]
        partition = self._replicas.partition(OFFSETS_TOPIC, self.partition_of(group_id))
        if producer is None:
            partition.append(memoryview(build_batch(records)), acks_all=True)
        else:
            producer_id, epoch = producer
            partition.append_offsets(
                build_batch(
                    records, producer_id=producer_id, producer_epoch=epoch, transactional=True
                )
            )

    def replay(self) -> Iterator[Change | PendingChange | Decision]:
        """Everything that is in the topic, partition by partition, in order."""
        for index in range(self.partition_count()):
            try:
                yield from self._replay(self._replicas.partition(OFFSETS_TOPIC, index))
            except (KafkaError, DecodeError) as error:
                self._unread.add(index)
                _logger.error("%s-%d cannot be read on: %s", OFFSETS_TOPIC, index, error)

    def _replay(self, partition: Partition) -> Iterator[Change | PendingChange | Decision]:
        """Of plain records only the last of each key, which is most of the work saved; parts of
        transactions, and what decides them, in their place among them."""
        offset = partition.log_start_offset
        latest: dict[bytes | None, Record] = {}
        while offset < partition.high_watermark:
            found = partition.fetch(offset, READ_BYTES)
            if not found.size:
                break
            for batch in iter_batches(memoryview(found.read())):
                offset = batch.next_offset
                if not batch.is_control and not batch.is_transactional:
                    for record in batch.records():
                        latest.pop(record.key, None)
                        latest[record.key] = record
                    continue
                yield from self._changes(partition, latest.values())
                latest.clear()
                if not batch.is_control:
                    for change in self._changes(partition, batch.records()):
                        yield _pending(batch.producer_id, change)
                elif (marker := read_marker(batch)) is not None:
                    yield Decision(partition.index, batch.producer_id, marker.is_commit)
        yield from self._changes(partition, latest.values())

    def _changes(self, partition: Partition, records: Iterable[Record]) -> Iterator[Change]:
        for record in records:
            change = self._change(partition, record)
            if change is not None:
                yield change

    @staticmethod
    def _change(partition: Partition, record: Record) -> Change | None:
        """A record as a change; one that nobody can read is skipped, and said."""
        try:
            return _decode(record)
        except RecordError as error:
            _logger.error("%s-%d at %d: %s", OFFSETS_TOPIC, partition.index, record.offset, error)
            return None


def _pending(producer_id: int, change: Change) -> Change | PendingChange:
    """A change that is part of a transaction, as all are that commit offsets in one."""
    key, value = change
    if isinstance(key, OffsetKey) and not isinstance(value, StoredGroup):
        return PendingChange(producer_id, key, value)
    return change


def _encode(change: Change) -> tuple[bytes, bytes | None]:
    key, value = change
    if isinstance(key, OffsetKey):
        data = encode_offset_value(value) if isinstance(value, CommittedOffset) else None
        return encode_offset_key(key), data
    data = encode_group_value(value) if isinstance(value, StoredGroup) else None
    return encode_group_key(key), data


def _decode(record: Record) -> Change | None:
    if record.key is None:
        raise RecordError("no key")
    key = decode_key(record.key)
    if isinstance(key, OffsetKey):
        return key, decode_offset_value(record.value) if record.value is not None else None
    if isinstance(key, GroupKey):
        return key, decode_group_value(record.value) if record.value is not None else None
    return None
