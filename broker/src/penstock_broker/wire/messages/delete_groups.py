"""DeleteGroups."""

from penstock_broker.wire.schema import INT16, INT32, STRING, Struct, array, field

API_KEY = 42
VERSIONS = range(3)
FLEXIBLE_FROM = 2


class DeleteGroupsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    groups_names: list[str] = array(STRING)


class DeletableGroupResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16, default=0)


class DeleteGroupsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
