"""DeleteAcls (31), versions 1-3: delete the rules that filters mean.

Behaviour:
* Without ``authorizer.class.name``: SECURITY_DISABLED. Needs ALTER on the cluster.
* Each filter is answered with the rules that it meant (see DescribeAcls for what they mean), which
  are gone when the answer comes. INVALID_REQUEST for a filter of an unknown kind.

Version notes:
* v1: pattern types (KIP-290). v2: flexible. v3: users as resources (KIP-373).
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, require_cluster
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.describe_acls import acls_of, filter_of
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.security.acls import AclBinding
from penstock_broker.wire.messages.delete_acls import (
    API_KEY,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def refuse(request: DeleteAclsRequest, error: KafkaError, version: int) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_failed(error) for _ in request.filters])


@api(API_KEY, DeleteAclsRequest, refuse=refuse)
def delete_acls(services: Services, exchange: Exchange, request: DeleteAclsRequest) -> Steps:
    return services.alterations.through(_alter_all(services, exchange, request))


def _alter_all(services: Services, exchange: Exchange, request: DeleteAclsRequest) -> Steps:
    require_cluster(services, exchange, Operation.ALTER)
    store = acls_of(services)
    gone: set[AclBinding] = set()
    results = []
    for each in request.filters:
        try:
            found = store.authorizer.select(filter_of(each))
        except KafkaError as error:
            results.append(_failed(error))
            continue
        gone.update(found)
        results.append(DeleteAclsFilterResult(matching_acls=[_described(rule) for rule in found]))
    try:
        yield from store.removing(gone)
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The ACLs cannot be written.") from error
    return DeleteAclsResponse(filter_results=results)


def _described(rule: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=rule.resource_type,
        resource_name=rule.name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def _failed(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=str(error))
