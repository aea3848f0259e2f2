"""DeleteGroups (42), versions 0-2: delete empty groups with their offsets.

Behaviour:
* NON_EMPTY_GROUP while there are members; GROUP_ID_NOT_FOUND for an unknown one.

Version notes:
* v2: flexible.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, allowed
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.delete_groups import (
    API_KEY,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def refuse(request: DeleteGroupsRequest, error: KafkaError, version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=error.code)
            for name in request.groups_names
        ]
    )


@api(API_KEY, DeleteGroupsRequest, refuse=refuse)
def delete_groups(services: Services, exchange: Exchange, request: DeleteGroupsRequest) -> Steps:
    results = []
    for name in dict.fromkeys(request.groups_names):
        if allowed(services, exchange, Operation.DELETE, ResourceType.GROUP, name):
            code = services.groups.delete(name)
        else:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        results.append(DeletableGroupResult(group_id=name, error_code=code))
        yield
    return DeleteGroupsResponse(results=results)
