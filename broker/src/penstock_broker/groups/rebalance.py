"""A group's generation and the rebalance to the next one: which members have to join and sync,
and until when.

Part of the state machine of :mod:`.group_state`, and pure as it is: every method gets ``now_ms``.
"""

from __future__ import annotations

import math

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import (
    GroupLimits,
    JoinedMember,
    JoinResult,
    Member,
    StoredGroup,
    SyncResult,
    select_protocol,
)
from penstock_broker.groups.replies import Replies
from penstock_broker.groups.roster import Roster
from penstock_broker.groups.states import TRANSITIONS, Event, GroupState

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class Rebalance:
    """The state, generation and protocol of one group, and the deadlines of its members."""

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = Roster()
        self.replies = Replies()
        self._unsynced: set[str] = set()
        self._sync_deadline_ms: float | None = None
        self._join_deadline_ms: float | None = None
        self._initial_delay_left_ms: float | None = None  # not None: the join does not end early
        self._member_added = False
        self._awaits_pending = True  # whether ids handed out keep the join open
        self._earliest_ms = math.inf  # no deadline is before it

    def move(self, event: Event) -> None:
        """Follow the table; a pair that is not in it is a bug of ours, never a client's."""
        try:
            self.state = TRANSITIONS[self.state][event]
        except KeyError:
            raise RuntimeError(
                f"group {self.group_id}: {event.name} cannot happen in {self.state}"
            ) from None

    def restore(self, stored: StoredGroup, now_ms: float) -> None:
        """Take over what the log says; every member gets a fresh session."""
        self.protocol_type = stored.protocol_type
        self.protocol_name = stored.protocol_name
        self.generation_id = stored.generation_id
        self.roster.fill(stored.members, stored.leader)
        self.state = GroupState.STABLE if self.roster.members else GroupState.EMPTY
        for member in stored.members:
            self.touch(member, now_ms)
        if len(self.roster.members) > self.limits.size_max:
            self.begin(now_ms)  # the setting was lowered: not all can come back

    # -- deadlines ---------------------------------------------------------------------------

    def may_be_due_before(self, at_ms: float) -> bool:
        """Whether :meth:`next_deadline_ms`, which looks at every member, may be earlier."""
        return self._earliest_ms < at_ms

    def next_deadline_ms(self) -> float | None:
        """When :meth:`tick` has something to do next; None when nothing is due, ever."""
        deadlines = [m.deadline_ms for m in self.roster.members.values() if self._can_expire(m)]
        deadlines += self.roster.pending.values()
        deadlines += [d for d in (self._join_deadline_ms, self._sync_deadline_ms) if d is not None]
        found = min(deadlines, default=None)
        self._earliest_ms = math.inf if found is None else found
        return found

    def due(self, deadline_ms: float) -> float:
        """Every deadline goes through here, so that the earliest is known without a search."""
        self._earliest_ms = min(self._earliest_ms, deadline_ms)
        return deadline_ms

    def touch(self, member: Member, now_ms: float) -> None:
        """Restart a member's session."""
        member.deadline_ms = self.due(now_ms + member.session_timeout_ms)

    def tick(self, now_ms: float) -> None:
        """Do what is due: unused member ids, sessions, the syncs' and the join's deadlines."""
        pending = self.roster.pending
        for member_id in [m for m, deadline in pending.items() if deadline <= now_ms]:
            pending.pop(member_id, None)
            self.complete_join_if_all_wait(now_ms)
        for member in list(self.roster.members.values()):
            if member.deadline_ms <= now_ms and self._can_expire(member):
                self.remove(member, now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = None
            for member in [m for i, m in self.roster.members.items() if i in self._unsynced]:
                self.remove(member, now_ms)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._join_timed_out(now_ms)

    def _can_expire(self, member: Member) -> bool:
        if member.is_new:
            return True
        return member.awaiting_join is None and member.awaiting_sync is None

    # -- members -----------------------------------------------------------------------------

    def add(self, member: Member, now_ms: float) -> None:
        """A new member, whose join waits."""
        member.is_new = True
        member.deadline_ms = self.due(now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        if not self.roster.members:
            self.protocol_type = member.protocol_type
        self.roster.add(member)
        self._member_added = True
        self.begin(now_ms)
        self.complete_join_if_all_wait(now_ms)

    def rename(self, member: Member, new_id: str) -> None:
        """Give a member a new id in its old place."""
        if member.member_id in self._unsynced:
            self._unsynced.discard(member.member_id)
            self._unsynced.add(new_id)
        self.roster.rename(member, new_id)

    def remove(self, member: Member, now_ms: float) -> None:
        """Take a member out; what it waited for is answered, and the others rebalance."""
        self._take_out(member)
        self.begin(now_ms)
        self.complete_join_if_all_wait(now_ms)

    def _take_out(self, member: Member) -> None:
        self.roster.remove(member)
        self.replies.end_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        self.replies.end_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    # -- the join ----------------------------------------------------------------------------

    def begin(self, now_ms: float) -> None:
        """Ask all members to join again, where the state allows it."""
        if Event.REBALANCE not in TRANSITIONS[self.state]:
            return
        if self.state is GroupState.COMPLETING:
            self.fail_assignment(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        rebalance_timeout_ms = self.roster.rebalance_timeout_ms()
        # As in Kafka, the first join of a group does not wait for those who only have an id.
        self._awaits_pending = self.state is not GroupState.EMPTY
        delay_ms = min(self.limits.initial_rebalance_delay_ms, rebalance_timeout_ms)
        if self.state is GroupState.EMPTY and delay_ms > 0:
            self._initial_delay_left_ms = rebalance_timeout_ms - delay_ms
            self._member_added = False
            self._join_deadline_ms = self.due(now_ms + delay_ms)
        else:
            self._join_deadline_ms = self.due(now_ms + rebalance_timeout_ms)
        self._sync_deadline_ms = None
        self.move(Event.REBALANCE)

    def complete_join_if_all_wait(self, now_ms: float) -> None:
        """End the join as soon as all members have joined (never before the initial delay)."""
        if (
            self.state is GroupState.PREPARING
            and self._initial_delay_left_ms is None
            and not (self.roster.pending and self._awaits_pending)
            and self.replies.waiting_joins == len(self.roster.members)
        ):
            self._complete_join(now_ms)

    def _join_timed_out(self, now_ms: float) -> None:
        left_ms = self._initial_delay_left_ms
        if left_ms and self._member_added:
            # Members are still arriving: wait again, within the rebalance timeout.
            delay_ms = min(self.limits.initial_rebalance_delay_ms, left_ms)
            self._member_added = False
            self._initial_delay_left_ms = left_ms - delay_ms
            self._join_deadline_ms = self.due(now_ms + delay_ms)
            return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: float) -> None:
        self._initial_delay_left_ms = None
        self._join_deadline_ms = None
        for member in list(self.roster.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                self._take_out(member)
        members = self.roster.members
        if members and not self.roster.elect_leader():
            # Only static members who are away: their sessions, not the join, decide (KAFKA-8220).
            timeout_ms = max(1, self.roster.rebalance_timeout_ms())
            self._join_deadline_ms = self.due(now_ms + timeout_ms)
            return
        self.generation_id += 1
        self._unsynced = set(members)
        if not members:
            self.protocol_name = None
            self.move(Event.EMPTIED)
            self.replies.store()
            return
        self.protocol_name = select_protocol(members.values())
        self.move(Event.GENERATION)
        self._sync_deadline_ms = self.due(now_ms + self.roster.rebalance_timeout_ms())
        for member in members.values():
            if member.awaiting_join is not None:
                self.replies.end_join(member, self.join_result(member))
                member.is_new = False
                self.touch(member, now_ms)

    def join_result(
        self, member: Member, *, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinResult:
        """The generation as a member gets it; the leader gets the members too."""
        leader = leader if leader is not None else (self.roster.leader or "")
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

    # -- the sync ----------------------------------------------------------------------------

    def record_sync(self, member_id: str) -> None:
        """This member has asked for its assignment: it is not removed for being late."""
        self._unsynced.discard(member_id)

    def hand_out_assignment(self, now_ms: float) -> None:
        """The leader's assignment is on disk: answer the syncs that wait."""
        self._sync_deadline_ms = self._sync_deadline_ms if self._unsynced else None
        self.move(Event.ASSIGNED)
        for member in self.roster.members.values():
            if self.replies.end_sync(member, self.sync_result(member)):
                self.touch(member, now_ms)

    def fail_assignment(self, error: ErrorCode, now_ms: float) -> None:
        """There is no assignment: the syncs that wait get ``error``."""
        self.roster.assign({})
        for member in self.roster.members.values():
            if self.replies.end_sync(member, SyncResult(error)):
                self.touch(member, now_ms)

    def sync_result(self, member: Member) -> SyncResult:
        """A member's part of the assignment."""
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)
