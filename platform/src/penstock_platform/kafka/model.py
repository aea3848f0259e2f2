"""What a cluster says of its topics: an incarnation of one, and the offsets of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock_platform.ranges import OffsetRange, merge


@dataclass(frozen=True, slots=True)
class TopicRef:
    """One incarnation of a topic: the same name recreated has another ``topic_id``."""

    cluster_id: str
    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What the broker says of one partition now. ``leader_epoch`` is -1 where it returns none."""

    partition: int
    log_start: int
    last_stable: int
    high_watermark: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Where the log of one partition begins and ends: ``start <= offset < end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Volume:
    """A broker's disk: its bytes, and those that are free."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class LogSizes:
    """What a topic's log takes by partition, and of the brokers' volumes with replicas of it the
    one with the least space left; None where they do not say (before Kafka 3.3)."""

    by_partition: Mapping[int, int]
    volume: Volume | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group committed for one partition: the offset that it reads next, with the leader
    epoch (-1: none) and the text that the client stored beside it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A consumer group in the cluster's list. ``kind``: classic or consumer (KIP-848);
    ``protocol_type`` is empty for a group that only stores offsets."""

    name: str
    state: str
    kind: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group, and the (topic, partition) pairs that are assigned to it."""

    member_id: str
    client_id: str
    host: str
    instance_id: str
    assigned: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator has it. A group that does not exist is ``Dead``."""

    name: str
    state: str
    kind: str
    assignor: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """Header of one record batch of the log: offsets ``base <= offset <= last``.

    Records may be fewer than offsets where the log was compacted. (KIP-98; record batch v2.)
    """

    base: int
    last: int
    control: bool
    transactional: bool
    producer_id: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """As a read_committed Fetch answers it: the producer, and its first offset of that one."""

    producer_id: int
    first_offset: int


def legal_holes(
    partition: int, batches: Iterable[BatchSpan], aborted: Sequence[AbortedTransaction]
) -> tuple[OffsetRange, ...]:
    """The offsets of one partition that no read_committed consumer is given.

    Control batches hold markers, not records. A transactional batch is aborted from its
    transaction's first offset on, up to that producer's next marker. ``batches`` come in offset
    order, as the log has them.
    """
    waiting = sorted(aborted, key=lambda a: a.first_offset)
    under_way: set[int] = set()
    holes: list[OffsetRange] = []
    for batch in batches:
        while waiting and waiting[0].first_offset <= batch.last:
            under_way.add(waiting.pop(0).producer_id)
        if batch.control:
            under_way.discard(batch.producer_id)
        if batch.control or (batch.transactional and batch.producer_id in under_way):
            holes.append(OffsetRange(partition, batch.base, batch.last + 1))
    return merge(holes)
