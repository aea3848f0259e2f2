"""DescribeConfigs: settings of topics and brokers with their sources."""

from penstock_broker.wire.schema import BOOL, INT8, INT16, INT32, STRING, Struct, array, field

API_KEY = 32
VERSIONS = range(1, 5)
FLEXIBLE_FROM = 4

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4


class DescribeConfigsResource(Struct):
    """`configuration_keys` None asks for all."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = array(STRING, nullable_since=0, default=None)


class DescribeConfigsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = field(BOOL, since=1, default=False)
    include_documentation: bool = field(BOOL, since=3, default=False)


class DescribeConfigsSynonym(Struct):
    name: str = field(STRING, since=1)
    value: str | None = field(STRING, since=1, nullable_since=0)
    source: int = field(INT8, since=1)


class DescribeConfigsResourceResult(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable_since=0)
    read_only: bool = field(BOOL, default=False)
    config_source: int = field(INT8, since=1, default=-1)
    is_sensitive: bool = field(BOOL, default=False)
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1, default=())
    config_type: int = field(INT8, since=3, default=0)
    documentation: str | None = field(STRING, since=3, nullable_since=0, default=None)


class DescribeConfigsResult(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, default=())


class DescribeConfigsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
