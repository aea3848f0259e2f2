"""SyncGroup (14), versions 0-5: the leader brings the assignment, each member gets its part.

Behaviour:
* A member's sync waits for the leader's. The assignment is in the log before any member has it.
* A member that joins and never syncs is removed after the rebalance timeout.

Version notes:
* v3: static members. v4: flexible. v5: protocol type and name are checked (KIP-559).
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import DEFERRED, Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.groups.members import SyncRequest, SyncResult
from penstock_broker.wire.messages.sync_group import API_KEY, SyncGroupRequest, SyncGroupResponse


def refuse(request: SyncGroupRequest, error: KafkaError, version: int) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)


@api(API_KEY, SyncGroupRequest, refuse=refuse)
def sync_group(services: Services, exchange: Exchange, request: SyncGroupRequest) -> Reply:
    require(services, exchange, Operation.READ, ResourceType.GROUP, request.group_id)
    syncing = SyncRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={a.member_id: bytes(a.assignment) for a in request.assignments},
    )
    services.groups.sync(
        request.group_id, syncing, lambda result: exchange.respond(_response(result))
    )
    return DEFERRED


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
