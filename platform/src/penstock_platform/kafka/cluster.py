"""A Kafka cluster, ours or Apache's, seen through its protocol alone.

Everything here is metadata or bounded; every call has a deadline (``calls``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from penstock_platform.kafka.calls import (
    DEADLINE_SECONDS,
    NO_GROUP,
    REQUEST_TIMEOUT_SECONDS,
    RETRY_PAUSE_SECONDS,
    ClusterCalls,
    code_of,
)
from penstock_platform.kafka.errors import ClusterError, UnknownTopicError
from penstock_platform.kafka.model import LogSizes, PartitionOffsets, TopicRef
from penstock_platform.ranges import OffsetRange, by_partition

if TYPE_CHECKING:
    from penstock_platform.kafka.groups import KafkaGroups

READ_STALL_SECONDS = 20.0
LEADER_CHANGES_MAX = 5
_SPEC: Any = OffsetSpec  # its constructors carry no types


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster has it. ``configs`` are effective values, ``set_configs`` only those
    that were set on the topic itself."""

    ref: TopicRef
    partitions: int
    replicas: int
    configs: dict[str, str] = field(default_factory=dict)
    set_configs: dict[str, str] = field(default_factory=dict)


class KafkaCluster(ClusterCalls):
    """Connects on first use; safe to share between threads."""

    # --- topics -------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        description = self._await("describe the cluster", self._admin.describe_cluster)
        return str(description.cluster_id)

    def ref(self, topic: str) -> TopicRef:
        """The topic's present incarnation. Raises UnknownTopicError."""
        return TopicRef(self.cluster_id(), topic, _topic_id(self._describe(topic)))

    def describe(self, topic: str) -> TopicDescription:
        """Raises UnknownTopicError."""
        found = self._describe(topic)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._await(
            f"read the configs of topic {topic}",
            lambda: self._admin.describe_configs([resource])[resource],
        )
        texts = {name: str(e.value) for name, e in entries.items() if e.value is not None}
        return TopicDescription(
            ref=TopicRef(self.cluster_id(), topic, _topic_id(found)),
            partitions=len(found.partitions),
            replicas=len(found.partitions[0].replicas) if found.partitions else 0,
            configs=texts,
            # source 1: DYNAMIC_TOPIC_CONFIG (KIP-226)
            set_configs={n: t for n, t in texts.items() if int(entries[n].source) == 1},
        )

    def topics(self) -> list[str]:
        """All topic names, sorted."""
        try:
            return sorted(self._admin.list_topics(timeout=REQUEST_TIMEOUT_SECONDS).topics)
        except KafkaException as error:
            raise self._error("list topics", error) from error

    def create(
        self, topic: str, partitions: int, replicas: int = 1, configs: Mapping[str, str] = {}
    ) -> bool:
        """Create a topic; False when there is one of that name already.

        Returns when the cluster's metadata shows it: Kafka answers before the metadata has spread.
        """
        new = NewTopic(topic, partitions, replicas, config=dict(configs))
        try:
            self._await(f"create topic {topic}", lambda: self._admin.create_topics([new])[topic])
        except ClusterError as error:
            if code_of(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        deadline = self._clock.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                self._describe(topic)
            except UnknownTopicError:
                if self._clock.monotonic() >= deadline:
                    raise
                self._clock.sleep(RETRY_PAUSE_SECONDS)
            else:
                return True

    def delete(self, topic: str) -> None:
        self._await(f"delete topic {topic}", lambda: self._admin.delete_topics([topic])[topic])

    def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions; Kafka never lowers it."""
        new = [NewPartitions(topic, partitions)]
        self._await(
            f"give topic {topic} {partitions} partitions",
            lambda: self._admin.create_partitions(new)[topic],
        )

    def alter(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Set topic configs; a value of None goes back to the cluster's default."""
        if not configs:
            return
        entries = [
            ConfigEntry(
                name,
                value if value is not None else "",
                incremental_operation=AlterConfigOpType.SET
                if value is not None
                else AlterConfigOpType.DELETE,
            )
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._await(
            f"alter the configs of topic {topic}",
            lambda: self._admin.incremental_alter_configs([resource])[resource],
        )

    # --- offsets ------------------------------------------------------------------------------

    def offsets(self, topic: str) -> dict[int, PartitionOffsets]:
        """Log start, last stable offset, high watermark and leader epoch of every partition.

        Three requests are three moments. The last stable offset is asked for last: where it has
        reached the high watermark of the moment before, everything appended until then is below
        it. The answer is made consistent: log start <= last stable <= high watermark, all of one
        leader epoch. Raises UnknownTopicError, ClusterError.
        """
        partitions = range(len(self._describe(topic).partitions))
        for _attempt in range(LEADER_CHANGES_MAX):
            earliest = self._list_offsets(topic, partitions, _SPEC.earliest())
            latest = self._list_offsets(
                topic, partitions, _SPEC.latest(), IsolationLevel.READ_UNCOMMITTED
            )
            stable = self._list_offsets(topic, partitions, _SPEC.latest())
            if all(latest[p].leader_epoch == stable[p].leader_epoch for p in partitions):
                return {
                    p: _partition_offsets(p, earliest[p], latest[p], stable[p]) for p in partitions
                }
        raise ClusterError(
            f"{self._bootstrap_servers}: the leaders of topic {topic} changed "
            f"{LEADER_CHANGES_MAX} times while its offsets were asked for"
        )

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        """Per partition the first offset stamped at or after that time; None for none."""
        partitions = range(len(self._describe(topic).partitions))
        found = self._list_offsets(topic, partitions, _SPEC.for_timestamp(timestamp_ms))
        return {p: None if found[p].offset < 0 else found[p].offset for p in partitions}

    def broker_stamps(self, topic: str) -> bool:
        """Does the broker stamp this topic's records (``LogAppendTime``), or their producers?"""
        return self.describe(topic).configs.get("message.timestamp.type") == "LogAppendTime"

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete everything before these offsets; returns the log starts the broker then has."""
        wanted = [TopicPartition(topic, p, offset) for p, offset in sorted(before.items())]
        if not wanted:
            return {}
        done = self._await_all(
            f"delete records of topic {topic}",
            lambda: self._admin.delete_records(wanted, request_timeout=REQUEST_TIMEOUT_SECONDS),
        )
        return {key.partition: int(value.low_watermark) for key, value in done.items()}

    # Offsets of groups go through a Consumer that never joins: librdkafka's admin calls for them
    # end the process (SIGSEGV) when the coordinator moves or is new, up to 2.16 at least
    # (confluentinc/librdkafka#5040).

    def commit_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets to a consumer group that has no members, for any Kafka tool to see."""
        if not offsets:
            return
        wanted = [TopicPartition(topic, p, offset) for p, offset in sorted(offsets.items())]
        with self._group(group) as consumer:
            answer = self._retry(
                f"commit offsets of group {group}",
                lambda: consumer.commit(offsets=wanted, asynchronous=False),
            )
        for partition in answer or ():
            if partition.error is not None:
                raise self._error(
                    f"commit group {group}, {topic} partition {partition.partition}",
                    KafkaException(partition.error),
                )

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Committed offsets of a group; partitions without one are left out."""
        count = len(self._describe(topic).partitions)
        wanted = [TopicPartition(topic, partition) for partition in range(count)]
        with self._group(group) as consumer:
            answer = self._retry(
                f"read the offsets of group {group}",
                lambda: consumer.committed(wanted, timeout=REQUEST_TIMEOUT_SECONDS),
            )
        return {tp.partition: tp.offset for tp in answer if tp.offset >= 0}

    @cached_property
    def groups(self) -> KafkaGroups:
        """All consumer groups of this cluster: members, offsets, and changes to them."""
        from penstock_platform.kafka.groups import KafkaGroups  # noqa: PLC0415 - kafka-python

        return KafkaGroups(self._settings, self._clock)

    def read_range(self, topic: str, ranges: Sequence[OffsetRange]) -> Iterator[Message]:
        """Every committed record of these ranges, of each partition in offset order.

        Ends when all ranges are passed. Raises ClusterError when the log does not hold the start
        of a range, or when nothing has arrived for ``READ_STALL_SECONDS``.
        """
        left = {p: list(found) for p, found in by_partition(ranges).items()}
        while left:
            # A consumer has one position a partition: the first range of each, then the second …
            yield from self._read_one_each(topic, {p: found.pop(0) for p, found in left.items()})
            left = {p: found for p, found in left.items() if found}

    def epoch_ends(
        self, topic: str, epochs: Mapping[int, int], current: Mapping[int, int]
    ) -> dict[int, int]:
        """Where these leader epochs end today, by partition (``epochs.epoch_ends``)."""
        from penstock_platform.kafka.epochs import epoch_ends  # noqa: PLC0415

        return epoch_ends(self._settings, topic, epochs, current)

    def log_sizes(self, topic: str) -> LogSizes:
        """Bytes of each partition's log on disk, and what is left. Raises UnknownTopicError."""
        from penstock_platform.kafka.log_sizes import log_sizes  # noqa: PLC0415

        partitions = range(len(self._describe(topic).partitions))
        return log_sizes(self._settings, topic, partitions)

    def unread_offsets(
        self, topic: str, doubtful: Sequence[OffsetRange]
    ) -> tuple[OffsetRange, ...]:
        """Of these offsets, those that a consumer correctly does not get (``batches``)."""
        from penstock_platform.kafka.batches import unread_offsets  # noqa: PLC0415

        return unread_offsets(self._settings, topic, doubtful)

    # --- inside -------------------------------------------------------------------------------

    def _read_one_each(self, topic: str, ranges: dict[int, OffsetRange]) -> Iterator[Message]:
        consumer = Consumer(
            {
                **self._properties,
                "group.id": f"penstock.read.{topic}",  # required by the client; never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, p, r.start) for p, r in ranges.items()])
            yield from self._drain(consumer, topic, ranges)
        finally:
            consumer.close()

    def _drain(
        self, consumer: Consumer, topic: str, open_ranges: dict[int, OffsetRange]
    ) -> Iterator[Message]:
        received = self._clock.monotonic()
        while open_ranges:
            messages = consumer.consume(num_messages=5000, timeout=0.5)
            if messages:
                received = self._clock.monotonic()
            elif self._clock.monotonic() - received > READ_STALL_SECONDS:
                raise ClusterError(
                    f"{self._bootstrap_servers}: topic {topic} gave nothing for "
                    f"{READ_STALL_SECONDS:.0f} s; still to read: "
                    f"{', '.join(map(str, open_ranges.values()))}"
                )
            for message in messages:
                error = message.error()
                partition, offset = message.partition() or 0, message.offset() or 0
                wanted = open_ranges.get(partition)
                if error is not None and error.code() == NO_GROUP:
                    continue
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise self._error(f"read topic {topic}", KafkaException(error))
                if wanted is None:
                    continue
                if error is None and offset < wanted.end:
                    yield message
                # Offsets may jump over markers: the last record is not always at end - 1.
                passed = offset if error is not None else offset + 1
                if passed >= wanted.end:
                    del open_ranges[partition]

    def _describe(self, topic: str) -> Any:
        collection = TopicCollection([topic])
        try:
            return self._await(
                f"describe topic {topic}", lambda: self._admin.describe_topics(collection)[topic]
            )
        except ClusterError as error:
            if code_of(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise UnknownTopicError(
                    f"{self._bootstrap_servers} has no topic {topic}; materialise its asset first"
                ) from error
            raise

    def _list_offsets(
        self,
        topic: str,
        partitions: Iterable[int],
        spec: Any,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[int, Any]:
        wanted = {TopicPartition(topic, p): spec for p in partitions}
        if not wanted:
            return {}
        found = self._await_all(
            f"list offsets of topic {topic}",
            lambda: self._admin.list_offsets(
                wanted, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_SECONDS
            ),
        )
        return {key.partition: value for key, value in found.items()}

    @contextmanager
    def _group(self, group: str) -> Iterator[Consumer]:
        consumer = Consumer({**self._properties, "group.id": group, "enable.auto.commit": False})
        try:
            yield consumer
        finally:
            consumer.close()


def _partition_offsets(p: int, earliest: Any, latest: Any, stable: Any) -> PartitionOffsets:
    return PartitionOffsets(
        partition=p,
        log_start=earliest.offset,
        last_stable=stable.offset,
        high_watermark=max(latest.offset, stable.offset),
        leader_epoch=-1 if latest.leader_epoch is None else latest.leader_epoch,
    )


def _topic_id(description: Any) -> str:
    """Kafka's own spelling of the id (URL-safe base64); librdkafka's has ``+`` and ``/``."""
    return str(description.topic_id).replace("+", "-").replace("/", "_")
