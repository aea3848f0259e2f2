"""CreateAcls."""

from penstock_broker.wire.schema import INT8, INT16, INT32, STRING, Struct, array, field

API_KEY = 30
VERSIONS = range(1, 4)
FLEXIBLE_FROM = 2


class AclCreation(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, since=1, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class CreateAclsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)


class CreateAclsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[AclCreationResult] = array(AclCreationResult)
