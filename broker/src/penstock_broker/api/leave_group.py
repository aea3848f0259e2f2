"""LeaveGroup (13), versions 0-5: members go, and the others rebalance at once.

Behaviour:
* A leave during a rebalance may complete it. An admin names static members by instance id alone.

Version notes:
* v0-v2: one member, the error is the answer's. v3: several, an error each (KIP-345).
* v4: flexible. v5: reason.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.bounds import LEAVING_MEMBERS_MAX, require_at_most
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.wire.messages.leave_group import (
    API_KEY,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)


def refuse(request: LeaveGroupRequest, error: KafkaError, version: int) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


@api(API_KEY, LeaveGroupRequest, refuse=refuse)
def leave_group(services: Services, exchange: Exchange, request: LeaveGroupRequest) -> Reply:
    require(services, exchange, Operation.READ, ResourceType.GROUP, request.group_id)
    if exchange.api_version < 3:
        (code,) = services.groups.leave(request.group_id, [(request.member_id, None)])
        return LeaveGroupResponse(error_code=code)
    require_at_most(len(request.members), LEAVING_MEMBERS_MAX, "members")
    codes = services.groups.leave(
        request.group_id, [(m.member_id, m.group_instance_id) for m in request.members]
    )
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=code,
            )
            for member, code in zip(request.members, codes, strict=True)
        ]
    )
