"""CreateAcls (30), versions 1-3: allow or deny.

Behaviour:
* Without ``authorizer.class.name``: SECURITY_DISABLED. Needs ALTER on the cluster.
* Each rule succeeds or fails on its own: INVALID_REQUEST for one that is not complete (resource,
  literal or prefixed pattern, principal, host, operation, permission). The others are in force,
  and on the disk, when the answer comes. One that exists already is made once.

Version notes:
* v1: pattern types (KIP-290). v2: flexible. v3: users as resources (KIP-373).
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, require_cluster
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.describe_acls import acls_of
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.security.acls import AclBinding, PatternType, Permission, ResourceType
from penstock_broker.wire.messages.create_acls import (
    API_KEY,
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def refuse(request: CreateAclsRequest, error: KafkaError, version: int) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_result(error) for _ in request.creations])


@api(API_KEY, CreateAclsRequest, refuse=refuse)
def create_acls(services: Services, exchange: Exchange, request: CreateAclsRequest) -> Steps:
    return services.alterations.through(_alter_all(services, exchange, request))


def _alter_all(services: Services, exchange: Exchange, request: CreateAclsRequest) -> Steps:
    require_cluster(services, exchange, Operation.ALTER)
    store = acls_of(services)
    rules, results = [], []
    for creation in request.creations:
        try:
            rules.append(_rule(creation))
            results.append(AclCreationResult())
        except KafkaError as error:
            results.append(_result(error))
    if store.is_full(len(rules)):
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "There are too many ACLs.")
    try:
        yield from store.adding(rules)
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The ACLs cannot be written.") from error
    return CreateAclsResponse(results=results)


def _rule(creation: AclCreation) -> AclBinding:
    try:
        rule = AclBinding(
            ResourceType(creation.resource_type),
            creation.resource_name,
            PatternType(creation.resource_pattern_type),
            creation.principal,
            creation.host,
            Operation(creation.operation),
            Permission(creation.permission_type),
        )
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    problem = rule.problem()
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    return rule


def _result(error: KafkaError) -> AclCreationResult:
    return AclCreationResult(error_code=error.code, error_message=str(error))
