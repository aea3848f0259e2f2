"""DescribeClientQuotas (48), versions 0-1: the quotas of users, client ids and addresses.

Behaviour:
* A filter has a component per entity type: an exact name, the default, or any name. Strict leaves
  out entities that have further types. No component and not strict finds everything.
* A type that appears twice, ``ip`` beside another, a name where none belongs: INVALID_REQUEST.
  An unknown entity type: UNSUPPORTED_VERSION, as in Kafka.

Version notes:
* v1: flexible.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, require_cluster
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.quotas.entities import CLIENT_ID, IP, USER
from penstock_broker.wire.messages.describe_client_quotas import (
    API_KEY,
    MATCH_ANY,
    MATCH_DEFAULT,
    MATCH_EXACT,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


def refuse(
    request: DescribeClientQuotasRequest, error: KafkaError, version: int
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=str(error))


@api(API_KEY, DescribeClientQuotasRequest, refuse=refuse)
def describe_client_quotas(
    services: Services, exchange: Exchange, request: DescribeClientQuotasRequest
) -> Reply:
    require_cluster(services, exchange, Operation.DESCRIBE_CONFIGS)
    exact: dict[str, str | None] = {}
    present: set[str] = set()
    for component in request.components:
        _take(component, exact, present)
    if (IP in exact or IP in present) and len(exact) + len(present) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in services.quotas.find(exact, present, request.strict)
        ]
    )


def _take(component: ComponentData, exact: dict[str, str | None], present: set[str]) -> None:
    kind, match, name = component.entity_type, component.match_type, component.match
    if not kind:
        raise _invalid("Invalid empty entity type.")
    if kind in exact or kind in present:
        raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in {USER, CLIENT_ID, IP}:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' is not supported."
        )
    if match not in {MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY}:
        raise _invalid(f"Unknown match type {match}")
    if (match == MATCH_EXACT) == (name is None):
        raise _invalid(f"Match type {match} and match string {name} do not belong together.")
    if match == MATCH_ANY:
        present.add(kind)
    else:
        exact[kind] = name


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
