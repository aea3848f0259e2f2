"""CreateTopics (19), versions 2-7: make topics, each on its own.

Behaviour:
* A name that is invalid or taken, a setting that is unknown or has a bad value, a partition count
  or replication factor that cannot be met: an error for that topic, and the others are created.
* A created topic has its leaders when the answer is sent; Metadata lists it at once.
* More partitions than ``max.broker.partitions`` in all: POLICY_VIOLATION.
* Manual assignments must name this broker, partition by partition from 0.

Version notes:
* v4: -1 partitions or replicas take the broker's defaults (KIP-464). v5: flexible; the answer
  carries partitions, replicas and the effective settings. v7: topic ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from penstock_broker.api.assignments import check_partitions, check_replicas, check_replication
from penstock_broker.api.authorization import Operation, ResourceType, allowed, may_create_topic
from penstock_broker.api.context import CloseConnectionError, Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.cluster.metadata_store import PARTITIONS_MAX
from penstock_broker.config import LOG_SETTINGS, ConfigEntry
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.steps import Step, in_batches, together
from penstock_broker.wire.messages.create_topics import (
    API_KEY,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

TOPICS_MAX = 10_000
"""Topics that one request may name."""
PARTITIONS_AT_ONCE = 100
"""Of topics that are made with one write of the metadata."""


def refuse(request: CreateTopicsRequest, error: KafkaError, version: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_failed(t.name, error) for t in request.topics])


@api(API_KEY, CreateTopicsRequest, refuse=refuse)
def create_topics(services: Services, exchange: Exchange, request: CreateTopicsRequest) -> Steps:
    if len(request.topics) > TOPICS_MAX:
        raise CloseConnectionError(f"more than {TOPICS_MAX} topics at once")
    named = Counter(topic.name for topic in request.topics)
    default = services.config.num_partitions
    sizes = [
        len(topic.assignments) or (default if topic.num_partitions < 0 else topic.num_partitions)
        for topic in request.topics
    ]
    results: dict[str, CreatableTopicResult] = {}
    for places in in_batches(sizes, PARTITIONS_AT_ONCE):
        topics = [request.topics[place] for place in places]
        made = yield from together(
            [
                _outcome(services, exchange, topic, named[topic.name], request.validate_only)
                for topic in topics
            ]
        )
        results.update(zip((topic.name for topic in topics), made, strict=True))
    return CreateTopicsResponse(topics=list(results.values()))


def _outcome(
    services: Services,
    exchange: Exchange,
    wanted: CreatableTopic,
    times_named: int,
    validate_only: bool,
) -> Generator[Step, None, CreatableTopicResult]:
    """What is answered about one topic."""
    try:
        if times_named > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        if not may_create_topic(services, exchange, wanted.name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        result = yield from _create(services, exchange, wanted, validate_only)
        return _without_secrets(services, exchange, result)
    except KafkaError as error:
        return _failed(wanted.name, error)


def _without_secrets(
    services: Services, exchange: Exchange, result: CreatableTopicResult
) -> CreatableTopicResult:
    """The settings are for those who may see settings."""
    if not allowed(
        services,
        exchange,
        Operation.DESCRIBE_CONFIGS,
        ResourceType.TOPIC,
        result.name,
        quiet=True,
    ):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions = result.replication_factor = -1
        result.configs = []
    return result


def _create(
    services: Services, exchange: Exchange, wanted: CreatableTopic, validate_only: bool
) -> Generator[Step, None, CreatableTopicResult]:
    partitions = wanted.num_partitions
    if wanted.assignments:
        partitions = _check_assignments(services, wanted)
    else:
        check_replication(wanted.replication_factor, services.config)
    configs = {}
    for config in wanted.configs:
        if config.value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {config.name}",
            )
        configs[config.name] = config.value
    if not validate_only:
        exchange.charge_mutations(services.config.num_partitions if partitions < 0 else partitions)
    topic = yield from services.topics.creating(
        wanted.name, partitions, configs, validate_only=validate_only
    )
    yield None  # the others that share its write have been waiting, too
    if partitions == -1:
        partitions = services.config.num_partitions
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=partitions,
        replication_factor=1,
        configs=[_config(entry) for entry in services.topics.describe(topic)],
    )


def _check_assignments(services: Services, wanted: CreatableTopic) -> int:
    for number, what in (
        (wanted.replication_factor, "replication factor"),
        (wanted.num_partitions, "numPartitions"),
    ):
        if number != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    indexes = [a.partition_index for a in wanted.assignments]
    if len(indexes) > PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    count = check_partitions(indexes)
    for assignment in wanted.assignments:
        check_replicas(assignment.broker_ids, services.config.broker_id)
    return count


def _config(entry: ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name,
        value=entry.value,
        read_only=entry.name not in LOG_SETTINGS,
        config_source=entry.source,
        is_sensitive=False,
    )


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=str(error))
