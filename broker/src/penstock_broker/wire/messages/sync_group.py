"""SyncGroup: the leader hands in the assignment, everyone gets their own."""

from penstock_broker.wire.schema import BYTES, INT16, INT32, STRING, Struct, array, field

API_KEY = 14
VERSIONS = range(6)
FLEXIBLE_FROM = 4


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


class SyncGroupRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None)
    protocol_type: str | None = field(STRING, since=5, nullable_since=5, default=None)
    protocol_name: str | None = field(STRING, since=5, nullable_since=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, default=())


class SyncGroupResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, default=0)
    protocol_type: str | None = field(STRING, since=5, nullable_since=5, default=None)
    protocol_name: str | None = field(STRING, since=5, nullable_since=5, default=None)
    assignment: bytes = field(BYTES, default=b"")
