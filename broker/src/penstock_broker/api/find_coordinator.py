"""FindCoordinator (10), versions 0-6: which broker looks after a group or a transactional id.

Behaviour:
* Groups (key type 0): this broker, for every id; the internal topic is made on the first ask.
  COORDINATOR_NOT_AVAILABLE while the group's part of that topic cannot be read.
* Transactions (key type 1): the same. Any other key type is INVALID_REQUEST.

Version notes:
* v1: key types. v3: flexible. v4: several keys at once, the answer per key (KIP-699).
* v5: the same bytes as v4 (KIP-890). v6: share groups (key type 2, KIP-932): INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.steps import Step
from penstock_broker.wire.messages.find_coordinator import (
    API_KEY,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP = 0
TRANSACTION = 1
_RESOURCES = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}


def refuse(
    request: FindCoordinatorRequest, error: KafkaError, version: int
) -> FindCoordinatorResponse:
    if version < 4:
        return FindCoordinatorResponse(error_code=error.code, error_message=str(error))
    return FindCoordinatorResponse(
        coordinators=[_no_coordinator(key, error) for key in request.coordinator_keys]
    )


@api(API_KEY, FindCoordinatorRequest, refuse=refuse)
def find_coordinator(
    services: Services, exchange: Exchange, request: FindCoordinatorRequest
) -> Steps:
    if request.key_type not in _RESOURCES:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if exchange.api_version < 4:
        found = yield from _find(services, exchange, request.key_type, request.key)
        return FindCoordinatorResponse(node_id=found.node_id, host=found.host, port=found.port)
    coordinators = []
    for key in request.coordinator_keys:
        try:
            found = yield from _find(services, exchange, request.key_type, key)
            coordinators.append(found)
        except KafkaError as error:
            coordinators.append(_no_coordinator(key, error))
        yield
    return FindCoordinatorResponse(coordinators=coordinators)


def _find(
    services: Services, exchange: Exchange, key_type: int, key: str
) -> Generator[Step, None, Coordinator]:
    require(services, exchange, Operation.DESCRIBE, _RESOURCES[key_type], key)
    yield from _ensure_topic(
        services, TRANSACTIONS_TOPIC if key_type == TRANSACTION else OFFSETS_TOPIC
    )
    if key_type == TRANSACTION:
        services.transactions.prepare(key)
    else:
        services.offsets.ensure_topic()
        if services.offsets.problem(key) is not ErrorCode.NONE:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    host, port = services.address_of(exchange.session.listener_name)
    return Coordinator(key=key, node_id=services.config.broker_id, host=host, port=port)


def _ensure_topic(services: Services, name: str) -> Generator[Step, None, None]:
    """The first request creates the coordinators' topic; other clients retry."""
    if services.metadata.topic(name) is None:
        try:
            yield from services.topics.creating_internal(name)
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
            raise
    elif not services.replicas.has_partition(name, 0):
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # it is not there quite yet


def _no_coordinator(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=-1,
        host="",
        port=-1,
        error_code=error.code,
        error_message=str(error),
    )
