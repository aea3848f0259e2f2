"""The group coordinator: owns the groups, their clocks and their committed offsets.

The rules are in :mod:`.group_state`; this carries out their effects (answers, writes to the
internal topic, timers). Everything runs in the event loop, so a commit is: check, append, update
the view in memory, answer. What is in memory is exactly what a replay of the internal topic
gives, plus sessions, which begin anew after a start.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock_broker.clock import Clock, Timer, Timers
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups import footprint
from penstock_broker.groups.footprint import Footprint
from penstock_broker.groups.group_state import CONSUMER_PROTOCOL_TYPE, Group
from penstock_broker.groups.members import (
    Answer,
    Effect,
    GroupLimits,
    JoinRequest,
    JoinResult,
    StoredGroup,
    SyncRequest,
    SyncResult,
)
from penstock_broker.groups.offset_records import CommittedOffset, GroupKey, OffsetKey
from penstock_broker.groups.pending_offsets import Decision, PendingChange, PendingOffsets
from penstock_broker.groups.states import GroupState
from penstock_broker.groups.subscription import subscribed_topics
from penstock_broker.log.keys import ProducerAndEpoch, TopicPartition
from penstock_broker.metrics import Metrics

_logger = logging.getLogger(__name__)

Change = tuple[OffsetKey, CommittedOffset | None] | tuple[GroupKey, StoredGroup | None]


class GroupStore(Protocol):
    """The internal topic."""

    def write(
        self, group_id: str, changes: Iterable[Change], producer: ProducerAndEpoch | None = None
    ) -> None:
        """Append records (None: a tombstone), all or nothing; KafkaError when it cannot.

        ``producer``: they are part of its transaction.
        """
        ...

    def partition_of(self, group_id: str) -> int:
        """The partition of the internal topic that a group's records are in."""
        ...

    def problem(self, group_id: str) -> ErrorCode:
        """Why nothing can be said about this group: its partition was not read to the end, or is
        offline. NONE when all is well."""
        ...


@dataclass(slots=True)
class _Entry:
    """A group with what belongs to it."""

    group: Group
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    state_timestamp_ms: int = -1
    timer: Timer | None = None
    timer_at_ms: float = 0.0
    noted: tuple[GroupState, int] = (GroupState.EMPTY, 0)


@dataclass(frozen=True, slots=True)
class CoordinatorLimits:
    """Settings beside those of the groups themselves."""

    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 604_800_000
    groups_max: int = 100_000
    bytes_max: int = 256 << 20


