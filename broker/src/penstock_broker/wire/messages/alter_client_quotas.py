"""AlterClientQuotas: set or remove quotas of users, client ids and addresses (KIP-546)."""

from penstock_broker.wire.schema import BOOL, FLOAT64, INT16, INT32, STRING, Struct, array, field

API_KEY = 49
VERSIONS = range(2)
FLEXIBLE_FROM = 1


class AlterEntityData(Struct):
    """`entity_name` null is the default of its type."""

    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable_since=0)


class OpData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64, default=0.0)
    remove: bool = field(BOOL, default=False)


class AlterEntryData(Struct):
    entity: list[AlterEntityData] = array(AlterEntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    entries: list[AlterEntryData] = array(AlterEntryData)
    validate_only: bool = field(BOOL, default=False)


class AlterClientQuotasEntryResponse(Struct):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    entity: list[AlterEntityData] = array(AlterEntityData)


class AlterClientQuotasResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    entries: list[AlterClientQuotasEntryResponse] = array(AlterClientQuotasEntryResponse)
