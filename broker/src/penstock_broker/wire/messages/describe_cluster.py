"""DescribeCluster: brokers and controller."""

from penstock_broker.wire.schema import BOOL, INT8, INT16, INT32, STRING, Struct, array, field

API_KEY = 60
VERSIONS = range(2)
FLEXIBLE_FROM = 0

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2
"""KIP-919: what is asked for."""


class DescribeClusterRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    include_cluster_authorized_operations: bool = field(BOOL, default=False)
    endpoint_type: int = field(INT8, since=1, default=ENDPOINT_BROKERS)


class DescribeClusterBroker(Struct):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable_since=0, default=None)


class DescribeClusterResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    endpoint_type: int = field(INT8, since=1, default=ENDPOINT_BROKERS)
    cluster_id: str = field(STRING, default="")
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, default=())
    cluster_authorized_operations: int = field(INT32, default=-2147483648)
