"""JoinGroup: become a member; answered when the rebalance is ready."""

from penstock_broker.wire.schema import BOOL, BYTES, INT16, INT32, STRING, Struct, array, field

API_KEY = 11
VERSIONS = range(10)
FLEXIBLE_FROM = 6


class JoinGroupRequestProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class JoinGroupRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, since=1, default=-1)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=5, nullable_since=5, default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = field(STRING, since=8, nullable_since=8, default=None)


class JoinGroupResponseMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=5, nullable_since=5, default=None)
    metadata: bytes = field(BYTES)


class JoinGroupResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """`protocol_name` None goes out as the empty string before version 7."""

    throttle_time_ms: int = field(INT32, since=2, default=0)
    error_code: int = field(INT16, default=0)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, since=7, nullable_since=7, default=None)
    protocol_name: str | None = field(STRING, nullable_since=7, default=None)
    leader: str = field(STRING, default="")
    skip_assignment: bool = field(BOOL, since=9, default=False)
    member_id: str = field(STRING, default="")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, default=())
