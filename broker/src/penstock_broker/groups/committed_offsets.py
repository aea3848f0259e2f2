"""The committed offsets of all groups: taken, given, deleted, and expired.

A commit is: check, append, update the view in memory, answer. What is in memory is what a replay
of the internal topic gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock_broker.clock import Clock
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups import footprint
from penstock_broker.groups.directory import Entry, GroupDirectory
from penstock_broker.groups.group_state import CONSUMER_PROTOCOL_TYPE
from penstock_broker.groups.offset_records import CommittedOffset, OffsetKey
from penstock_broker.groups.pending_offsets import PendingChange, PendingOffsets
from penstock_broker.groups.states import GroupState
from penstock_broker.groups.store import GroupStore, commit_error
from penstock_broker.groups.subscription import subscribed_topics
from penstock_broker.log.keys import ProducerAndEpoch, TopicPartition
from penstock_broker.metrics import Metrics


@dataclass(frozen=True, slots=True)
class OffsetLimits:
    """Settings of committed offsets."""

    metadata_bytes_max: int = 4_096
    retention_ms: int = 604_800_000


class CommittedOffsets:
    """Of the groups of a directory, which they are kept in. Owned by the event loop."""

    def __init__(
        self,
        directory: GroupDirectory,
        store: GroupStore,
        clock: Clock,
        limits: OffsetLimits,
        metrics: Metrics,
    ) -> None:
        self._directory = directory
        self._store = store
        self._clock = clock
        self._limits = limits
        self._metrics = metrics
        self._pending = PendingOffsets()

    # -- start -------------------------------------------------------------------------------

    def load(self, key: OffsetKey, offset: CommittedOffset | None) -> None:
        """Take over a record of the internal topic."""
        offsets = self._directory.find_or_add(key.group).offsets
        place = (key.topic, key.partition)
        if offset is not None:
            offsets[place] = offset
            self._pending.supersede(key.group, (place,))
        else:
            offsets.pop(place, None)
            self._pending.drop(key.group, (place,))

    def load_pending(self, change: PendingChange) -> None:
        """Take over a record that is part of a transaction."""
        producer_id, key, offset = change
        if offset is not None:
            self._directory.find_or_add(key.group)
            self._pending.add(producer_id, key.group, {(key.topic, key.partition): offset})

    # -- requests ----------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        unknown_group: ErrorCode = ErrorCode.ILLEGAL_GENERATION,
        producer: ProducerAndEpoch | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """OffsetCommit; one code per partition. Nothing is acknowledged that is not in the log.

        ``unknown_group`` is the error for a member of a group that does not exist. ``producer``
        (TxnOffsetCommit): they count when its transaction commits.
        """
        entry = self._directory.find(group_id)
        if entry is None:
            if generation_id >= 0:
                return dict.fromkeys(offsets, unknown_group)
            self._directory.footprint.require_space(group_id, 0)
            entry = self._directory.find_or_add(group_id)
        error = entry.group.commit_allowed(
            member_id,
            group_instance_id,
            generation_id,
            self._clock.monotonic() * 1000.0,
            transactional=producer is not None,
        )
        if error is not ErrorCode.NONE:
            return dict.fromkeys(offsets, error)
        codes = {place: self._check_metadata(offset) for place, offset in offsets.items()}
        good = {place: offsets[place] for place, code in codes.items() if code is ErrorCode.NONE}
        if good:
            more = self._require_space(entry, good)
            records = [(OffsetKey(group_id, *place), offset) for place, offset in good.items()]
            try:
                self._store.write(group_id, records, producer)
            except KafkaError as failure:
                return {**codes, **dict.fromkeys(good, commit_error(failure.code))}
            if producer is not None:
                self._pending.add(producer[0], group_id, good)
            else:
                entry.offsets.update(good)
                self._pending.supersede(group_id, good)
            self._directory.footprint.record_offsets(group_id, more)
            self._metrics.offset_commits.inc(len(good))
        return codes

    def _check_metadata(self, offset: CommittedOffset) -> ErrorCode:
        if len(offset.metadata) > self._limits.metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _require_space(
        self, entry: Entry, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> int:
        """The bytes that offsets take beyond those that they replace. GROUP_MAX_SIZE_REACHED."""
        before = {place: entry.offsets[place] for place in offsets if place in entry.offsets}
        more = footprint.of_offsets(offsets) - footprint.of_offsets(before)
        if more > 0:
            self._directory.footprint.require_space(entry.group.group_id, more)
        return more

    def of(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The offsets of a group; empty for an unknown one (that is not an error)."""
        entry = self._directory.find(group_id)
        return entry.offsets if entry is not None else {}

    def undecided(self, group_id: str) -> set[TopicPartition]:
        """Where a transaction is open that may soon commit another offset of a group."""
        return self._pending.places(group_id)

    def transaction_decided(self, partition: int, producer_id: int, is_commit: bool) -> None:
        """The marker of a producer's transaction is in a partition of the internal topic."""
        store = self._store
        decided = self._pending.decide(
            producer_id, commit=is_commit, is_here=lambda g: store.partition_of(g) == partition
        )
        for group_id, offsets in decided.items():
            self._directory.find_or_add(group_id).offsets.update(offsets)

    def delete(
        self, group_id: str, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """OffsetDelete: of partitions whose topic no member subscribes to. KafkaError."""
        entry = self._directory.find(group_id)
        if entry is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        group = entry.group
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        subscribed = group.subscribed_topics_of(subscribed_topics)
        codes = {
            place: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if subscribed is None or place[0] in subscribed
            else ErrorCode.NONE
            for place in places
        }
        self._drop(entry, [p for p, c in codes.items() if c is ErrorCode.NONE])
        return codes

    # -- what else ends them -----------------------------------------------------------------

    def remove_topic(self, topic: str) -> None:
        """A topic was deleted: its offsets mean nothing to a topic that takes its name later.
        KafkaError when those of a group remain; those of the others are gone."""
        failure: KafkaError | None = None
        for entry in self._directory.entries.values():
            places = entry.offsets.keys() | self._pending.places(entry.group.group_id)
            try:
                self._drop(entry, [place for place in places if place[0] == topic])
            except KafkaError as error:
                failure = error
        if failure is not None:
            raise failure

    def keys_of(self, entry: Entry) -> list[OffsetKey]:
        """What has to be deleted with a group: its offsets, and those that wait for a marker."""
        group_id = entry.group.group_id
        places = entry.offsets.keys() | self._pending.places(group_id)
        return [OffsetKey(group_id, *place) for place in places]

    def remove_group(self, group_id: str) -> None:
        """A group was deleted."""
        self._pending.drop_group(group_id)

    def has_none(self, entry: Entry) -> bool:
        """Whether a group has committed nothing that counts or may count."""
        return not entry.offsets and not self._pending.has_group(entry.group.group_id)

    def _drop(self, entry: Entry, places: Iterable[TopicPartition]) -> None:
        group_id = entry.group.group_id
        known = [p for p in places if p in entry.offsets or self._pending.has(group_id, p)]
        if known:
            self._store.write(group_id, [(OffsetKey(group_id, *place), None) for place in known])
            for place in known:
                offset = entry.offsets.pop(place, None)
                if offset is not None:
                    self._directory.footprint.record_offsets(group_id, -footprint.of_offset(offset))
            self._pending.drop(group_id, known)

    # -- time --------------------------------------------------------------------------------

    def expire(self, entry: Entry) -> None:
        """Drop the offsets of a group whose time is over (KIP-211). KafkaError.

        Of an empty group: when it has been empty, and the offset has not been renewed, for the
        retention time. Of a stable group of consumers: when the topic is not subscribed to any
        more and the offset has not been renewed. Of simple consumers: when it has not been
        renewed. A retention time that an old client gave (OffsetCommit v2-v4) counts instead.
        """
        expired = self._expired(entry)
        self._drop(entry, expired)
        self._metrics.offsets_expired.inc(len(expired))

    def _expired(self, entry: Entry) -> list[TopicPartition]:
        group = entry.group
        since_ms, kept = -1, set[str]()
        if group.state is GroupState.EMPTY:
            since_ms = entry.state_timestamp_ms
        elif group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
            subscribed = group.subscribed_topics_of(subscribed_topics)
            if subscribed is None:
                return []
            kept = subscribed
        else:
            return []
        now_ms = self._clock.now_ms()
        oldest_ms = now_ms - self._limits.retention_ms
        return [
            place
            for place, offset in entry.offsets.items()
            if place[0] not in kept
            and not self._pending.has(group.group_id, place)
            and (
                max(offset.commit_timestamp_ms, since_ms) <= oldest_ms
                if offset.expire_timestamp_ms < 0
                else offset.expire_timestamp_ms <= now_ms
            )
        ]
