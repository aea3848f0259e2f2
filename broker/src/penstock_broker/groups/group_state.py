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

import math
from collections.abc import Callable
from dataclasses import replace

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import (
    Answer,
    Effect,
    GroupLimits,
    JoinedMember,
    JoinRequest,
    JoinResult,
    Member,
    Returned,
    Store,
    StoredGroup,
    SyncRequest,
    SyncResult,
    select_protocol,
)
from penstock_broker.groups.roster import Roster
from penstock_broker.groups.states import ANSWERS, TRANSITIONS, Event, GroupState, Request

CONSUMER_PROTOCOL_TYPE = "consumer"
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class Group:
    """One consumer group: its members, its generation, and the requests that wait."""

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = Roster()
        self._unsynced: set[str] = set()
        self._sync_deadline_ms: float | None = None
        self._join_deadline_ms: float | None = None
        self._initial_delay_left_ms: float | None = None  # not None: nobody ends the join early
        self._member_added = False
        self._awaits_pending = True  # whether ids handed out keep the join open
        self._returned: list[Returned] = []
        self._effects: list[Effect] = []
        self._waiting_joins = 0
        self._earliest_ms = math.inf  # no deadline is before it

    # -- questions ---------------------------------------------------------------------------

    @property
    def members(self) -> dict[str, Member]:
        """The members by id, in the order in which they joined."""
        return self.roster.members

    @property
    def static_ids(self) -> dict[str, str]:
        """Member ids by ``group.instance.id``."""
        return self.roster.static_ids

    @property
    def pending(self) -> dict[str, float]:
        """Ids handed out but not yet used -> when they end (ms)."""
        return self.roster.pending

    @property
    def leader(self) -> str | None:
        """The member that assigns."""
        return self.roster.leader

    def may_be_due_before(self, at_ms: float) -> bool:
        """Whether :meth:`next_deadline_ms`, which looks at every member, may be earlier."""
        return self._earliest_ms < at_ms

    def next_deadline_ms(self) -> float | None:
        """When :meth:`tick` has something to do next; None when nothing is due, ever."""
        deadlines = [m.deadline_ms for m in self.members.values() if self._can_expire(m)]
        deadlines += self.pending.values()
        deadlines += [d for d in (self._join_deadline_ms, self._sync_deadline_ms) if d is not None]
        found = min(deadlines, default=None)
        self._earliest_ms = math.inf if found is None else found
        return found

    def subscribed_topics_of(self, parse: Callable[[bytes], set[str] | None]) -> set[str] | None:
        """Topics that the members name, by ``parse`` of their metadata; None when unknown."""
        if not self.members or self.protocol_type != CONSUMER_PROTOCOL_TYPE:
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
            self._refuse_join(request, waiter, error, now_ms)
        elif not request.member_id:
            self._join_first(request, waiter, now_ms)
        elif request.member_id in self.pending and request.group_instance_id is None:
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
        self._end_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = waiter
        if member_id == self.leader:
            self.roster.assign(request.assignments)
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
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        now_ms: float,
        *,
        transactional: bool = False,
    ) -> ErrorCode:
        """Whether this member may commit offsets now; counts as a sign of life.

        Generation -1 without a member is the "simple" consumer: only while the group is empty. In
        a transaction it is an old client's (TxnOffsetCommit v0-v2), whose group is not looked at.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation_id < 0 and not member_id and group_instance_id is None:
            return ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._refusal(member_id, group_instance_id, generation_id)
        if error is not ErrorCode.NONE or transactional:
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
        error = self.roster.identity_error(member_id, group_instance_id)
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
        """The group could not be written: those who wait are told, and join again."""
        returned, self._returned = self._returned, []
        for each in returned:
            self._rename(each.member, each.before.member_id)
            self.roster.describe(each.member, each.before)
            self._answer(each.waiter, JoinResult(error))
        if self.state is GroupState.COMPLETING:
            self._fail_assignment(error, now_ms)
            self._maybe_rebalance(now_ms)
        return self._take_effects()

    def assignment_stored(self, now_ms: float) -> list[Effect]:
        """The group is on disk: hand out the assignment, or the place of who has come back."""
        returned, self._returned = self._returned, []
        for each in returned:
            self._answer(each.waiter, each.result)
        if self.state is GroupState.COMPLETING:
            self._sync_deadline_ms = self._sync_deadline_ms if self._unsynced else None
            self._move(Event.ASSIGNED)
            for member in self.members.values():
                if self._end_sync(member, self._sync_result(member)):
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
        self.roster.fill(stored.members, stored.leader)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        for member in stored.members:
            self._touch(member, now_ms)
        if len(self.members) > self.limits.size_max:
            self._maybe_rebalance(now_ms)  # the setting was lowered: not all can come back

    # -- joining -----------------------------------------------------------------------------

    def _refusal_of_join(self, request: JoinRequest) -> ErrorCode:
        if not self.limits.allow_session(request.session_timeout_ms):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        joining = self.state is GroupState.PREPARING
        if not self.roster.has_room_for(request.member_id, self.limits.size_max, joining=joining):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if (self.members and request.protocol_type != self.protocol_type) or not (
            request.protocol_type and self.roster.supports(request.protocols)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _refuse_join(
        self,
        request: JoinRequest,
        waiter: Callable[[JoinResult], None],
        error: ErrorCode,
        now_ms: float,
    ) -> None:
        self._answer(waiter, JoinResult(error, request.member_id))
        member = self.members.get(request.member_id)
        if member is not None and error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self._remove(member, now_ms)
        elif self.pending.pop(request.member_id, None) is not None:
            self._maybe_complete_join(now_ms)

    def _join_first(
        self, request: JoinRequest, waiter: Callable[[JoinResult], None], now_ms: float
    ) -> None:
        instance = request.group_instance_id
        if instance is not None and instance in self.static_ids:
            self._replace_static(request, waiter, now_ms)
        elif instance is None and request.require_known_member_id:
            self.pending[request.new_member_id] = self._due(now_ms + request.session_timeout_ms)
            self._answer(waiter, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
        else:
            self._add_member(request.new_member_id, request, waiter, now_ms)

    def _join_again(
        self, request: JoinRequest, waiter: Callable[[JoinResult], None], now_ms: float
    ) -> None:
        error = self.roster.identity_error(request.member_id, request.group_instance_id)
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
        self._await_join(member, waiter)
        self._maybe_rebalance(now_ms)
        self._maybe_complete_join(now_ms)

    def _add_member(
        self,
        member_id: str,
        request: JoinRequest,
        waiter: Callable[[JoinResult], None],
        now_ms: float,
    ) -> None:
        member = Member.of(member_id, request)
        self._await_join(member, waiter)
        member.is_new = True
        member.deadline_ms = self._due(now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        if not self.members:
            self.protocol_type = request.protocol_type
        self.roster.add(member)
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
        self._end_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._end_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        before = replace(member)
        self._rename(member, request.new_member_id)
        self._update(member, request, now_ms)
        if (
            self.state is GroupState.STABLE
            and select_protocol(self.members.values()) == self.protocol_name
        ):
            result = self._result_for_returned(member, before, request)
            self._returned.append(Returned(waiter, result, member, before))
            self._effects.append(Store())
            return
        self._await_join(member, waiter)
        self._maybe_rebalance(now_ms)
        self._maybe_complete_join(now_ms)

    def _result_for_returned(
        self, member: Member, before: Member, request: JoinRequest
    ) -> JoinResult:
        if self.leader != member.member_id:
            return self._join_result(member)
        if request.supports_skipping_assignment:
            return self._join_result(member, skip_assignment=True)
        # Not told that it leads, or it would assign anew without a rebalance (KIP-345).
        return self._join_result(member, leader=before.member_id)

    def _rename(self, member: Member, new_id: str) -> None:
        if member.member_id in self._unsynced:
            self._unsynced.discard(member.member_id)
            self._unsynced.add(new_id)
        self.roster.rename(member, new_id)

    def _update(self, member: Member, request: JoinRequest, now_ms: float) -> None:
        self.roster.describe(member, request)
        if not member.is_new:
            self._touch(member, now_ms)

    def _join_result(
        self, member: Member, *, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinResult:
        leader = leader if leader is not None else (self.leader or "")
        protocol = self.protocol_name
        members: tuple[JoinedMember, ...] = ()
        if leader == member.member_id and protocol is not None:
            members = self.roster.described(protocol)
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
            self._fail_assignment(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        rebalance_timeout_ms = self.roster.rebalance_timeout_ms()
        # As in Kafka, the first join of a group does not wait for those who only have an id.
        self._awaits_pending = self.state is not GroupState.EMPTY
        delay_ms = min(self.limits.initial_rebalance_delay_ms, rebalance_timeout_ms)
        if self.state is GroupState.EMPTY and delay_ms > 0:
            self._initial_delay_left_ms = max(0, rebalance_timeout_ms - delay_ms)
            self._member_added = False
            self._join_deadline_ms = self._due(now_ms + delay_ms)
        else:
            self._initial_delay_left_ms = None
            self._join_deadline_ms = self._due(now_ms + rebalance_timeout_ms)
        self._unsynced.clear()
        self._sync_deadline_ms = None
        self._move(Event.REBALANCE)

    def _maybe_complete_join(self, now_ms: float) -> None:
        """End the join as soon as everybody is there (never before the initial delay)."""
        if (
            self.state is GroupState.PREPARING
            and self._initial_delay_left_ms is None
            and not (self.pending and self._awaits_pending)
            and self._waiting_joins == len(self.members)
        ):
            self._complete_join(now_ms)

    def _join_timed_out(self, now_ms: float) -> None:
        left_ms = self._initial_delay_left_ms
        if left_ms is not None and left_ms > 0 and self._member_added:
            # Members are still arriving: wait again, within the rebalance timeout.
            delay_ms = min(self.limits.initial_rebalance_delay_ms, left_ms)
            self._member_added = False
            self._initial_delay_left_ms = left_ms - delay_ms
            self._join_deadline_ms = self._due(now_ms + delay_ms)
            return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: float) -> None:
        self._initial_delay_left_ms = None
        self._join_deadline_ms = None
        for member in list(self.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                self._forget(member)
        if self.members and not self.roster.elect_leader():
            # Only static members who are away: their sessions, not the join, decide (KAFKA-8220).
            timeout_ms = max(1, self.roster.rebalance_timeout_ms())
            self._join_deadline_ms = self._due(now_ms + timeout_ms)
            return
        self.generation_id += 1
        if not self.members:
            self.protocol_name = None
            self._move(Event.EMPTIED)
            self._effects.append(Store())
            return
        self.protocol_name = select_protocol(self.members.values())
        self._move(Event.GENERATION)
        self._unsynced = set(self.members)
        self._sync_deadline_ms = self._due(now_ms + self.roster.rebalance_timeout_ms())
        for member in self.members.values():
            if member.awaiting_join is not None:
                self._end_join(member, self._join_result(member))
                member.is_new = False
                self._touch(member, now_ms)

    def _fail_assignment(self, error: ErrorCode, now_ms: float) -> None:
        self.roster.assign({})
        for member in self.members.values():
            if self._end_sync(member, SyncResult(error)):
                self._touch(member, now_ms)

    def _sync_result(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    # -- members -----------------------------------------------------------------------------

    def _refusal(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.roster.identity_error(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation_id != self.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        return error

    def _can_expire(self, member: Member) -> bool:
        if member.is_new:
            return True
        return member.awaiting_join is None and member.awaiting_sync is None

    def _touch(self, member: Member, now_ms: float) -> None:
        member.deadline_ms = self._due(now_ms + member.session_timeout_ms)

    def _due(self, deadline_ms: float) -> float:
        """Every deadline goes through here, so that the earliest is known without a search."""
        self._earliest_ms = min(self._earliest_ms, deadline_ms)
        return deadline_ms

    def _forget(self, member: Member) -> None:
        """Take a member out; what it waited for is answered."""
        self.roster.remove(member)
        self._unsynced.discard(member.member_id)
        self._end_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        self._end_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def _remove(self, member: Member, now_ms: float) -> None:
        self._forget(member)
        self._maybe_rebalance(now_ms)
        self._maybe_complete_join(now_ms)

    def _await_join(self, member: Member, waiter: Callable[[JoinResult], None]) -> None:
        """Keep a join open. If the client asked before, on another connection, that request must
        not hang."""
        self._end_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.awaiting_join = waiter
        self._waiting_joins += 1

    def _end_join(self, member: Member, result: JoinResult) -> None:
        waiter, member.awaiting_join = member.awaiting_join, None
        if waiter is not None:
            self._waiting_joins -= 1
            self._answer(waiter, result)

    def _end_sync(self, member: Member, result: SyncResult) -> bool:
        """Answer a sync, if one waits."""
        waiter, member.awaiting_sync = member.awaiting_sync, None
        if waiter is None:
            return False
        self._answer(waiter, result)
        return True

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
