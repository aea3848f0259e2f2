"""A cluster's offsets and records in memory: what the freezer and the evidence reader ask for."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock_platform.kafka.errors import ClusterError, UnknownTopicError
from penstock_platform.kafka.model import PartitionOffsets, TopicRef
from penstock_platform.ranges import OffsetRange

CLUSTER_ID = "cluster-in-memory-0001"


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """As much of a confluent-kafka message as its readers use."""

    at: int
    timestamp_ms: int
    data: bytes | None
    place: int = 0

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.data


@dataclass(slots=True)
class MemoryPartition:
    """Offsets are places in ``records``; ``held`` is the start of an open transaction.

    ``epochs`` are (leader epoch, first offset), both growing, as ``leader-epoch-checkpoint`` has
    them.
    """

    records: list[MemoryRecord] = field(default_factory=list)
    log_start: int = 0
    held: int | None = None
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    def offsets(self, number: int) -> PartitionOffsets:
        end = len(self.records)
        stable = end if self.held is None else min(end, self.held)
        return PartitionOffsets(number, self.log_start, stable, end, self.epochs[-1][0])

    def elect(self, epoch: int | None = None) -> int:
        """A new leader epoch begins at the log's end."""
        end = len(self.records)
        number = self.epochs[-1][0] + 1 if epoch is None else epoch
        self.epochs = [*((e, at) for e, at in self.epochs if at < end), (number, end)]
        return number

    def truncate(self, offset: int) -> None:
        """Lose everything from that offset on, and be led by a new epoch from there."""
        latest = self.epochs[-1][0]
        del self.records[offset:]
        self.elect(latest + 1)

    def end_of(self, epoch: int) -> int:
        """Where that epoch ends today; -1 when it is later than all that are known."""
        if epoch == self.epochs[-1][0]:
            return len(self.records)
        return next((at for e, at in self.epochs if e > epoch), -1)


@dataclass(slots=True)
class MemoryTopic:
    topic_id: str
    partitions: list[MemoryPartition]
    broker_stamps: bool = False


class MemoryCluster:
    """Topics by name. Appending and deleting are the test's; asking is like ``KafkaCluster``."""

    def __init__(self, cluster_id: str = CLUSTER_ID) -> None:
        self.id = cluster_id
        self.topics: dict[str, MemoryTopic] = {}

    def add_topic(self, name: str, partitions: int, *, broker_stamps: bool = False) -> MemoryTopic:
        """Create a topic, or one of the same name again, with an id of its own."""
        topic = MemoryTopic(
            uuid.uuid4().hex[:22], [MemoryPartition() for _ in range(partitions)], broker_stamps
        )
        self.topics[name] = topic
        return topic

    def append(self, name: str, partition: int, data: bytes | None = b"", ms: int = 0) -> int:
        """Store one record and return its offset."""
        records = self.topics[name].partitions[partition].records
        records.append(MemoryRecord(len(records), ms, data, partition))
        return len(records) - 1

    def ref(self, topic: str) -> TopicRef:
        return TopicRef(self.id, topic, self._topic(topic).topic_id)

    def offsets(self, topic: str) -> dict[int, PartitionOffsets]:
        return {n: p.offsets(n) for n, p in enumerate(self._topic(topic).partitions)}

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        return {
            n: next(
                (r.at for r in p.records[p.log_start :] if r.timestamp_ms >= timestamp_ms), None
            )
            for n, p in enumerate(self._topic(topic).partitions)
        }

    def broker_stamps(self, topic: str) -> bool:
        return self._topic(topic).broker_stamps

    def epoch_ends(
        self, topic: str, epochs: Mapping[int, int], current: Mapping[int, int]
    ) -> dict[int, int]:
        partitions = self._topic(topic).partitions
        for p, epoch in current.items():
            if partitions[p].epochs[-1][0] != epoch:
                raise ClusterError(f"partition {p} of {topic}: fenced leader epoch {epoch}")
        return {p: partitions[p].end_of(epoch) for p, epoch in epochs.items()}

    def read_range(self, topic: str, ranges: Sequence[OffsetRange]) -> Iterator[MemoryRecord]:
        partitions = self._topic(topic).partitions
        for r in ranges:
            yield from partitions[r.partition].records[r.start : r.end]

    def _topic(self, name: str) -> MemoryTopic:
        if name not in self.topics:
            raise UnknownTopicError(f"no topic {name}")
        return self.topics[name]
