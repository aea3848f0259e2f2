"""The consumer groups of a cluster: members, committed offsets, and changes to them.

Lists and descriptions come through librdkafka, which knows classic groups and those of KIP-848.
Offsets go through kafka-python: librdkafka's admin calls for them end the process (SIGSEGV) when
the coordinator moves or is new, up to 2.16 at least (confluentinc/librdkafka#5040), its Python
has no call that deletes one, and it adds a byte to the metadata that it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from kafka import OffsetAndMetadata  # type: ignore[import-untyped]
from kafka import TopicPartition as Partition
from kafka.errors import KafkaError as ProtocolError  # type: ignore[import-untyped]

from penstock_platform.kafka import calls
from penstock_platform.kafka.calls import ClusterCalls
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.model import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    LogBounds,
)
from penstock_platform.kafka.protocol_client import protocol_client

_SPEC: Any = OffsetSpec  # its constructors carry no types
PARTITIONS_A_READ = 100  # how many partitions one consumer reads its first records of
READ_STALL_SECONDS = 20.0
FETCH_BYTES = 64 * 1024  # a broker gives at least one batch, however large
# What librdkafka's names of states are in Kafka's tools, where they differ.
_STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}
DEAD = "Dead"
_NO_RECORD = (KafkaError._PARTITION_EOF, KafkaError.TOPIC_AUTHORIZATION_FAILED)
Place = tuple[str, int]  # topic, partition
T = TypeVar("T")


class KafkaGroups(ClusterCalls):
    """The groups of one cluster. Everything raises ClusterError."""

    def listings(self) -> list[GroupListing]:
        """All consumer groups, by name. Groups of other protocols (Connect's) are not among
        them."""
        found = self._await("list consumer groups", self._admin.list_consumer_groups)
        if found.errors:
            raise self._error("list consumer groups", found.errors[0])
        listings = (
            GroupListing(
                name=str(g.group_id),
                state=_state(g.state),
                kind=_kind(g),
                protocol_type="" if g.is_simple_consumer_group else "consumer",
            )
            for g in found.valid
        )
        return sorted(listings, key=lambda g: g.name)

    def describe(self, groups: Sequence[str]) -> dict[str, GroupDescription]:
        """State and members of these groups; one that does not exist is Dead and has none."""
        found: dict[str, GroupDescription] = {}
        if not groups:
            return found
        for name, future in self._admin.describe_consumer_groups(list(groups)).items():
            try:
                found[name] = _description(future.result(timeout=calls.DEADLINE_SECONDS))
            except (KafkaException, TimeoutError):  # its coordinator moves: asked again by itself
                found[name] = self._described(name)
        return found

    def committed(self, groups: Sequence[str]) -> dict[str, dict[Place, CommittedOffset]]:
        """Everything that these groups have committed, one request a coordinator."""
        if not groups:
            return {}
        answer = self._ask(
            f"read the committed offsets of {_names(groups)}",
            lambda client: client.list_group_offsets(dict.fromkeys(groups)),
        )
        return {
            group: {
                (tp.topic, int(tp.partition)): CommittedOffset(
                    offset=int(found.offset),
                    leader_epoch=-1 if found.leader_epoch is None else int(found.leader_epoch),
                    metadata=found.metadata or "",
                )
                for tp, found in sorted(answer.get(group, {}).items())
                if found.offset >= 0
            }
            for group in groups
        }

    def commit(self, group: str, topic: str, offsets: Mapping[int, CommittedOffset]) -> None:
        """Commit offsets to a group without members: in one request, as they are given."""
        wanted = {
            Partition(topic, p): OffsetAndMetadata(o.offset, o.metadata, o.leader_epoch)
            for p, o in sorted(offsets.items())
        }
        self._change(
            f"commit offsets of group {group}, topic {topic}",
            wanted,
            lambda client: client.alter_group_offsets(group, wanted),
        )

    def remove(self, group: str, topic: str, partitions: Iterable[int]) -> None:
        """Delete what a group without members has committed for these partitions."""
        wanted = [Partition(topic, p) for p in sorted(partitions)]
        self._change(
            f"delete offsets of group {group}, topic {topic}",
            wanted,
            lambda client: client.delete_group_offsets(group, wanted),
        )

    def partitions(self) -> dict[str, tuple[int, ...]]:
        """The partitions of every topic of the cluster."""
        try:
            metadata = self._admin.list_topics(timeout=calls.REQUEST_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._error("list topics", error) from error
        return {name: tuple(sorted(topic.partitions)) for name, topic in metadata.topics.items()}

    def bounds(self, places: Iterable[Place]) -> dict[Place, LogBounds]:
        """Log start and high watermark of these partitions, whatever their number in two calls."""
        wanted = sorted(set(places))
        if not wanted:
            return {}
        starts, ends = (self._offsets(wanted, s) for s in (_SPEC.earliest(), _SPEC.latest()))
        return {
            place: LogBounds(starts[place], max(starts[place], ends[place])) for place in wanted
        }

    def first_at(self, places: Iterable[Place], timestamp_ms: int) -> dict[Place, int | None]:
        """The first offset stamped at or after that time, also inside an open transaction; None
        for none."""
        wanted = sorted(set(places))
        found = self._offsets(wanted, _SPEC.for_timestamp(timestamp_ms)) if wanted else {}
        return {place: None if offset < 0 else offset for place, offset in found.items()}

    def first_stamps(self, offsets: Mapping[Place, int]) -> dict[Place, int | None]:
        """The timestamp (ms) of the first committed record at or after each offset; None where
        there is no record. Partitions that may not be read, or do not answer in time, are left
        out."""
        found: dict[Place, int | None] = {}
        wanted = sorted(offsets.items())
        for n in range(0, len(wanted), PARTITIONS_A_READ):
            found |= self._first_stamps(dict(wanted[n : n + PARTITIONS_A_READ]))
        return found

    # --- inside -------------------------------------------------------------------------------

    def _described(self, name: str) -> GroupDescription:
        try:
            found = self._await(
                f"describe group {name}",
                lambda: self._admin.describe_consumer_groups([name])[name],
            )
        except ClusterError as error:
            if calls.code_of(error) == KafkaError.GROUP_ID_NOT_FOUND:  # Kafka 4: no longer "Dead"
                return GroupDescription(name, DEAD, "classic", "", ())
            raise
        return _description(found)

    def _offsets(self, places: Sequence[Place], spec: Any) -> dict[Place, int]:
        wanted = {TopicPartition(topic, p): spec for topic, p in places}
        found = self._await_all(
            f"list the offsets of {len(places):,} partitions",
            lambda: self._admin.list_offsets(
                wanted,
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=calls.REQUEST_TIMEOUT_SECONDS,
            ),
        )
        return {(tp.topic, int(tp.partition)): int(value.offset) for tp, value in found.items()}

    def _first_stamps(self, offsets: Mapping[Place, int]) -> dict[Place, int | None]:
        consumer = Consumer(
            {
                **self._properties,
                "group.id": "penstock.read",  # required by the client; never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",  # the log's start may just have moved
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "queued.min.messages": 1,
                "fetch.message.max.bytes": FETCH_BYTES,
            }
        )
        with closing(consumer):
            consumer.assign([TopicPartition(topic, p, o) for (topic, p), o in offsets.items()])
            return dict(self._drain(consumer, set(offsets)))

    def _drain(self, consumer: Consumer, waiting: set[Place]) -> Iterator[tuple[Place, int | None]]:
        """The first answer of each partition; then it is read no further."""
        progress = self._clock.monotonic()
        while waiting and self._clock.monotonic() - progress < READ_STALL_SECONDS:
            for message in consumer.consume(num_messages=len(waiting), timeout=0.5):
                place = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is not None and error.code() == calls.NO_GROUP:
                    continue
                if error is not None and error.code() not in _NO_RECORD:
                    raise self._error(f"read topic {place[0]}", KafkaException(error))
                if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    waiting -= {other for other in waiting if other[0] == place[0]}
                if place not in waiting:
                    continue
                progress = self._clock.monotonic()
                waiting.remove(place)
                consumer.pause([TopicPartition(*place)])
                yield place, None if error is not None else int(message.timestamp()[1])

    def _change(
        self, what: str, partitions: Iterable[Any], call: Callable[[Any], Mapping[Any, Any]]
    ) -> None:
        """One request that changes offsets; a refusal names the partition."""
        if not partitions:
            return

        def changed(client: Any) -> None:
            for tp, error in sorted(call(client).items()):
                if error.errno:
                    raise error(f"partition {tp.partition}")

        self._ask(what, changed)

    def _ask(self, what: str, call: Callable[[Any], T]) -> T:
        """Through kafka-python, again while the answer is retriable."""
        deadline = self._clock.monotonic() + calls.DEADLINE_SECONDS
        self._require_reachable()
        while True:
            try:
                with protocol_client(self._settings) as client:
                    return call(client)
            except ProtocolError as error:
                if not error.retriable or self._clock.monotonic() >= deadline:
                    raise ClusterError(
                        f"{self._bootstrap_servers}: cannot {what}: {error}"
                    ) from error
            self._clock.sleep(calls.RETRY_PAUSE_SECONDS)


def _description(found: Any) -> GroupDescription:
    return GroupDescription(
        name=str(found.group_id),
        state=_state(found.state),
        kind=_kind(found),
        assignor=found.partition_assignor or "",
        members=tuple(sorted(map(_member, found.members), key=lambda m: m.member_id)),
    )


def _member(found: Any) -> GroupMember:
    assigned = found.assignment.topic_partitions if found.assignment else ()
    return GroupMember(
        member_id=str(found.member_id),
        client_id=str(found.client_id),
        host=str(found.host).lstrip("/"),
        instance_id=found.group_instance_id or "",
        assigned=tuple(sorted((tp.topic, int(tp.partition)) for tp in assigned)),
    )


def _state(state: Any) -> str:
    """As Kafka's own tools spell it: ``Stable``, ``PreparingRebalance``."""
    name = state.name if state is not None else "UNKNOWN"
    return _STATES.get(name, name.title().replace("_", ""))


def _kind(group: Any) -> str:
    """``classic`` or ``consumer``; a broker that does not say has classic groups alone."""
    kind = getattr(group, "type", None)
    return "consumer" if kind is not None and kind.name == "CONSUMER" else "classic"


def _names(groups: Sequence[str]) -> str:
    return f"group {groups[0]}" if len(groups) == 1 else f"{len(groups):,} groups"
