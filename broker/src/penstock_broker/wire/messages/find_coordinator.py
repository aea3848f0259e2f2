"""FindCoordinator: the broker that leads a group (key type 0) or a transaction (1)."""

from penstock_broker.wire.schema import INT8, INT16, INT32, STRING, Struct, array, field

API_KEY = 10
VERSIONS = range(7)
FLEXIBLE_FROM = 3


class FindCoordinatorRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    key: str = field(STRING, until=3, default="")
    key_type: int = field(INT8, since=1, default=0)
    coordinator_keys: list[str] = array(STRING, since=4, default=())


class Coordinator(Struct):
    key: str = field(STRING, since=4)
    node_id: int = field(INT32, since=4)
    host: str = field(STRING, since=4)
    port: int = field(INT32, since=4)
    error_code: int = field(INT16, since=4, default=0)
    error_message: str | None = field(STRING, since=4, nullable_since=4, default=None)


class FindCoordinatorResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, until=3, default=0)
    error_message: str | None = field(STRING, since=1, until=3, nullable_since=1, default=None)
    node_id: int = field(INT32, until=3, default=-1)
    host: str = field(STRING, until=3, default="")
    port: int = field(INT32, until=3, default=-1)
    coordinators: list[Coordinator] = array(Coordinator, since=4, default=())
