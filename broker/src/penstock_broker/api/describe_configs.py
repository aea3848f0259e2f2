"""DescribeConfigs (32), versions 1-4: settings of topics and of the broker.

Behaviour:
* A resource that is named twice is in the answer once.
* Every setting with its value, where it comes from (topic; set for this broker, or for all, while
  running; the broker's configuration; default), and on request the synonyms it would fall back to
  and its documentation. Secrets have no value.
* A broker by its id; the empty name gives what was set for all brokers while running.

Version notes:
* v1: sources and synonyms (KIP-226). v3: types and documentation (KIP-569). v4: flexible.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, require_configs
from penstock_broker.api.context import Encoded, Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import check_topic_name
from penstock_broker.config import ConfigEntry
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.describe_configs import (
    API_KEY,
    FLEXIBLE_FROM,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from penstock_broker.wire.primitives import write_uvarint
from penstock_broker.wire.schema import encode


def refuse(
    request: DescribeConfigsRequest, error: KafkaError, version: int
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_failed(r, error) for r in request.resources])


@api(API_KEY, DescribeConfigsRequest, refuse=refuse)
def describe_configs(
    services: Services, exchange: Exchange, request: DescribeConfigsRequest
) -> Steps:
    # Encoded one by one: as objects, the settings of thousands of topics are gigabytes.
    results: list[bytes] = []
    version = exchange.api_version
    unique = {(each.resource_type, each.resource_name): each for each in request.resources}
    for resource in unique.values():
        yield
        try:
            require_configs(
                services,
                exchange,
                Operation.DESCRIBE_CONFIGS,
                resource.resource_type,
                resource.resource_name,
            )
            entries = _entries(services, resource)
        except KafkaError as error:
            results.append(encode(_failed(resource, error), version))
            continue
        result = DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[
                _row(entry, request.include_synonyms, request.include_documentation)
                for entry in entries
            ],
        )
        results.append(encode(result, version))
    head = b"\0\0\0\0"  # throttle time
    if version >= FLEXIBLE_FROM:
        return Encoded(b"".join((head, write_uvarint(len(results) + 1), *results, b"\0")))
    return Encoded(b"".join((head, len(results).to_bytes(4, "big"), *results)))


def _entries(services: Services, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    names = resource.configuration_keys or None  # an empty list asks for all, as in Kafka
    name = resource.resource_name
    if resource.resource_type == RESOURCE_TOPIC:
        check_topic_name(name)
        return services.topics.describe(services.topics.by_name(name), names)
    if resource.resource_type == RESOURCE_BROKER:
        return services.broker_configs.describe(name, names)
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
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
        error_message=error.detail,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
