"""DescribeAcls (29), versions 1-3: the rules that a filter means.

Behaviour:
* Without ``authorizer.class.name``: SECURITY_DISABLED. Needs DESCRIBE on the cluster.
* The name of a filter is compared as its pattern type says: as it is (literal, prefixed, any), or
  MATCH: every rule that is about a resource of that name. A filter of an unknown kind is
  INVALID_REQUEST.

Version notes:
* v1: pattern types (KIP-290). v2: flexible. v3: users as resources (KIP-373).
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, require_cluster
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.security.acl_store import AclStore
from penstock_broker.security.acls import (
    AclBinding,
    AclFilter,
    PatternType,
    Permission,
    ResourceType,
)
from penstock_broker.wire.messages.delete_acls import DeleteAclsFilter
from penstock_broker.wire.messages.describe_acls import (
    API_KEY,
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def refuse(request: DescribeAclsRequest, error: KafkaError, version: int) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.code, error_message=str(error))


@api(API_KEY, DescribeAclsRequest, refuse=refuse)
def describe_acls(services: Services, exchange: Exchange, request: DescribeAclsRequest) -> Reply:
    require_cluster(services, exchange, Operation.DESCRIBE)
    found = acls_of(services).authorizer.select(filter_of(request))
    resources: dict[tuple[ResourceType, str, PatternType], list[AclBinding]] = {}
    for rule in found:
        resources.setdefault(rule[:3], []).append(rule)
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(
                        principal=rule.principal,
                        host=rule.host,
                        operation=rule.operation,
                        permission_type=rule.permission,
                    )
                    for rule in rules
                ],
            )
            for (kind, name, pattern_type), rules in resources.items()
        ]
    )


def acls_of(services: Services) -> AclStore:
    """The rules; SECURITY_DISABLED where there is no authorizer to go by them."""
    if services.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return services.acls


def filter_of(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """The filter that a request carries. INVALID_REQUEST for unknown codes."""
    try:
        wanted = AclFilter(
            ResourceType(request.resource_type_filter),
            request.resource_name_filter,
            PatternType(request.pattern_type_filter),
            request.principal_filter,
            request.host_filter,
            Operation(request.operation),
            Permission(request.permission_type),
        )
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    problem = wanted.problem()
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    return wanted