class GroupCoordinator:
    """All groups of this broker."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        store: GroupStore,
        group_limits: GroupLimits,
        limits: CoordinatorLimits,
        metrics: Metrics | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._store = store
        self._group_limits = group_limits
        self._limits = limits
        self._metrics = metrics or Metrics()
        self._new_id = new_id
        self._entries: dict[str, _Entry] = {}
        self._pending = PendingOffsets()
        self._footprint = Footprint(limits.groups_max, limits.bytes_max)

    # -- start -------------------------------------------------------------------------------

    def load(self, changes: Iterable[Change | PendingChange | Decision]) -> None:
        """Take over what the internal topic says, in the order in which it was written."""
        stored: dict[str, StoredGroup] = {}
        for change in changes:
            if isinstance(change, Decision):
                self.transaction_decided(*change)
                continue
            if isinstance(change, PendingChange):
                self._load_pending(change)
                continue
            key, value = change
            if isinstance(key, GroupKey):
                if isinstance(value, StoredGroup):
                    stored[key.group] = value
                else:
                    stored.pop(key.group, None)
                continue
            offsets, place = self._entry_or_new(key.group).offsets, (key.topic, key.partition)
            if isinstance(value, CommittedOffset):
                offsets[place] = value
                self._pending.supersede(key.group, (place,))
            else:
                offsets.pop(place, None)
                self._pending.drop(key.group, (place,))
        for group_id, group in stored.items():
            entry = self._entry_or_new(group_id)
            entry.state_timestamp_ms = group.state_timestamp_ms
            entry.group.restore(group, self._now_ms())
            entry.noted = (entry.group.state, entry.group.generation_id)
            self._reschedule(entry)
        for group_id in [g for g, e in self._entries.items() if g not in stored and not e.offsets]:
            if not self._pending.has_group(group_id):
                del self._entries[group_id]
                self._footprint.forget(group_id)
        self._recount()

    def _recount(self) -> None:
        """Charge each group with what it has: transactions that abort leave too much behind."""
        for group_id, entry in self._entries.items():
            group = entry.group
            self._footprint.note_members(group_id, group.roster.size, len(group.pending))
            self._footprint.set_offsets(group_id, footprint.of_offsets(entry.offsets))

    def _load_pending(self, change: PendingChange) -> None:
        producer_id, key, value = change
        place = (key.topic, key.partition)
        if value is not None:
            self._entry_or_new(key.group)
            self._pending.add(producer_id, key.group, {place: value})

    # -- membership --------------------------------------------------------------------------

    def join(
        self, group_id: str, request: JoinRequest, waiter: Callable[[JoinResult], None]
    ) -> None:
        """JoinGroup; ``waiter`` gets the result, now or when the generation begins."""
        self._require(group_id)
        entry = self._entries.get(group_id)
        if entry is None and request.member_id:
            waiter(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return
        known = entry.group.members.get(request.member_id) if entry is not None else None
        self._footprint.require_room(group_id, footprint.of_join(request, known))
        if entry is None:
            entry = self._entry_or_new(group_id)
        if not request.member_id:
            prefix = request.group_instance_id or request.client_id
            request = replace(request, new_member_id=f"{prefix}-{self._new_id()}")
        self._carry_out(entry, entry.group.join(request, waiter, self._now_ms()))

    def sync(
        self, group_id: str, request: SyncRequest, waiter: Callable[[SyncResult], None]
    ) -> None:
        """SyncGroup; ``waiter`` gets the result, now or when the leader has assigned."""
        self._require(group_id)
        entry = self._entries.get(group_id)
        if entry is None:
            waiter(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self._footprint.require_room(group_id, sum(map(len, request.assignments.values())))
        self._carry_out(entry, entry.group.sync(request, waiter, self._now_ms()))

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Heartbeat; extends a session, so no timer needs to be set anew."""
        self._require(group_id)
        entry = self._entries.get(group_id)
        if entry is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return entry.group.heartbeat(member_id, group_instance_id, generation_id, self._now_ms())

    def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """LeaveGroup of (member id, instance id) pairs; one code each."""
        self._require(group_id)
        entry = self._entries.get(group_id)
        codes = []
        for member_id, instance in members:
            if entry is None:
                codes.append(ErrorCode.UNKNOWN_MEMBER_ID)
                continue
            code, effects = entry.group.leave(member_id, instance, self._now_ms())
            codes.append(code)
            self._carry_out(entry, effects)
        return codes

    # -- offsets -----------------------------------------------------------------------------

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

        ``unknown_group`` is what a member of a group that is not there is told. ``producer``
        (TxnOffsetCommit): they count when its transaction commits.
        """
        self._require_well(group_id)
        entry = self._entries.get(group_id)
        if entry is None:
            if generation_id >= 0:
                return dict.fromkeys(offsets, unknown_group)
            self._footprint.require_room(group_id, 0)
            entry = self._entry_or_new(group_id)
        error = entry.group.commit_allowed(
            member_id,
            group_instance_id,
            generation_id,
            self._now_ms(),
            transactional=producer is not None,
        )
        if error is not ErrorCode.NONE:
            return dict.fromkeys(offsets, error)
        codes = {place: self._check_metadata(offset) for place, offset in offsets.items()}
        good = {place: offsets[place] for place, code in codes.items() if code is ErrorCode.NONE}
        if good:
            before = {place: entry.offsets[place] for place in good if place in entry.offsets}
            more = footprint.of_offsets(good) - footprint.of_offsets(before)
            if more > 0:
                self._footprint.require_room(group_id, more)
            try:
                self._store.write(
                    group_id,
                    [(OffsetKey(group_id, *place), offset) for place, offset in good.items()],
                    producer,
                )
            except KafkaError as failure:
                return {**codes, **dict.fromkeys(good, _commit_error(failure.code))}
            if producer is not None:
                self._pending.add(producer[0], group_id, good)
            else:
                entry.offsets.update(good)
                self._pending.supersede(group_id, good)
            self._footprint.note_offsets(group_id, more)
            self._metrics.offset_commits.inc(len(good))
        return codes

    def _check_metadata(self, offset: CommittedOffset) -> ErrorCode:
        if len(offset.metadata) > self._limits.offset_metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The offsets of a group; empty for one that nobody knows (that is not an error)."""
        self._require_well(group_id)
        entry = self._entries.get(group_id)
        return entry.offsets if entry is not None else {}

    def undecided(self, group_id: str) -> set[TopicPartition]:
        """Where a transaction is open that may soon commit another offset of a group."""
        return self._pending.places(group_id) if self._pending.has_group(group_id) else set()

    def transaction_decided(self, partition: int, producer_id: int, is_commit: bool) -> None:
        """The marker of a producer's transaction is in a partition of the internal topic."""
        store = self._store
        decided = self._pending.decide(
            producer_id, commit=is_commit, is_here=lambda g: store.partition_of(g) == partition
        )
        for group_id, offsets in decided.items():
            self._entry_or_new(group_id).offsets.update(offsets)

    def delete_offsets(
        self, group_id: str, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """OffsetDelete: of partitions whose topic no member subscribes to. KafkaError."""
        self._require_well(group_id)
        entry = self._entries.get(group_id)
        if entry is None or entry.group.state is GroupState.DEAD:
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

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: its offsets mean nothing to a topic that takes its name later."""
        for entry in self._entries.values():
            places = entry.offsets.keys() | self._pending.places(entry.group.group_id)
            self._drop(entry, [place for place in places if place[0] == topic])

    def _drop(self, entry: _Entry, places: Iterable[TopicPartition]) -> None:
        group_id = entry.group.group_id
        known = [p for p in places if p in entry.offsets or self._pending.has(group_id, p)]
        if known:
            self._store.write(group_id, [(OffsetKey(group_id, *place), None) for place in known])
            for place in known:
                offset = entry.offsets.pop(place, None)
                if offset is not None:
                    self._footprint.note_offsets(group_id, -footprint.of_offset(offset))
            self._pending.drop(group_id, known)

    def expire(self) -> None:
        """Drop offsets whose time is over (KIP-211), and groups that nothing is left of.

        Of an empty group: when it has been empty, and the offset has not been renewed, for the
        retention time. Of a stable group of consumers: when the topic is not subscribed to any
        more and the offset has not been renewed. Of simple consumers: when it has not been
        renewed. A retention time that an old client gave (OffsetCommit v2-v4) counts instead.
        """
        for entry in list(self._entries.values()):
            group_id = entry.group.group_id
            if self._store.problem(group_id) is not ErrorCode.NONE:
                continue
            expired = self._expired(entry)
            self._drop(entry, expired)
            self._metrics.offsets_expired.inc(len(expired))
            if (
                entry.group.state is GroupState.EMPTY
                and not entry.offsets
                and not entry.group.pending
                and not self._pending.has_group(group_id)
            ):
                if entry.state_timestamp_ms >= 0:
                    self._store.write(group_id, [(GroupKey(group_id), None)])
                self._remove(entry)
        self._recount()

    def _expired(self, entry: _Entry) -> list[TopicPartition]:
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
        oldest_ms = now_ms - self._limits.offsets_retention_ms
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

    # -- admin -------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        """All groups that there are, of partitions that could be read."""
        return [
            entry.group
            for group_id, entry in self._entries.items()
            if entry.group.state is not GroupState.DEAD
            and self._store.problem(group_id) is ErrorCode.NONE
        ]

    def group(self, group_id: str) -> Group | None:
        """One of them. KafkaError."""
        self._require_well(group_id)
        entry = self._entries.get(group_id)
        return entry.group if entry is not None else None

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups of one group, with its offsets."""
        problem = self._store.problem(group_id)
        if problem is not ErrorCode.NONE:
            return problem
        entry = self._entries.get(group_id)
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if entry.group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        places = entry.offsets.keys() | self._pending.places(group_id)
        tombstones: list[Change] = [(OffsetKey(group_id, *place), None) for place in places]
        try:
            self._store.write(group_id, [*tombstones, (GroupKey(group_id), None)])
        except KafkaError as failure:
            return _commit_error(failure.code)
        entry.group.delete()
        self._pending.drop_group(group_id)
        self._remove(entry)
        return ErrorCode.NONE

    # -- mechanics ---------------------------------------------------------------------------

    def _require(self, group_id: str) -> None:
        """Refuse what nobody may ask: no group, or one whose records cannot be read. That one is
        not unknown, and its offsets are not -1 (or its consumers would begin anew)."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        self._require_well(group_id)

    def _require_well(self, group_id: str) -> None:
        problem = self._store.problem(group_id)
        if problem is not ErrorCode.NONE:
            raise KafkaError(problem)

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000.0

    def _entry_or_new(self, group_id: str) -> _Entry:
        entry = self._entries.get(group_id)
        if entry is None:
            group = Group(group_id, self._group_limits)
            entry = self._entries[group_id] = _Entry(group)
            self._footprint.note_members(group_id, 0, 0)
        return entry

    def _remove(self, entry: _Entry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
        del self._entries[entry.group.group_id]
        self._footprint.forget(entry.group.group_id)

    def _carry_out(self, entry: _Entry, effects: list[Effect]) -> None:
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            if isinstance(effect, Answer):
                effect.deliver()
            else:
                queue.extend(self._store_group(entry))
        group = entry.group
        self._footprint.note_members(group.group_id, group.roster.size, len(group.pending))
        self._note_change(entry)
        self._reschedule(entry)

    def _note_change(self, entry: _Entry) -> None:
        """Say in the log what became of a group; who wonders about a rebalance finds it there."""
        group = entry.group
        now = (group.state, group.generation_id)
        joined, left = group.roster.take_changes()
        if now == entry.noted and not joined and not left:
            return
        if group.generation_id != entry.noted[1]:
            self._metrics.rebalances.inc()
        entry.noted = now
        _logger.info(
            "group %s is %s in generation %d with %d members%s%s",
            group.group_id,
            group.state,
            group.generation_id,
            len(group.members),
            f"; joined: {', '.join(joined)}" if joined else "",
            f"; gone: {', '.join(left)}" if left else "",
        )

    def _store_group(self, entry: _Entry) -> list[Effect]:
        group = entry.group
        timestamp_ms = self._clock.now_ms()
        try:
            self._store.write(
                group.group_id, [(GroupKey(group.group_id), group.stored(timestamp_ms))]
            )
        except KafkaError as failure:
            _logger.warning("group %s is not stored: %s", group.group_id, failure)
            return group.store_failed(_store_error(failure.code), self._now_ms())
        entry.state_timestamp_ms = timestamp_ms
        return group.assignment_stored(self._now_ms())

    def _reschedule(self, entry: _Entry) -> None:
        """Have the group's next deadline seen to; an earlier call than needed only looks again."""
        if entry.timer is not None and not entry.group.may_be_due_before(entry.timer_at_ms):
            return
        deadline_ms = entry.group.next_deadline_ms()
        if deadline_ms is None:
            if entry.timer is not None:
                entry.timer.cancel()
                entry.timer = None
            return
        if entry.timer is not None:
            if entry.timer_at_ms <= deadline_ms:
                return
            entry.timer.cancel()
        entry.timer_at_ms = deadline_ms
        entry.timer = self._timers.call_at(deadline_ms / 1000.0, lambda: self._tick(entry))

    def _tick(self, entry: _Entry) -> None:
        entry.timer = None
        members = len(entry.group.members)
        effects = entry.group.tick(max(self._now_ms(), entry.timer_at_ms))
        self._metrics.members_expired.inc(members - len(entry.group.members))
        self._carry_out(entry, effects)


def _store_error(code: ErrorCode) -> ErrorCode:
    """What a member is told when its group cannot be written: too large is nobody's format."""
    error = _commit_error(code)
    return (
        ErrorCode.UNKNOWN_SERVER_ERROR if error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE else error
    )


def _commit_error(code: ErrorCode) -> ErrorCode:
    """What a client is told when the internal topic cannot be written (as Kafka maps it)."""
    if code in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR}:
        return ErrorCode.NOT_COORDINATOR
    if code in {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
    }:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if code in {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
