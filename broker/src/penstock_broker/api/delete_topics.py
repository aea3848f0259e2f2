"""DeleteTopics (20), versions 1-6: remove topics with everything in them.

Behaviour:
* The topic is gone from the metadata when the answer is sent; fetches that wait for it are
  answered, readers that are being sent its records keep the files until they are done, and the
  offsets that groups committed for it are deleted.
* ``delete.topic.enable=false`` gives TOPIC_DELETION_DISABLED.

Version notes:
* v4: flexible. v5: error message. v6: by name or by topic id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.steps import Step, in_batches, together
from penstock_broker.wire.fields import UUID_ZERO
from penstock_broker.wire.messages.delete_topics import (
    API_KEY,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

PARTITIONS_AT_ONCE = 100
"""Of topics that are deleted with one write of the metadata."""


def refuse(request: DeleteTopicsRequest, error: KafkaError, version: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[_failed(state, error) for state in _wanted(request, version)]
    )


@api(API_KEY, DeleteTopicsRequest, refuse=refuse)
def delete_topics(services: Services, exchange: Exchange, request: DeleteTopicsRequest) -> Steps:
    if not services.config.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED
        raise KafkaError(code if exchange.api_version >= 3 else ErrorCode.INVALID_REQUEST)
    wanted = _wanted(request, exchange.api_version)
    named = Counter((state.name, state.topic_id) for state in wanted)
    states = list({(state.name, state.topic_id): state for state in wanted}.values())
    sizes = [_partitions_of(services, state) for state in states]
    results: list[DeletableTopicResult] = []
    for places in in_batches(sizes, PARTITIONS_AT_ONCE):
        some = [states[place] for place in places]
        results += yield from together(
            [_outcome(services, exchange, s, named[s.name, s.topic_id]) for s in some]
        )
    return DeleteTopicsResponse(responses=results)


def _partitions_of(services: Services, state: DeleteTopicState) -> int:
    name = state.name
    topic = services.metadata.topic_by_id(state.topic_id)
    topic = topic if name is None else services.metadata.topic(name)
    return 1 if topic is None else len(topic.partitions)


def _outcome(
    services: Services, exchange: Exchange, state: DeleteTopicState, times_named: int
) -> Generator[Step, None, DeletableTopicResult]:
    """What is answered about one topic."""
    try:
        if times_named > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        return (yield from _delete(services, exchange, state))
    except KafkaError as error:
        return _failed(state, error)


def _delete(
    services: Services, exchange: Exchange, state: DeleteTopicState
) -> Generator[Step, None, DeletableTopicResult]:
    if state.name is not None and state.topic_id != UUID_ZERO:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if state.name is None and state.topic_id == UUID_ZERO:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if state.name is None:
        topic = services.topics.by_id(state.topic_id)
    else:
        require(services, exchange, Operation.DELETE, ResourceType.TOPIC, state.name)
        topic = services.topics.by_name(state.name)
    require(services, exchange, Operation.DELETE, ResourceType.TOPIC, topic.name)
    exchange.charge_mutations(len(topic.partitions))
    yield from services.topics.deleting(topic)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _wanted(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    if version >= 6:
        return request.topics
    return [DeleteTopicState(name=name) for name in request.topic_names]


def _failed(state: DeleteTopicState, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=error.code, error_message=str(error)
    )
