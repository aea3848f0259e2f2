"""The group coordinator: members that join, sync, prove to be alive and leave; and time.

The rules are in :mod:`.group_state`; this carries out their effects (answers, writes to the
internal topic, timers). The groups are in a :class:`~.directory.GroupDirectory`, what they have
committed is in :mod:`.committed_offsets`. Everything runs in the event loop. What is in memory is
exactly what a replay of the internal topic gives, plus sessions, which start over after a start.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from penstock_broker.clock import Clock, Timers
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups import footprint
from penstock_broker.groups.committed_offsets import CommittedOffsets, OffsetLimits
from penstock_broker.groups.directory import Entry, GroupDirectory
from penstock_broker.groups.group_state import Group
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
from penstock_broker.groups.offset_records import CommittedOffset, GroupKey
from penstock_broker.groups.pending_offsets import Decision, PendingChange
from penstock_broker.groups.states import GroupState
from penstock_broker.groups.store import Change, GroupStore, commit_error, store_error
from penstock_broker.metrics import Metrics

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoordinatorLimits:
    """Settings beside those of the groups themselves."""

    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 604_800_000
    groups_max: int = 100_000
    bytes_max: int = 256 << 20


class GroupCoordinator:
    """All groups of this broker; ``offsets`` are what they have committed."""

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
        self._metrics = metrics or Metrics()
        self._new_id = new_id
        self._directory = GroupDirectory(store, group_limits, limits.groups_max, limits.bytes_max)
        self.offsets = CommittedOffsets(
            self._directory,
            store,
            clock,
            OffsetLimits(limits.offset_metadata_bytes_max, limits.offsets_retention_ms),
            self._metrics,
        )

    # -- start -------------------------------------------------------------------------------

    def load(self, changes: Iterable[Change | PendingChange | Decision]) -> None:
        """Take over what the internal topic says, in the order in which it was written."""
        stored: dict[str, StoredGroup] = {}
        for change in changes:
            if isinstance(change, Decision):
                self.offsets.transaction_decided(*change)
                continue
            if isinstance(change, PendingChange):
                self.offsets.load_pending(change)
                continue
            key, value = change
            if not isinstance(key, GroupKey):
                self.offsets.load(key, value if isinstance(value, CommittedOffset) else None)
            elif isinstance(value, StoredGroup):
                stored[key.group] = value
            else:
                stored.pop(key.group, None)
        directory = self._directory
        for group_id, group in stored.items():
            entry = directory.find_or_add(group_id)
            entry.state_timestamp_ms = group.state_timestamp_ms
            entry.group.restore(group, self._now_ms())
            entry.recorded = (entry.group.state, entry.group.generation_id)
            self._reschedule(entry)
        for group_id, entry in list(directory.entries.items()):
            if group_id not in stored and self.offsets.has_none(entry):
                directory.remove(entry)
        directory.recount()

    # -- membership --------------------------------------------------------------------------

    def join(
        self, group_id: str, request: JoinRequest, waiter: Callable[[JoinResult], None]
    ) -> None:
        """JoinGroup; ``waiter`` gets the result, now or when the generation begins."""
        entry = self._find(group_id)
        if entry is None and request.member_id:
            waiter(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return
        known = entry.group.members.get(request.member_id) if entry is not None else None
        self._directory.footprint.require_space(group_id, footprint.of_join(request, known))
        if entry is None:
            entry = self._directory.find_or_add(group_id)
        if not request.member_id:
            prefix = request.group_instance_id or request.client_id
            request = replace(request, new_member_id=f"{prefix}-{self._new_id()}")
        self._carry_out(entry, entry.group.join(request, waiter, self._now_ms()))

    def sync(
        self, group_id: str, request: SyncRequest, waiter: Callable[[SyncResult], None]
    ) -> None:
        """SyncGroup; ``waiter`` gets the result, now or when the leader has assigned."""
        entry = self._find(group_id)
        if entry is None:
            waiter(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self._directory.footprint.require_space(
            group_id, sum(map(len, request.assignments.values()))
        )
        self._carry_out(entry, entry.group.sync(request, waiter, self._now_ms()))

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Heartbeat; extends a session, so no timer needs to be set again."""
        entry = self._find(group_id)
        if entry is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return entry.group.heartbeat(member_id, group_instance_id, generation_id, self._now_ms())

    def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """LeaveGroup of (member id, instance id) pairs; one code each."""
        entry = self._find(group_id)
        codes = []
        for member_id, instance in members:
            if entry is None:
                codes.append(ErrorCode.UNKNOWN_MEMBER_ID)
                continue
            code, effects = entry.group.leave(member_id, instance, self._now_ms())
            codes.append(code)
            self._carry_out(entry, effects)
        return codes

    # -- time --------------------------------------------------------------------------------

    def expire(self) -> None:
        """Drop offsets whose time is over, and groups that nothing is left of. What cannot be
        written is tried again the next time."""
        for group_id, entry in list(self._directory.entries.items()):
            if self._store.problem(group_id) is not ErrorCode.NONE:
                continue
            try:
                self._expire(entry)
            except KafkaError as failure:
                _logger.warning("group %s does not expire yet: %s", group_id, failure)
        self._directory.recount()

    def _expire(self, entry: Entry) -> None:
        self.offsets.expire(entry)
        group = entry.group
        if group.state is GroupState.EMPTY and not group.pending and self.offsets.has_none(entry):
            if entry.state_timestamp_ms >= 0:
                self._store.write(group.group_id, [(GroupKey(group.group_id), None)])
            self._directory.remove(entry)

    # -- admin -------------------------------------------------------------------------------

    def groups(self) -> list[Group]:
        """All groups that there are, of partitions that could be read."""
        return [
            entry.group
            for group_id, entry in self._directory.entries.items()
            if self._store.problem(group_id) is ErrorCode.NONE
        ]

    def group(self, group_id: str) -> Group | None:
        """One of them. KafkaError."""
        entry = self._directory.find(group_id)
        return entry.group if entry is not None else None

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups of one group, with its offsets."""
        problem = self._store.problem(group_id)
        if problem is not ErrorCode.NONE:
            return problem
        entry = self._directory.entries.get(group_id)
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if entry.group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        tombstones: list[Change] = [(key, None) for key in self.offsets.keys_of(entry)]
        try:
            self._store.write(group_id, [*tombstones, (GroupKey(group_id), None)])
        except KafkaError as failure:
            return commit_error(failure.code)
        entry.group.delete()
        self.offsets.remove_group(group_id)
        self._directory.remove(entry)
        return ErrorCode.NONE

    # -- mechanics ---------------------------------------------------------------------------

    def _find(self, group_id: str) -> Entry | None:
        """A group that there is. KafkaError INVALID_GROUP_ID for no id at all, and as
        :meth:`.GroupDirectory.require_well`."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._directory.find(group_id)

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000.0

    def _carry_out(self, entry: Entry, effects: list[Effect]) -> None:
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            if isinstance(effect, Answer):
                effect.deliver()
            else:
                queue.extend(self._store_group(entry))
        self._directory.record_members(entry)
        self._record_change(entry)
        self._reschedule(entry)

    def _record_change(self, entry: Entry) -> None:
        """Log a change of a group, with the members that caused a rebalance."""
        group = entry.group
        now = (group.state, group.generation_id)
        joined, left = group.roster.take_changes()
        if now == entry.recorded and not joined and not left:
            return
        if group.generation_id != entry.recorded[1]:
            self._metrics.rebalances.inc()
        entry.recorded = now
        _logger.info(
            "group %s is %s in generation %d with %d members%s%s",
            group.group_id,
            group.state,
            group.generation_id,
            len(group.members),
            f"; joined: {', '.join(joined)}" if joined else "",
            f"; gone: {', '.join(left)}" if left else "",
        )

    def _store_group(self, entry: Entry) -> list[Effect]:
        group = entry.group
        timestamp_ms = self._clock.now_ms()
        try:
            self._store.write(
                group.group_id, [(GroupKey(group.group_id), group.stored(timestamp_ms))]
            )
        except KafkaError as failure:
            _logger.warning("group %s is not stored: %s", group.group_id, failure)
            return group.store_failed(store_error(failure.code), self._now_ms())
        entry.state_timestamp_ms = timestamp_ms
        return group.assignment_stored(self._now_ms())

    def _reschedule(self, entry: Entry) -> None:
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

    def _tick(self, entry: Entry) -> None:
        entry.timer = None
        members = len(entry.group.members)
        effects = entry.group.tick(max(self._now_ms(), entry.timer_at_ms))
        self._metrics.members_expired.inc(members - len(entry.group.members))
        self._carry_out(entry, effects)
