"""AlterConfigs (33), versions 0-2: replace all overrides of a topic.

Behaviour:
* What is not named falls back to the broker's default; for single changes use
  IncrementalAlterConfigs. In force at once, also for records that are on their way.
* The broker's own settings are fixed while it runs: INVALID_REQUEST.

Version notes:
* v2: flexible.
"""

from __future__ import annotations

from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.alter_configs import (
    API_KEY,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from penstock_broker.wire.messages.describe_configs import RESOURCE_TOPIC


def refuse(request: AlterConfigsRequest, error: KafkaError, version: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[_response(r, error) for r in request.resources])


@api(API_KEY, AlterConfigsRequest, refuse=refuse)
def alter_configs(services: Services, exchange: Exchange, request: AlterConfigsRequest) -> Reply:
    responses = []
    for resource in request.resources:
        try:
            _alter(services, resource, request.validate_only)
            responses.append(_response(resource, None))
        except KafkaError as error:
            responses.append(_response(resource, error))
    return AlterConfigsResponse(responses=responses)


def _alter(services: Services, resource: AlterConfigsResource, validate_only: bool) -> None:
    if resource.resource_type != RESOURCE_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Only topics can be altered while running.")
    topic = services.topics.by_name(resource.resource_name)
    configs = {c.name: c.value for c in resource.configs if c.value is not None}
    if len(configs) != len(resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Null or repeated settings.")
    services.topics.set_configs(topic, configs, validate_only=validate_only)


def _response(
    resource: AlterConfigsResource, error: KafkaError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error is not None else 0,
        error_message=str(error) if error is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
