"""DescribeGroups: state and members."""

from penstock_broker.wire.schema import BOOL, BYTES, INT16, INT32, STRING, Struct, array, field

API_KEY = 15
VERSIONS = range(6)
FLEXIBLE_FROM = 5


class DescribeGroupsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    groups: list[str] = array(STRING)
    include_authorized_operations: bool = field(BOOL, since=3, default=False)


class DescribedGroupMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=4, nullable_since=4, default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


class DescribedGroup(Struct):
    error_code: int = field(INT16, default=0)
    group_id: str = field(STRING)
    group_state: str = field(STRING, default="")
    protocol_type: str = field(STRING, default="")
    protocol_data: str = field(STRING, default="")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, default=())
    authorized_operations: int = field(INT32, since=3, default=-2147483648)


class DescribeGroupsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)
