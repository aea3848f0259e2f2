"""InitProducerId: an identity for idempotent and transactional producers."""

from penstock_broker.wire.schema import INT16, INT32, INT64, STRING, Struct, field

API_KEY = 22
VERSIONS = range(6)
FLEXIBLE_FROM = 2


class InitProducerIdRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    transactional_id: str | None = field(STRING, nullable_since=0, default=None)
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1)
    producer_epoch: int = field(INT16, since=3, default=-1)


class InitProducerIdResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16, default=0)
