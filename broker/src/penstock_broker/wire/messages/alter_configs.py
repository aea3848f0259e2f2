"""AlterConfigs: replace all settings of a resource."""

from penstock_broker.wire.schema import BOOL, INT8, INT16, INT32, STRING, Struct, array, field

API_KEY = 33
VERSIONS = range(3)
FLEXIBLE_FROM = 2


class AlterableConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable_since=0)


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = field(BOOL, default=False)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class AlterConfigsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
