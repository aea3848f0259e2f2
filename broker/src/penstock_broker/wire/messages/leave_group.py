"""LeaveGroup: one member (to version 2) or several."""

from penstock_broker.wire.schema import INT16, INT32, STRING, Struct, array, field

API_KEY = 13
VERSIONS = range(6)
FLEXIBLE_FROM = 4


class MemberIdentity(Struct):
    member_id: str = field(STRING, since=3)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None)
    reason: str | None = field(STRING, since=5, nullable_since=5, default=None)


class LeaveGroupRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    group_id: str = field(STRING)
    member_id: str = field(STRING, until=2, default="")
    members: list[MemberIdentity] = array(MemberIdentity, since=3, default=())


class MemberResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    member_id: str = field(STRING, since=3)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None)
    error_code: int = field(INT16, since=3, default=0)


class LeaveGroupResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, default=0)
    members: list[MemberResponse] = array(MemberResponse, since=3, default=())
