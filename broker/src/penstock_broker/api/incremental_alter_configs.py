"""IncrementalAlterConfigs (44), versions 0-1: change single settings (KIP-339).

Behaviour:
* SET, DELETE, and for lists APPEND and SUBTRACT. All changes of a resource are made, or none. In
  force at once.
* Brokers are named by id, all of them by the empty name. Settings that a running broker keeps are
  INVALID_REQUEST, as Apache Kafka says it of its read-only ones.

Version notes:
* v1: flexible.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock_broker.api import altering
from penstock_broker.api.authorization import Operation, require_configs
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.config import ConfigType
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.steps import Step
from penstock_broker.wire.messages.incremental_alter_configs import (
    API_KEY,
    OPERATION_APPEND,
    OPERATION_DELETE,
    OPERATION_SET,
    OPERATION_SUBTRACT,
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_LIST_OPERATIONS = {OPERATION_APPEND: "APPEND", OPERATION_SUBTRACT: "SUBTRACT"}


def refuse(
    request: IncrementalAlterConfigsRequest, error: KafkaError, version: int
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[_response(r, error) for r in request.resources]
    )


@api(API_KEY, IncrementalAlterConfigsRequest, refuse=refuse)
def incremental_alter_configs(
    services: Services, exchange: Exchange, request: IncrementalAlterConfigsRequest
) -> Steps:
    return services.alterations.through(_alter_all(services, exchange, request))


def _alter_all(
    services: Services, exchange: Exchange, request: IncrementalAlterConfigsRequest
) -> Steps:
    responses = []
    twice = altering.repeated(request.resources)
    for resource in request.resources:
        try:
            altering.check_once(resource, twice)
            require_configs(
                services,
                exchange,
                Operation.ALTER_CONFIGS,
                resource.resource_type,
                resource.resource_name,
            )
            yield from _alter(services, resource, request.validate_only)
            responses.append(_response(resource, None))
        except KafkaError as error:
            responses.append(_response(resource, error))
        yield
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter(
    services: Services, resource: AlterConfigsResource, validate_only: bool
) -> Generator[Step, None, None]:
    values = dict(altering.overrides(services, resource))
    altering.check_settings(resource.configs)
    for change in resource.configs:
        if change.config_operation == OPERATION_DELETE:
            values.pop(change.name, None)
        elif change.value is None:
            raise altering.null_value(change.name)
        elif change.config_operation == OPERATION_SET:
            values[change.name] = change.value
        else:
            values[change.name] = _change_list(services, resource, values, change)
    yield from altering.putting(services, resource, values, validate_only=validate_only)


def _change_list(
    services: Services,
    resource: AlterConfigsResource,
    values: dict[str, str],
    change: AlterableConfig,
) -> str:
    """The new value of a list, beginning with the one in force."""
    operation = _LIST_OPERATIONS.get(change.config_operation)
    if operation is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.config_operation}.")
    entry = altering.entry(services, resource, change.name)
    if entry is None or entry.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation} to key {change.name} because its type is not LIST.",
        )
    current = [v for v in values.get(change.name, entry.value or "").split(",") if v]
    named = [v.strip() for v in (change.value or "").split(",")]
    if change.config_operation == OPERATION_APPEND:
        current += [v for v in named if v not in current]
    else:
        current = [v for v in current if v not in named]
    return ",".join(current)


def _response(
    resource: AlterConfigsResource, error: KafkaError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error is not None else 0,
        error_message=str(error) if error is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
