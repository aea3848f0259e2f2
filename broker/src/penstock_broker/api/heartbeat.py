"""Heartbeat (12), versions 0-4: a member is alive, and learns of a rebalance.

Behaviour:
* Prolongs the session; answers REBALANCE_IN_PROGRESS while members are joining.

Version notes:
* v3: static members (FENCED_INSTANCE_ID). v4: flexible.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.wire.messages.heartbeat import API_KEY, HeartbeatRequest, HeartbeatResponse


def refuse(request: HeartbeatRequest, error: KafkaError, version: int) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)


@api(API_KEY, HeartbeatRequest, refuse=refuse)
def heartbeat(services: Services, exchange: Exchange, request: HeartbeatRequest) -> Reply:
    require(services, exchange, Operation.READ, ResourceType.GROUP, request.group_id)
    code = services.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=code)
