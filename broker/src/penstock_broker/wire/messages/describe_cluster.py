"""DescribeCluster: brokers and controller."""

from penstock_broker.wire.schema import BOOL, INT16, INT32, STRING, Struct, array, field

API_KEY = 60
VERSIONS = range(1)
FLEXIBLE_FROM = 0


class DescribeClusterRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    include_cluster_authorized_operations: bool = field(BOOL, default=False)


class DescribeClusterBroker(Struct):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable_since=0, default=None)


class DescribeClusterResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    cluster_id: str = field(STRING, default="")
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, default=())
    cluster_authorized_operations: int = field(INT32, default=-2147483648)
