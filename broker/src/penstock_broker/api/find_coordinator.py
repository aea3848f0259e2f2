"""FindCoordinator (10), versions 0-6: which broker looks after a group.

Behaviour:
* Groups (key type 0): this broker, for every id; the internal topic is made on the first ask.
  COORDINATOR_NOT_AVAILABLE while the group's part of that topic cannot be read.
* Transactions (key type 1) have no coordinator here: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which
  no client retries. Any other key type is INVALID_REQUEST.

Version notes:
* v1: key types. v3: flexible. v4: several keys at once, the answer per key (KIP-699).
* v5: the same bytes as v4 (KIP-890). v6: share groups (key type 2, KIP-932): INVALID_REQUEST.
"""

from __future__ import annotations

from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.find_coordinator import (
    API_KEY,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP = 0
TRANSACTION = 1


def refuse(
    request: FindCoordinatorRequest, error: KafkaError, version: int
) -> FindCoordinatorResponse:
    if version < 4:
        return FindCoordinatorResponse(error_code=error.code, error_message=str(error))
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=-1,
                host="",
                port=-1,
                error_code=error.code,
                error_message=str(error),
            )
            for key in request.coordinator_keys
        ]
    )


@api(API_KEY, FindCoordinatorRequest, refuse=refuse)
def find_coordinator(
    services: Services, exchange: Exchange, request: FindCoordinatorRequest
) -> Steps:
    if request.key_type == TRANSACTION:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "This broker has no transactions."
        )
    if request.key_type != GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    services.offsets.ensure_topic()
    if exchange.api_version >= 4:
        coordinators = []
        for key in request.coordinator_keys:
            coordinators.append(_of_group(services, exchange, key))
            yield
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _of_group(services, exchange, request.key)
    if found.error_code:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return FindCoordinatorResponse(node_id=found.node_id, host=found.host, port=found.port)


def _of_group(services: Services, exchange: Exchange, group_id: str) -> Coordinator:
    if services.offsets.problem(group_id) is not ErrorCode.NONE:
        error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(
            key=group_id,
            node_id=-1,
            host="",
            port=-1,
            error_code=error.code,
            error_message=str(error),
        )
    host, port = services.address_of(exchange.session.listener_name)
    return Coordinator(key=group_id, node_id=services.config.broker_id, host=host, port=port)
