"""ListGroups (16), versions 0-5: the groups that this broker looks after.

Behaviour:
* Every group that has members or offsets, or had until lately; states in any case of letters.

Version notes:
* v3: flexible. v4: filter by state, and the state in the answer (KIP-518).
* v5: filter by type, and the type in the answer: every group is a classic one (KIP-848).
"""

from __future__ import annotations

from penstock_broker.api.authorization import CLUSTER_NAME, Operation, ResourceType, allowed
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.wire.messages.list_groups import (
    API_KEY,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def refuse(request: ListGroupsRequest, error: KafkaError, version: int) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code)


@api(API_KEY, ListGroupsRequest, refuse=refuse)
def list_groups(services: Services, exchange: Exchange, request: ListGroupsRequest) -> Reply:
    wanted = {state.lower() for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    if types and "classic" not in types:
        return ListGroupsResponse()
    sees_all = allowed(
        services, exchange, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True
    )
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state,
                group_type="classic",
            )
            for group in services.groups.groups()
            if (not wanted or group.state.lower() in wanted)
            and (
                sees_all
                or allowed(
                    services,
                    exchange,
                    Operation.DESCRIBE,
                    ResourceType.GROUP,
                    group.group_id,
                    quiet=True,
                )
            )
        ]
    )
