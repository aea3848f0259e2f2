"""AlterClientQuotas (49), versions 0-1: set or remove quotas.

Behaviour:
* Each entity succeeds or fails on its own; all that succeed are kept in one write, before the
  answer. From then on they hold, also for connections that there are.
* Keys: ``producer_byte_rate``, ``consumer_byte_rate``, ``request_percentage`` and
  ``controller_mutation_rate`` of users and client ids, ``connection_creation_rate`` of addresses.
  An unknown key, a value that is not positive, an entity named twice: INVALID_REQUEST.
* Over quota: the answer says ``throttle_time_ms`` at once, and the connection is not read from for
  so long (KIP-219).

Version notes:
* v1: flexible.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, require_cluster
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.quotas.entities import Entity, entity_of
from penstock_broker.wire.messages.alter_client_quotas import (
    API_KEY,
    AlterClientQuotasEntryResponse,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntityData,
    AlterEntryData,
)

ENTRIES_MAX = 2_000
"""Entities that one request may name."""


def refuse(
    request: AlterClientQuotasRequest, error: KafkaError, version: int
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_result(e, error) for e in request.entries])


@api(API_KEY, AlterClientQuotasRequest, refuse=refuse)
def alter_client_quotas(
    services: Services, exchange: Exchange, request: AlterClientQuotasRequest
) -> Steps:
    return services.alterations.through(_alter_all(services, exchange, request))


def _alter_all(services: Services, exchange: Exchange, request: AlterClientQuotasRequest) -> Steps:
    require_cluster(services, exchange, Operation.ALTER_CONFIGS)
    if len(request.entries) > ENTRIES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {ENTRIES_MAX} entities at once.")
    results: list[AlterClientQuotasEntryResponse] = []
    seen: set[Entity] = set()
    altered = False
    for entry in request.entries:
        result = _result(entry, None)
        try:
            _alter(services, entry, seen, request.validate_only)
            altered = True
        except KafkaError as error:
            result = _result(entry, error)
        results.append(result)
    if altered and not request.validate_only:
        yield from services.quotas.saving()
    return AlterClientQuotasResponse(entries=results)


def _alter(
    services: Services, entry: AlterEntryData, seen: set[Entity], validate_only: bool
) -> None:
    pairs = [(part.entity_type, part.entity_name) for part in entry.entity]
    entity = entity_of(pairs)
    if entity in seen:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate entity in the request.")
    seen.add(entity)
    changes = {op.key: None if op.remove else op.value for op in entry.ops}
    if len(changes) != len(entry.ops):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate key for an entity.")
    if validate_only:
        services.quotas.check(pairs, changes)
    else:
        services.quotas.alter(pairs, changes)


def _result(entry: AlterEntryData, error: KafkaError | None) -> AlterClientQuotasEntryResponse:
    return AlterClientQuotasEntryResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
        entity=[
            AlterEntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ],
    )
