"""DescribeConfigs (32), versions 1-4: settings of topics and of the broker.

Behaviour:
* Every setting with its value, where it comes from (topic, broker's configuration, default), and
  on request the synonyms it would fall back to and its documentation.

Version notes:
* v1: sources and synonyms (KIP-226). v3: types and documentation (KIP-569). v4: flexible.
"""

from __future__ import annotations

from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.config import ConfigEntry
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.describe_configs import (
    API_KEY,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def refuse(
    request: DescribeConfigsRequest, error: KafkaError, version: int
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_failed(r, error) for r in request.resources])


@api(API_KEY, DescribeConfigsRequest, refuse=refuse)
def describe_configs(
    services: Services, exchange: Exchange, request: DescribeConfigsRequest
) -> Reply:
    results = []
    for resource in request.resources:
        try:
            entries = _entries(services, resource)
        except KafkaError as error:
            results.append(_failed(resource, error))
            continue
        results.append(
            DescribeConfigsResult(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[
                    _row(entry, request.include_synonyms, request.include_documentation)
                    for entry in entries
                ],
            )
        )
    return DescribeConfigsResponse(results=results)


def _entries(services: Services, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    names = resource.configuration_keys
    if resource.resource_type == RESOURCE_TOPIC:
        return services.topics.describe(services.topics.by_name(resource.resource_name), names)
    if resource.resource_type == RESOURCE_BROKER:
        require_this_broker(services, resource.resource_name)
        return services.config.describe_broker(names)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
    )


def require_this_broker(services: Services, name: str) -> None:
    """Broker resources are named by id; the empty name (all brokers) has no settings here."""
    if name != str(services.config.broker_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.config.broker_id}, but received {name}",
        )


def _row(
    entry: ConfigEntry, with_synonyms: bool, with_documentation: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source)
            for s in (entry.synonyms if with_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.doc if with_documentation else None,
    )


def _failed(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
