"""IncrementalAlterConfigs: set, delete, append to or subtract from single settings (KIP-339)."""

from penstock_broker.wire.schema import BOOL, INT8, INT16, INT32, STRING, Struct, array, field

API_KEY = 44
VERSIONS = range(2)
FLEXIBLE_FROM = 1

OPERATION_SET = 0
OPERATION_DELETE = 1
OPERATION_APPEND = 2
OPERATION_SUBTRACT = 3


class AlterableConfig(Struct):
    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(STRING, nullable_since=0)


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = field(BOOL, default=False)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class IncrementalAlterConfigsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
