"""The members of a group: their instances, its leader, and the ids that were handed out.

No rules of time or of states here (those are :mod:`.group_state`'s): only identities.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import JoinedMember, JoinRequest, Member, Protocols, size_of

# Ids handed out and not used: bounded, because any client may ask for one without joining.
PENDING_MEMBERS_MAX = 10_000


class Roster:
    """The members of one group. Their order is that of joining; the first one leads next."""

    __slots__ = (
        "_came",
        "_supporters",
        "_went",
        "leader",
        "members",
        "pending",
        "size",
        "static_ids",
    )

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """``group.instance.id`` -> member id."""
        self.pending: dict[str, float] = {}
        """Ids handed out but not yet used -> when they end (ms)."""
        self.leader: str | None = None
        self.size = 0
        """About the bytes that the members take, with their assignments."""
        self._came: dict[str, None] = {}
        self._went: dict[str, None] = {}
        self._supporters: dict[str, int] = {}  # protocol -> members that know it

    def fill(self, members: list[Member], leader: str | None) -> None:
        """Take over what the log says."""
        self.members = {member.member_id: member for member in members}
        self.static_ids = {
            m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None
        }
        self.leader = leader if leader in self.members else next(iter(self.members), None)
        for member in self.members.values():
            self._count(member.protocols, 1)
            self.size += len(member.assignment)

    def supports(self, protocols: Protocols) -> bool:
        """Whether all members support one of ``protocols``."""
        members = len(self.members)
        return any(self._supporters.get(name, 0) == members for name, _ in protocols)

    def take_changes(self) -> tuple[list[str], list[str]]:
        """The ids of members that have come and gone since this was last asked."""
        came, went = list(self._came), list(self._went)
        self._came.clear()
        self._went.clear()
        return came, went

    def _record(self, member_id: str, *, came: bool) -> None:
        here, there = (self._came, self._went) if came else (self._went, self._came)
        if member_id in there:
            del there[member_id]
        else:
            here[member_id] = None

    def _count(self, protocols: Protocols, amount: int) -> None:
        self.size += amount * size_of(protocols)
        for name in {name for name, _ in protocols}:
            self._supporters[name] = self._supporters.get(name, 0) + amount
            if not self._supporters[name]:
                del self._supporters[name]

    def has_space_for(self, member_id: str, size_max: int, *, joining: bool) -> bool:
        """Whether a member may be one of ``size_max``. While the group is joining, members count
        that have joined, so that the last are left out of a group that was larger than a limit that
        was lowered (Kafka's rule)."""
        member = self.members.get(member_id)
        if member is None and len(self.pending) >= PENDING_MEMBERS_MAX:
            return False
        if len(self.members) < size_max:
            return True
        if joining:
            waits = member is not None and member.awaiting_join is not None
            return waits or len(self.joining()) < size_max
        return member is not None

    def identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """UNKNOWN_MEMBER_ID for a stranger, FENCED_INSTANCE_ID for a place that has been taken."""
        if group_instance_id is not None:
            current = self.static_ids.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def add(self, member: Member) -> None:
        """A new member; the first one leads."""
        self.pending.pop(member.member_id, None)
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = member.member_id
        self._count(member.protocols, 1)
        self.size += len(member.assignment)
        self._record(member.member_id, came=True)

    def describe(self, member: Member, description: JoinRequest | Member) -> None:
        """Take over what a member says of itself in a later join (KAFKA-14009)."""
        self._count(member.protocols, -1)
        member.describe(description)
        self._count(member.protocols, 1)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Give each member its part; nothing to those that are not named."""
        for member in self.members.values():
            part = assignments.get(member.member_id, b"")
            self.size += len(part) - len(member.assignment)
            member.assignment = part

    def rename(self, member: Member, new_id: str) -> None:
        """Give a member a new id in its old place."""
        old_id = member.member_id
        member.member_id = new_id
        self.members = {m.member_id: m for m in self.members.values()}
        if member.group_instance_id is not None:
            self.static_ids[member.group_instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        self._record(old_id, came=False)
        self._record(new_id, came=True)

    def remove(self, member: Member) -> None:
        """Take a member out; the next one leads if it was the leader."""
        del self.members[member.member_id]
        self._count(member.protocols, -1)
        self.size -= len(member.assignment)
        self._record(member.member_id, came=False)
        instance = member.group_instance_id
        if instance is not None and self.static_ids.get(instance) == member.member_id:
            del self.static_ids[instance]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def joining(self) -> list[Member]:
        """Members that wait for the generation to begin."""
        return [m for m in self.members.values() if m.awaiting_join is not None]

    def described(self, protocol: str) -> tuple[JoinedMember, ...]:
        """The members as the leader gets them."""
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(protocol))
            for m in self.members.values()
        )

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined, else take the first that has; False when none has."""
        joining = self.joining()
        if joining and self.leader not in {m.member_id for m in joining}:
            self.leader = joining[0].member_id
        return bool(joining)

    def rebalance_timeout_ms(self) -> int:
        """The longest that a member allows for a rebalance."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)
