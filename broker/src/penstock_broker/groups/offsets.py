"""The internal topic ``__consumer_offsets``: where commits and generations are kept.

Records as in :mod:`.offset_records`.

The topic is compacted, in segments small enough (``offsets.topic.segment.bytes``) that what has
to be replayed at a start, history and all, is read in a fraction of a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from penstock_broker.clock import Clock
from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.errors import ErrorCode
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
from penstock_broker.groups.store import Change
from penstock_broker.log.keys import ProducerAndEpoch
from penstock_broker.log.markers import read_marker
from penstock_broker.replication.internal_topic import InternalTopic, batches
from penstock_broker.replication.partition import Partition
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import Record

_logger = logging.getLogger(__name__)


class OffsetsTopic(InternalTopic):
    """The store of the group coordinator."""

    def __init__(
        self,
        *,
        clock: Clock,
        metadata: MetadataStore,
        replicas: ReplicaManager,
        create: Callable[[], object],
    ) -> None:
        super().__init__(OFFSETS_TOPIC, metadata=metadata, replicas=replicas, create=create)
        self._clock = clock

    def problem(self, group_id: str) -> ErrorCode:
        """NOT_COORDINATOR for groups of a partition that is offline or was not read to its end."""
        if self.partition_count() == 0 or self.find(group_id) is not None:
            return ErrorCode.NONE
        return ErrorCode.NOT_COORDINATOR

    def write(
        self, group_id: str, changes: Iterable[Change], producer: ProducerAndEpoch | None = None
    ) -> None:
        """Append one batch; acknowledged by the log or KafkaError."""
        self.ensure_topic()
        now_ms = self._clock.now_ms()
        records = [NewRecord(*_encode(change), now_ms) for change in changes]
        partition = self.partition(group_id)
        if producer is None:
            partition.append(memoryview(build_batch(records)), acks_all=True)
        else:
            producer_id, epoch = producer
            partition.append_offsets(
                build_batch(
                    records, producer_id=producer_id, producer_epoch=epoch, transactional=True
                )
            )

    def load(self) -> Iterator[Change | PendingChange | Decision]:
        """Everything that is in the topic, partition by partition, in order. Of plain records only
        the last of each key, which is most of the work saved; parts of transactions, and what
        decides them, in their place among them."""
        return self.replay(self._read)

    def _read(self, partition: Partition) -> Iterator[Change | PendingChange | Decision]:
        latest: dict[bytes | None, Record] = {}
        for batch in batches(partition):
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
        """A record as a change; one that cannot be read is skipped, and logged."""
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
