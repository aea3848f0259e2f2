"""ListGroups."""

from penstock_broker.wire.schema import INT16, INT32, STRING, Struct, array, field

API_KEY = 16
VERSIONS = range(6)
FLEXIBLE_FROM = 3


class ListGroupsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    states_filter: list[str] = array(STRING, since=4, default=())
    types_filter: list[str] = array(STRING, since=5, default=())


class ListedGroup(Struct):
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, since=4, default="")
    group_type: str = field(STRING, since=5, default="")


class ListGroupsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, default=0)
    groups: list[ListedGroup] = array(ListedGroup, default=())
