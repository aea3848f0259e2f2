"""DescribeClientQuotas: the quotas of users, client ids and addresses (KIP-546)."""

from penstock_broker.wire.schema import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    STRING,
    Struct,
    array,
    field,
)

API_KEY = 48
VERSIONS = range(2)
FLEXIBLE_FROM = 1

MATCH_EXACT = 0
MATCH_DEFAULT = 1
MATCH_ANY = 2


class ComponentData(Struct):
    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    match: str | None = field(STRING, nullable_since=0, default=None)


class DescribeClientQuotasRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """`strict` leaves out entities with types that are not named."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = field(BOOL, default=False)


class EntityData(Struct):
    """`entity_name` null is the default of its type."""

    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable_since=0)


class ValueData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """`entries` is null where there is an error."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    entries: list[EntryData] | None = array(EntryData, nullable_since=0, default=None)
