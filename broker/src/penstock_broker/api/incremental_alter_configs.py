"""IncrementalAlterConfigs (44), versions 0-1: change single overrides of a topic (KIP-339).

Behaviour:
* SET, DELETE, and for lists APPEND and SUBTRACT. All changes of a topic are made, or none. In
  force at once.
* The broker's own settings are fixed while it runs: INVALID_REQUEST.

Version notes:
* v1: flexible.
"""

from __future__ import annotations

from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import Topic
from penstock_broker.config import LOG_SETTINGS, ConfigType
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.describe_configs import RESOURCE_TOPIC
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


def refuse(
    request: IncrementalAlterConfigsRequest, error: KafkaError, version: int
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[_response(r, error) for r in request.resources]
    )


@api(API_KEY, IncrementalAlterConfigsRequest, refuse=refuse)
def incremental_alter_configs(
    services: Services, exchange: Exchange, request: IncrementalAlterConfigsRequest
) -> Reply:
    responses = []
    for resource in request.resources:
        try:
            _alter(services, resource, request.validate_only)
            responses.append(_response(resource, None))
        except KafkaError as error:
            responses.append(_response(resource, error))
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter(services: Services, resource: AlterConfigsResource, validate_only: bool) -> None:
    if resource.resource_type != RESOURCE_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Only topics can be altered while running.")
    topic = services.topics.by_name(resource.resource_name)
    if len({c.name for c in resource.configs}) != len(resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A setting is named twice.")
    configs = dict(topic.configs)
    for change in resource.configs:
        _apply(services, topic, configs, change)
    services.topics.set_configs(topic, configs, validate_only=validate_only)


def _apply(
    services: Services, topic: Topic, configs: dict[str, str], change: AlterableConfig
) -> None:
    if change.config_operation == OPERATION_DELETE:
        configs.pop(change.name, None)
        return
    if change.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value for {change.name}.")
    if change.config_operation == OPERATION_SET:
        configs[change.name] = change.value
        return
    row = LOG_SETTINGS.get(change.name)
    if change.config_operation not in {OPERATION_APPEND, OPERATION_SUBTRACT}:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown operation.")
    if row is None or row.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Config value append is not allowed for {change.name}"
        )
    (entry,) = services.topics.describe(topic, [change.name])
    current = [v for v in configs.get(change.name, entry.value or "").split(",") if v]
    named = [v.strip() for v in change.value.split(",")]
    if change.config_operation == OPERATION_APPEND:
        current += [v for v in named if v not in current]
    else:
        current = [v for v in current if v not in named]
    configs[change.name] = ",".join(current)


def _response(
    resource: AlterConfigsResource, error: KafkaError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error is not None else 0,
        error_message=str(error) if error is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
