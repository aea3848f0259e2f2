"""CreatePartitions (37), versions 0-3: let topics grow.

Behaviour:
* ``count`` is the new total; a count that is not larger is INVALID_PARTITIONS. Partitions are
  never taken away. Manual assignments must name this broker.

Version notes:
* v2: flexible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from penstock_broker.api.assignments import check_replicas, invalid
from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.steps import Step, in_batches, together
from penstock_broker.wire.messages.create_partitions import (
    API_KEY,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

PARTITIONS_AT_ONCE = 100
"""That topics get with one write of the metadata."""


def refuse(
    request: CreatePartitionsRequest, error: KafkaError, version: int
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_result(t.name, error) for t in request.topics])


@api(API_KEY, CreatePartitionsRequest, refuse=refuse)
def create_partitions(
    services: Services, exchange: Exchange, request: CreatePartitionsRequest
) -> Steps:
    named = Counter(topic.name for topic in request.topics)
    wanted = list({topic.name: topic for topic in request.topics}.values())
    results: list[CreatePartitionsTopicResult] = []
    for places in in_batches([_added(services, t) for t in wanted], PARTITIONS_AT_ONCE):
        topics = [wanted[place] for place in places]
        results += yield from together(
            [
                _outcome(services, exchange, topic, named[topic.name], request.validate_only)
                for topic in topics
            ]
        )
    return CreatePartitionsResponse(results=results)


def _added(services: Services, wanted: CreatePartitionsTopic) -> int:
    topic = services.metadata.topic(wanted.name)
    return 1 if topic is None else max(1, wanted.count - len(topic.partitions))


def _outcome(
    services: Services,
    exchange: Exchange,
    wanted: CreatePartitionsTopic,
    times_named: int,
    validate_only: bool,
) -> Generator[Step, None, CreatePartitionsTopicResult]:
    """What is answered about one topic."""
    try:
        if times_named > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        require(services, exchange, Operation.ALTER, ResourceType.TOPIC, wanted.name)
        yield from _grow(services, exchange, wanted, validate_only)
        return CreatePartitionsTopicResult(name=wanted.name)
    except KafkaError as error:
        return _result(wanted.name, error)


def _grow(
    services: Services, exchange: Exchange, wanted: CreatePartitionsTopic, validate_only: bool
) -> Generator[Step, None, None]:
    topic = services.topics.by_name(wanted.name)
    if wanted.assignments is not None:
        services.metadata.check_new_partitions(topic.name, wanted.count)
        added = wanted.count - len(topic.partitions)
        if len(wanted.assignments) != added:
            raise invalid(
                f"Attempted to add {added} additional partition(s), but only "
                f"{len(wanted.assignments)} assignment(s) were specified."
            )
        for assignment in wanted.assignments:
            check_replicas(assignment.broker_ids, services.config.broker_id)
    if not validate_only:
        exchange.charge_mutations(max(0, wanted.count - len(topic.partitions)))
    yield from services.topics.growing(topic, wanted.count, validate_only=validate_only)


def _result(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.detail)
