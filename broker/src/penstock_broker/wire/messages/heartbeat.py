"""Heartbeat: a member is alive, and learns of a rebalance."""

from penstock_broker.wire.schema import INT16, INT32, STRING, Struct, field

API_KEY = 12
VERSIONS = range(5)
FLEXIBLE_FROM = 4


class HeartbeatRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None)


class HeartbeatResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, default=0)
