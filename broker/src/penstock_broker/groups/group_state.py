"""The consumer group as a pure state machine: (state, event, now) -> answers.

No clock, no I/O, no randomness: every method takes ``now_ms`` (any steady clock) and what
happened, and returns the :class:`~.members.Effect` list to carry out, in order. The caller asks
:meth:`Group.next_deadline_ms` when to call :meth:`Group.tick`.

The tables of :mod:`~.states` say where an event leads and which error a request gets. The rules are
those of Kafka 3.9's classic ``GroupCoordinator``: MEMBER_ID_REQUIRED (KIP-394), static members
(KIP-345, KIP-814), a bounded wait for syncs, and the initial rebalance delay.

Rule 1: a request that waits is answered exactly once, by the code that removes it.
Rule 2: a member that waits in a join or sync does not expire; its session begins with its answer.
Rule 3: after a ``Store`` effect the caller reports :meth:`Group.assignment_stored` or
:meth:`Group.store_failed`; no member gets an assignment that is not on disk.
Rule 4: every departure in PreparingRebalance may complete the join (streamnative/kop#380).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import (
    Effect,
    GroupLimits,
    JoinRequest,
    JoinResult,
    Member,
    Returned,
    StoredGroup,
    SyncRequest,
    SyncResult,
    select_protocol,
)
from penstock_broker.groups.rebalance import Rebalance
from penstock_broker.groups.roster import Roster
from penstock_broker.groups.states import ANSWERS, Event, GroupState, Request

CONSUMER_PROTOCOL_TYPE = "consumer"


class Group:
    """One consumer group: its members, its generation, and the requests that wait."""

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.rebalance = Rebalance(group_id, limits)
        self._replies = self.rebalance.replies
        self._returned: list[Returned] = []

    # -- questions ---------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        """Its state in Kafka's table of states."""
        return self.rebalance.state

    @property
    def generation_id(self) -> int:
        """The number of the generation; 0 before the first."""
        return self.rebalance.generation_id

    @property
    def protocol_type(self) -> str | None:
        """What kind of members it has (``consumer``, ``connect``)."""
        return self.rebalance.protocol_type

    @property
    def protocol_name(self) -> str | None:
        """The protocol that all members of the generation follow."""
        return self.rebalance.protocol_name

    @property
    def roster(self) -> Roster:
        """The members of the group."""
        return self.rebalance.roster

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
        return self.rebalance.may_be_due_before(at_ms)

    def next_deadline_ms(self) -> float | None:
        """When :meth:`tick` has something to do next; None when nothing is due, ever."""
        return self.rebalance.next_deadline_ms()

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
        return self._replies.take()

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
            self._replies.answer(waiter, SyncResult(error))
            return self._replies.take()
        member = self.members[member_id]
        self.rebalance.record_sync(member_id)
        if self.state is GroupState.STABLE:
            self._replies.answer(waiter, self.rebalance.sync_result(member))
            self.rebalance.touch(member, now_ms)
            return self._replies.take()
        self._replies.await_sync(member, waiter)
        if member_id == self.leader:
            self.roster.assign(request.assignments)
            self._replies.store()
        return self._replies.take()

    def heartbeat(
        self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: float
    ) -> ErrorCode:
        """Heartbeat: extends the session, and reports a rebalance."""
        error = self._refusal(member_id, group_instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        self.rebalance.touch(self.members[member_id], now_ms)
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
        self.rebalance.touch(self.members[member_id], now_ms)
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
            self.rebalance.complete_join_if_all_wait(now_ms)
            return ErrorCode.NONE, self._replies.take()
        if group_instance_id is not None and not member_id:
            member_id = self.static_ids.get(group_instance_id, "")
        error = self.roster.identity_error(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error, []
        self.rebalance.remove(self.members[member_id], now_ms)
        return ErrorCode.NONE, self._replies.take()

    def delete(self) -> ErrorCode:
        """DeleteGroups: only an empty group may go."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self.rebalance.move(Event.DELETED)
        return ErrorCode.NONE

    def store_failed(self, error: ErrorCode, now_ms: float) -> list[Effect]:
        """The group could not be written: members that wait get an error, and rejoin."""
        returned, self._returned = self._returned, []
        for each in returned:
            self.rebalance.rename(each.member, each.before.member_id)
            self.roster.describe(each.member, each.before)
            self._replies.answer(each.waiter, JoinResult(error))
        if self.state is GroupState.COMPLETING:
            self.rebalance.fail_assignment(error, now_ms)
            self.rebalance.begin(now_ms)
        return self._replies.take()

    def assignment_stored(self, now_ms: float) -> list[Effect]:
        """The group is on disk: send the assignment, or answer the returned static member."""
        returned, self._returned = self._returned, []
        for each in returned:
            self._replies.answer(each.waiter, each.result)
        if self.state is GroupState.COMPLETING:
            self.rebalance.hand_out_assignment(now_ms)
        return self._replies.take()

    def tick(self, now_ms: float) -> list[Effect]:
        """Do what is due: sessions, unused member ids, the join's and the syncs' deadlines."""
        self.rebalance.tick(now_ms)
        return self._replies.take()

    def restore(self, stored: StoredGroup, now_ms: float) -> None:
        """Take over what the log says; every member gets a fresh session."""
        self.rebalance.restore(stored, now_ms)

    # -- joining -----------------------------------------------------------------------------

    def _refusal_of_join(self, request: JoinRequest) -> ErrorCode:
        if not self.rebalance.limits.allow_session(request.session_timeout_ms):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        joining = self.state is GroupState.PREPARING
        if not self.roster.has_space_for(
            request.member_id, self.rebalance.limits.size_max, joining=joining
        ):
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
        self._replies.answer(waiter, JoinResult(error, request.member_id))
        member = self.members.get(request.member_id)
        if member is not None and error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self.rebalance.remove(member, now_ms)
        elif self.pending.pop(request.member_id, None) is not None:
            self.rebalance.complete_join_if_all_wait(now_ms)

    def _join_first(
        self, request: JoinRequest, waiter: Callable[[JoinResult], None], now_ms: float
    ) -> None:
        instance = request.group_instance_id
        if instance is not None and instance in self.static_ids:
            self._replace_static(request, waiter, now_ms)
        elif instance is None and request.require_known_member_id:
            self.pending[request.new_member_id] = self.rebalance.due(
                now_ms + request.session_timeout_ms
            )
            self._replies.answer(
                waiter, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
            )
        else:
            self._add_member(request.new_member_id, request, waiter, now_ms)

    def _join_again(
        self, request: JoinRequest, waiter: Callable[[JoinResult], None], now_ms: float
    ) -> None:
        error = self.roster.identity_error(request.member_id, request.group_instance_id)
        if error is ErrorCode.NONE and self.state is GroupState.EMPTY:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            self._replies.answer(waiter, JoinResult(error, request.member_id))
            return
        member = self.members[request.member_id]
        unchanged = member.protocols == request.protocols
        lost_answer = self.state is GroupState.COMPLETING and unchanged
        follower = self.state is GroupState.STABLE and member.member_id != self.leader
        if lost_answer or (follower and unchanged):
            self._replies.answer(waiter, self.rebalance.join_result(member))
            self.rebalance.touch(member, now_ms)
            return
        self._update(member, request, now_ms)
        self._replies.await_join(member, waiter)
        self.rebalance.begin(now_ms)
        self.rebalance.complete_join_if_all_wait(now_ms)

    def _add_member(
        self,
        member_id: str,
        request: JoinRequest,
        waiter: Callable[[JoinResult], None],
        now_ms: float,
    ) -> None:
        member = Member.of(member_id, request)
        self._replies.await_join(member, waiter)
        self.rebalance.add(member, now_ms)

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
        self._replies.end_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._replies.end_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        before = replace(member)
        self.rebalance.rename(member, request.new_member_id)
        self._update(member, request, now_ms)
        if (
            self.state is GroupState.STABLE
            and select_protocol(self.members.values()) == self.protocol_name
        ):
            result = self._result_for_returned(member, before, request)
            self._returned.append(Returned(waiter, result, member, before))
            self._replies.store()
            return
        self._replies.await_join(member, waiter)
        self.rebalance.begin(now_ms)
        self.rebalance.complete_join_if_all_wait(now_ms)

    def _result_for_returned(
        self, member: Member, before: Member, request: JoinRequest
    ) -> JoinResult:
        if self.leader != member.member_id:
            return self.rebalance.join_result(member)
        if request.supports_skipping_assignment:
            return self.rebalance.join_result(member, skip_assignment=True)
        # Names no leader, or the member would assign again without a rebalance (KIP-345).
        return self.rebalance.join_result(member, leader=before.member_id)

    def _update(self, member: Member, request: JoinRequest, now_ms: float) -> None:
        self.roster.describe(member, request)
        if not member.is_new:
            self.rebalance.touch(member, now_ms)

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
