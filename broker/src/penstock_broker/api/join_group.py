"""JoinGroup (11), versions 0-9: become a member, and learn the generation.

Behaviour:
* Answered when the rebalance is ready: all known members have joined, or the largest rebalance
  timeout is over. The first join of an empty group waits ``group.initial.rebalance.delay.ms``.
* The leader gets every member's metadata; no other member gets any.
* Static members (group.instance.id) that come back get their place without a rebalance.

Version notes:
* v0: the rebalance timeout is the session timeout. v2: throttle time. v6: flexible.
* v4: a first join is answered MEMBER_ID_REQUIRED with an id to join with (KIP-394).
* v5: static members. v7: protocol type, nullable protocol name. v8: reason.
* v9: skip_assignment for a static leader that comes back (KIP-814).
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.bounds import (
    GROUP_PROTOCOLS_MAX,
    REBALANCE_TIMEOUT_MS_MAX,
    require_at_most,
)
from penstock_broker.api.context import DEFERRED, Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.groups.members import JoinRequest, JoinResult
from penstock_broker.wire.messages.join_group import (
    API_KEY,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)


def refuse(request: JoinGroupRequest, error: KafkaError, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)


@api(API_KEY, JoinGroupRequest, refuse=refuse)
def join_group(services: Services, exchange: Exchange, request: JoinGroupRequest) -> Reply:
    require(services, exchange, Operation.READ, ResourceType.GROUP, request.group_id)
    require_at_most(len(request.protocols), GROUP_PROTOCOLS_MAX, "protocols")
    rebalance_timeout_ms = min(request.rebalance_timeout_ms, REBALANCE_TIMEOUT_MS_MAX)
    if exchange.api_version == 0:
        rebalance_timeout_ms = request.session_timeout_ms
    joining = JoinRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        new_member_id="",  # drawn by the coordinator when one is needed
        client_id=exchange.client_id or "",
        client_host="/" + exchange.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((p.name, bytes(p.metadata)) for p in request.protocols),
        require_known_member_id=exchange.api_version >= 4,
        supports_skipping_assignment=exchange.api_version >= 9,
    )
    services.groups.join(
        request.group_id, joining, lambda result: exchange.respond(_response(result))
    )
    return DEFERRED


def _response(result: JoinResult) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in result.members
        ],
    )
