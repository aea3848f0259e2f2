"""EndTxn: commit or abort."""

from penstock_broker.wire.schema import BOOL, INT16, INT32, INT64, STRING, Struct, field

API_KEY = 26
VERSIONS = range(5)
FLEXIBLE_FROM = 3


class EndTxnRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)


class EndTxnResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
