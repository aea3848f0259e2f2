"""DescribeGroups (15), versions 0-5: state and members of groups.

Behaviour:
* An unknown group is "Dead", without an error. Metadata and assignments are shown only
  of a stable group, as in Kafka: before, they are on their way.

Version notes:
* v3: authorized operations. v4: static members.
* v5: flexible.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, operations, require
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.groups.group_state import Group
from penstock_broker.groups.states import GroupState
from penstock_broker.wire.messages.describe_groups import (
    API_KEY,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def refuse(
    request: DescribeGroupsRequest, error: KafkaError, version: int
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=name, error_code=error.code) for name in request.groups]
    )


@api(API_KEY, DescribeGroupsRequest, refuse=refuse)
def describe_groups(
    services: Services, exchange: Exchange, request: DescribeGroupsRequest
) -> Steps:
    described = []
    for group_id in dict.fromkeys(request.groups):
        yield
        try:
            require(services, exchange, Operation.DESCRIBE, ResourceType.GROUP, group_id)
            group = services.groups.group(group_id)
        except KafkaError as error:
            described.append(DescribedGroup(group_id=group_id, error_code=error.code))
            continue
        if group is None:
            described.append(DescribedGroup(group_id=group_id, group_state=GroupState.DEAD))
        else:
            described.append(_describe(group))
        if request.include_authorized_operations:
            described[-1].authorized_operations = operations(
                services, exchange, ResourceType.GROUP, group_id
            )
    return DescribeGroupsResponse(groups=described)


def _describe(group: Group) -> DescribedGroup:
    stable = group.state is GroupState.STABLE
    protocol = group.protocol_name or ""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if stable else b"",
                member_assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ],
    )
