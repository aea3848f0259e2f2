"""AlterConfigs (33), versions 0-2: replace all overrides of a topic, or what was set for a broker.

Behaviour:
* What is not named falls back to the broker's setting, or to the configuration file's; for single
  changes use IncrementalAlterConfigs. In force at once, also for records that are on their way.
* Brokers are named by id, all of them by the empty name. Settings that a running broker keeps are
  INVALID_REQUEST; DescribeConfigs shows them as read-only.

Version notes:
* v2: flexible.
"""

from __future__ import annotations

from collections.abc import Generator

from penstock_broker.api import altering
from penstock_broker.api.authorization import Operation, require_configs
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.steps import Step
from penstock_broker.wire.messages.alter_configs import (
    API_KEY,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def refuse(request: AlterConfigsRequest, error: KafkaError, version: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[_response(r, error) for r in request.resources])


@api(API_KEY, AlterConfigsRequest, refuse=refuse)
def alter_configs(services: Services, exchange: Exchange, request: AlterConfigsRequest) -> Steps:
    return services.alterations.through(_alter_all(services, exchange, request))


def _alter_all(services: Services, exchange: Exchange, request: AlterConfigsRequest) -> Steps:
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
    return AlterConfigsResponse(responses=responses)


def _alter(
    services: Services, resource: AlterConfigsResource, validate_only: bool
) -> Generator[Step, None, None]:
    altering.overrides(services, resource)  # the resource before its settings, as Kafka looks
    altering.check_settings(resource.configs)
    values = {}
    for config in resource.configs:
        if config.value is None:
            raise altering.null_value(config.name)
        values[config.name] = config.value
    yield from altering.putting(services, resource, values, validate_only=validate_only)


def _response(
    resource: AlterConfigsResource, error: KafkaError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error is not None else 0,
        error_message=str(error) if error is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
