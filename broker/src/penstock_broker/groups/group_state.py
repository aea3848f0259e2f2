"""The consumer group as a pure state machine: (state, event, now) -> answers.

No clock, no I/O, no randomness: every method takes ``now_ms`` (any steady clock) and what
happened, and returns the :class:`~.members.Effect` list to carry out, in order. The caller asks
:meth:`Group.next_deadline_ms` when to call :meth:`Group.tick`.

The tables of :mod:`~.states` say where an event leads and what a request is told. The rules are
those of Kafka 3.9's classic ``GroupCoordinator``: MEMBER_ID_REQUIRED (KIP-394), static members
(KIP-345, KIP-814), a bounded wait for syncs, and the initial rebalance delay.

Rule 1: an awaiting request is answered exactly once; whoever takes it out answers it.
Rule 2: a member that waits in a join or sync does not expire; its session begins with its answer.
Rule 3: after a ``Store`` effect the caller reports :meth:`Group.assignment_stored` or
:meth:`Group.store_failed`; nobody learns an assignment that is not on disk.
Rule 4: every departure in PreparingRebalance may complete the join (streamnative/kop#380).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import (
    Answer,
    Effect,
    GroupLimits,
    JoinedMember,
    JoinRequest,
    JoinResult,
    Member,
    Store,
    StoredGroup,
    SyncRequest,
    SyncResult,
    common_protocols,
    select_protocol,
)
from penstock_broker.groups.states import ANSWERS, TRANSITIONS, Event, GroupState, Request

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
# Ids handed out and not used: bounded, because anybody may ask for one without joining.
PENDING_MEMBERS_MAX = 10_000


class Group:
    """One consumer group: its members, its generation, and the requests that wait."""

    def __init__(self, group_id: str, limits: GroupLimits, now_ms: float) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}  # group.instance.id -> member id
        self.pending: dict[str, float] = {}  # ids handed out but not yet used -> deadline
        self.empty_since_ms = now_ms
        self._unsynced: set[str] = set()
        self._sync_deadline_ms: float | None = None
        self._join_deadline_ms: float | None = None
        self._initial_delay_left_ms: float | None = None  # not None: nobody ends the join early
        self._member_added = False
        self._effects: list[Effect] = []

    # -- questions ---------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        """When :meth:`tick` has something to do next; None when nothing is due, ever."""
        deadlines = [m.deadline_ms for m in self.members.values() if self._can_expire(m)]
        deadlines += self.pending.values()
        deadlines += [d for d in (self._join_deadline_ms, self._sync_deadline_ms) if d is not None]
        return min(deadlines, default=None)

    def subscribed_topics_of(self, parse: Callable[[bytes], set[str] | None]) -> set[str] | None:
        """Topics that the members name, by ``parse`` of their metadata; None when unknown."""
        if self.state is GroupState.EMPTY:
            return set()
        if self.protocol_name is None:
            return None
        found = [parse(m.metadata(self.protocol_name)) for m in self.members.values()]
        known = [topics for topics in found if topics is not None]
        return set().union(*known) if len(known) == len(found) else None

    def stored(self, state_timestamp_ms: int) -> StoredGroup:
        """The part that is written to the log."""
        return StoredGroup(
            self.protocol_type,
            self.generation_id,
            self.protocol_name,
            self.leader,
            state_timestamp_ms,
            list(self.members.values()),
        )

    # -- requests ----------------------------------------------------------------------------

    def join(
        self, request: JoinRequest, waiter: Callable[[JoinResult], None], now_ms: float
    ) -> list[Effect]:
        """JoinGroup. ``waiter`` is answered now or when the generation begins."""
        error = self._refusal_of_join(request)
        if error is not ErrorCode.NONE:
            self._answer(waiter, JoinResult(error, request.member_id))
            if self.pending.pop(request.member_id, None) is not None:
                self._maybe_complete_join(now_ms)
        elif not request.member_id:
            self._join_first(request, waiter, now_ms)
        elif request.member_id in self.pending:
            self._add_member(request.member_id, request, waiter, now_ms)
        else:
            self._join_again(request, waiter, now_ms)
        return self._take_effects()

    def sync(
        self, request: SyncRequest, waiter: Callable[[SyncResult], None], now_ms: float
    ) -> list[Effect]:
        """SyncGroup. The leader's brings the assignment; the others wait for it."""
        member_id = request.member_id
        error = self._refusal(member_id, request.group_instance_id, request.generation_id)
        if error is ErrorCode.NONE and not (
            request.protocol_type in {None, self.protocol_type}
            and request.protocol_name in {None, self.protocol_name}
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        error = error or ANSWERS[Request.SYNC][self.state]
        if error is not ErrorCode.NONE:
            self._answer(waiter, SyncResult(error))
            return self._take_effects()
        member = self.members[member_id]
        self._unsynced.discard(member_id)
        if self.state is GroupState.STABLE:
            self._answer(waiter, self._sync_result(member))
            self._touch(member, now_ms)
            return self._take_effects()
        self._supersede_sync(member)
        member.awaiting_sync = waiter
        if member_id == self.leader:
            for each in self.members.values():
                each.assignment = request.assignments.get(each.member_id, b"")
            self._effects.append(Store())
        return self._take_effects()

    def heartbeat(
        self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: float
    ) -> ErrorCode:
        """Heartbeat: prolongs the session, and tells of a rebalance."""
        error = self._refusal(member_id, group_instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        self._touch(self.members[member_id], now_ms)
        return ANSWERS[Request.HEARTBEAT][self.state]

    def commit_allowed(
        self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: float
    ) -> ErrorCode:
        """Whether this member may commit offsets now; counts as a sign of life.

        Generation -1 without a member is the "simple" consumer: only while the group is empty.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation_id < 0 and not member_id and group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._refusal(member_id, group_instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        self._touch(self.members[member_id], now_ms)
        return ANSWERS[Request.COMMIT][self.state]

    def leave(
        self, member_id: str, group_instance_id: str | None, now_ms: float
    ) -> tuple[ErrorCode, list[Effect]]:
        """LeaveGroup of one member, by its id or (an admin's) by its instance id alone."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if member_id in self.pending:
            if group_instance_id is not None:
                return ErrorCode.UNKNOWN_MEMBER_ID, []
            del self.pending[member_id]
            self._maybe_complete_join(now_ms)
            return ErrorCode.NONE, self._take_effects()
        if group_instance_id is not None and not member_id:
            member_id = self.static_ids.get(group_instance_id, "")
        error = self._identity_error(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error, []
        self._remove(self.members[member_id], now_ms)
        return ErrorCode.NONE, self._take_effects()

    def delete(self) -> ErrorCode:
        """DeleteGroups: only an empty group may go."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self._move(Event.DELETED)
        return ErrorCode.NONE

    def store_failed(self, error: ErrorCode, now_ms: float) -> list[Effect]:
        """The assignment could not be written: those who wait are told, and join again."""
        if self.state is GroupState.COMPLETING:
            self._fail_assignment(error)
            self._maybe_rebalance(now_ms)
        return self._take_effects()

    def assignment_stored(self, now_ms: float) -> list[Effect]:
        """The leader's assignment is on disk: hand it out."""
        if self.state is GroupState.COMPLETING:
            self._sync_deadline_ms = self._sync_deadline_ms if self._unsynced else None
            self._move(Event.ASSIGNED)
            for member in self.members.values():
                if member.awaiting_sync is not None:
                    waiter, member.awaiting_sync = member.awaiting_sync, None
                    self._answer(waiter, self._sync_result(member))
                    self._touch(member, now_ms)
        return self._take_effects()

    def tick(self, now_ms: float) -> list[Effect]:
        """Do what is due: sessions, unused member ids, the join's and the syncs' deadlines."""
        for member_id in [m for m, deadline in self.pending.items() if deadline <= now_ms]:
            self.pending.pop(member_id, None)
            self._maybe_complete_join(now_ms)
        for member in list(self.members.values()):
            if (
                member.deadline_ms <= now_ms
                and self.members.get(member.member_id) is member
                and self._can_expire(member)
            ):
                self._remove(member, now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = None
            for member_id in sorted(self._unsynced & self.members.keys()):
                self._remove(self.members[member_id], now_ms)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._join_timed_out(now_ms)
        return self._take_effects()

    def restore(self, stored: StoredGroup, now_ms: float) -> None:
        """Take over what the log says; every member gets a fresh session."""
        self.protocol_type = stored.protocol_type
        self.protocol_name = stored.protocol_name
        self.generation_id = stored.generation_id
        self.leader = stored.leader
        self.members = {member.member_id: member for member in stored.members}
        self.static_ids = {
            m.group_instance_id: m.member_id for m in stored.members if m.group_instance_id
        }
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        for member in stored.members:
            self._touch(member, now_ms)

    # -- joining -----------------------------------------------------------------------------

    def _refusal_of_join(self, request: JoinRequest) -> ErrorCode:
        known = request.member_id in self.members
        limits = self.limits
        if not limits.allow_session(request.session_timeout_ms):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not known and (
            len(self.members) >= limits.size_max or len(self.pending) >= PENDING_MEMBERS_MAX
        ):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _supports(self, request: JoinRequest) -> bool:
        if not request.protocol_type or not request.protocols:
            return False
        others = [m for m in self.members.values() if m.member_id != request.member_id]
        if not others:
            return True
        if request.protocol_type != self.protocol_type:
            return False
        common = common_protocols(others)
        return any(name in common for name, _ in request.protocols)

    def _join_first(
        self, request: JoinRequest, waiter: Callable[[JoinResult], None], now_ms: float
    ) -> None:
        instance = request.group_instance_id
        if instance is not None and instance in self.static_ids:
            self._replace_static(request, waiter, now_ms)
        elif instance is None and request.require_known_member_id:
            self.pending[request.new_member_id] = now_ms + request.session_timeout_ms
            self._answer(waiter, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
        else:
            self._add_member(request.new_member_id, request, waiter, now_ms)

    def _join_again(
        self, request: JoinRequest, waiter: Callable[[JoinResult], None], now_ms: float
    ) -> None:
        error = self._identity_error(request.member_id, request.group_instance_id)
        if error is ErrorCode.NONE and self.state is GroupState.EMPTY:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            self._answer(waiter, JoinResult(error, request.member_id))
            return
        member = self.members[request.member_id]
        unchanged = member.protocols == request.protocols
        lost_answer = self.state is GroupState.COMPLETING and unchanged
        follower = self.state is GroupState.STABLE and member.member_id != self.leader
        if lost_answer or (follower and unchanged):
            self._answer(waiter, self._join_result(member))
            self._touch(member, now_ms)
            return
        self._update(member, request, now_ms)
        self._supersede_join(member)
        member.awaiting_join = waiter
        self._maybe_rebalance(now_ms)
        self._maybe_complete_join(now_ms)

    def _add_member(
        self,
        member_id: str,
        request: JoinRequest,
        waiter: Callable[[JoinResult], None],
        now_ms: float,
    ) -> None:
        self.pending.pop(member_id, None)
        member = Member.of(member_id, request)
        member.awaiting_join = waiter
        member.is_new = True
        member.deadline_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        if not self.members:
            self.protocol_type = request.protocol_type
        if self.leader is None:
            self.leader = member_id
        self.members[member_id] = member
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member_id
        self._member_added = True
        self._maybe_rebalance(now_ms)
        self._maybe_complete_join(now_ms)

    def _replace_static(
        self, request: JoinRequest, waiter: Callable[[JoinResult], None], now_ms: float
    ) -> None:
        """A static member is back under a new id: same place, no rebalance while stable.

        Its description is updated (KAFKA-14009); the old incarnation is fenced. In
        CompletingRebalance a rebalance is needed, because the leader may already be assigning to
        the old id (KAFKA-9801).
        """
        assert request.group_instance_id is not None
        old_id = self.static_ids[request.group_instance_id]
        member = self.members[old_id]
        was_leader = self.leader == old_id
        if member.awaiting_join is not None:
            fenced, member.awaiting_join = member.awaiting_join, None
            self._answer(fenced, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        if member.awaiting_sync is not None:
            fenced_sync, member.awaiting_sync = member.awaiting_sync, None
            self._answer(fenced_sync, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self._rename(member, request.new_member_id)
        self._update(member, request, now_ms)
        if (
            self.state is GroupState.STABLE
            and select_protocol(self.members.values()) == self.protocol_name
        ):
            self._effects.append(Store())
            result = self._join_result(member)
            if was_leader and request.supports_skipping_assignment:
                result = self._join_result(member, skip_assignment=True)
            elif was_leader:
                # Not told that it leads, or it would assign anew without a rebalance (KIP-345).
                result = self._join_result(member, leader=old_id)
            self._answer(waiter, result)
            return
        member.awaiting_join = waiter
        self._maybe_rebalance(now_ms)
        self._maybe_complete_join(now_ms)

    def _rename(self, member: Member, new_id: str) -> None:
        """Give a member a new id in its old place (the order of members decides who leads next)."""
        old_id = member.member_id
        member.member_id = new_id
        self.members = {m.member_id: m for m in self.members.values()}
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self._unsynced:
            self._unsynced.discard(old_id)
            self._unsynced.add(new_id)

    def _update(self, member: Member, request: JoinRequest, now_ms: float) -> None:
        member.describe(request)
        if not member.is_new:
            self._touch(member, now_ms)

    def _join_result(
        self, member: Member, *, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinResult:
        leader = leader if leader is not None else (self.leader or "")
        protocol = self.protocol_name
        members: tuple[JoinedMember, ...] = ()
        if leader == member.member_id and protocol is not None:
            members = tuple(
                JoinedMember(m.member_id, m.group_instance_id, m.metadata(protocol))
                for m in self.members.values()
            )
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            protocol,
            leader,
            members,
            skip_assignment,
        )

    # -- the rebalance -----------------------------------------------------------------------

    def _maybe_rebalance(self, now_ms: float) -> None:
        if Event.REBALANCE not in TRANSITIONS[self.state]:
            return
        if self.state is GroupState.COMPLETING:
            self._fail_assignment(ErrorCode.REBALANCE_IN_PROGRESS)
        rebalance_timeout_ms = self._rebalance_timeout_ms()
        delay_ms = min(self.limits.initial_rebalance_delay_ms, rebalance_timeout_ms)
        if self.state is GroupState.EMPTY and delay_ms > 0:
            self._initial_delay_left_ms = max(0, rebalance_timeout_ms - delay_ms)
            self._member_added = False
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._initial_delay_left_ms = None
            self._join_deadline_ms = now_ms + rebalance_timeout_ms
        self._unsynced.clear()
        self._sync_deadline_ms = None
        self._move(Event.REBALANCE)

    def _rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def _maybe_complete_join(self, now_ms: float) -> None:
        """End the join as soon as everybody is there (never before the initial delay)."""
        if (
            self.state is GroupState.PREPARING
            and self._initial_delay_left_ms is None
            and not self.pending
            and all(m.awaiting_join is not None for m in self.members.values())
        ):
            self._complete_join(now_ms)

    def _join_timed_out(self, now_ms: float) -> None:
        left_ms = self._initial_delay_left_ms
        if left_ms is not None and left_ms > 0 and self._member_added:
            # Members are still arriving: wait again, within the rebalance timeout.
            delay_ms = min(self.limits.initial_rebalance_delay_ms, left_ms)
            self._member_added = False
            self._initial_delay_left_ms = left_ms - delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: float) -> None:
        self._initial_delay_left_ms = None
        self._join_deadline_ms = None
        for member in list(self.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                self._forget(member)
        if self.members and not self._elect_leader():
            # Only static members who are away: their sessions, not the join, decide (KAFKA-8220).
            self._join_deadline_ms = now_ms + max(1, self._rebalance_timeout_ms())
            return
        self.generation_id += 1
        if not self.members:
            self.protocol_name = None
            self.leader = None
            self.empty_since_ms = now_ms
            self._move(Event.EMPTIED)
            self._effects.append(Store())
            return
        self.protocol_name = select_protocol(self.members.values())
        self._move(Event.GENERATION)
        self._unsynced = set(self.members)
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms()
        for member in self.members.values():
            if member.awaiting_join is not None:
                waiter, member.awaiting_join = member.awaiting_join, None
                self._answer(waiter, self._join_result(member))
                member.is_new = False
                self._touch(member, now_ms)

    def _elect_leader(self) -> bool:
        """Keep the leader if it has joined, else take the first who has; False when none has."""
        current = self.members.get(self.leader or "")
        if current is not None and current.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    def _fail_assignment(self, error: ErrorCode) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.awaiting_sync is not None:
                waiter, member.awaiting_sync = member.awaiting_sync, None
                self._answer(waiter, SyncResult(error))

    def _sync_result(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    # -- members -----------------------------------------------------------------------------

    def _refusal(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._identity_error(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation_id != self.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        return error

    def _identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        if group_instance_id is not None:
            current = self.static_ids.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _can_expire(self, member: Member) -> bool:
        if member.is_new:
            return True
        return member.awaiting_join is None and member.awaiting_sync is None

    def _touch(self, member: Member, now_ms: float) -> None:
        member.deadline_ms = now_ms + member.session_timeout_ms

    def _forget(self, member: Member) -> None:
        """Take a member out; what it waited for is answered."""
        del self.members[member.member_id]
        self._unsynced.discard(member.member_id)
        instance = member.group_instance_id
        if instance is not None and self.static_ids.get(instance) == member.member_id:
            del self.static_ids[instance]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        if member.awaiting_join is not None:
            waiter, member.awaiting_join = member.awaiting_join, None
            self._answer(waiter, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        if member.awaiting_sync is not None:
            sync_waiter, member.awaiting_sync = member.awaiting_sync, None
            self._answer(sync_waiter, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def _remove(self, member: Member, now_ms: float) -> None:
        self._forget(member)
        self._maybe_rebalance(now_ms)
        self._maybe_complete_join(now_ms)

    def _supersede_join(self, member: Member) -> None:
        """The client asked again on another connection: the first request must not hang."""
        if member.awaiting_join is not None:
            waiter, member.awaiting_join = member.awaiting_join, None
            self._answer(waiter, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))

    def _supersede_sync(self, member: Member) -> None:
        if member.awaiting_sync is not None:
            waiter, member.awaiting_sync = member.awaiting_sync, None
            self._answer(waiter, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))

    # -- mechanics ---------------------------------------------------------------------------

    def _move(self, event: Event) -> None:
        """Follow the table; a pair that is not in it is a bug of ours, never a client's."""
        try:
            self.state = TRANSITIONS[self.state][event]
        except KeyError:
            raise RuntimeError(
                f"group {self.group_id}: {event.name} cannot happen in {self.state}"
            ) from None

    def _answer(
        self,
        waiter: Callable[[JoinResult], None] | Callable[[SyncResult], None],
        result: JoinResult | SyncResult,
    ) -> None:
        self._effects.append(Answer(waiter, result))

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
