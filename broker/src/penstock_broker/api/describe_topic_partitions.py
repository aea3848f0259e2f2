"""DescribeTopicPartitions (75), version 0: topics page by page, in the order of their names.

Behaviour:
* The topics that are named, or all of them, sorted. No more partitions than the client's limit and
  ``max.request.partition.size.limit``; a cursor in the answer says where the next page begins.
* An unknown topic is UNKNOWN_TOPIC_OR_PARTITION, an invalid name INVALID_TOPIC_EXCEPTION. A cursor
  before the first topic or after it skips all partitions before it.
* A partition whose log is offline has no leader. There are no eligible leader replicas beside the
  in-sync set (KIP-966): one broker is the only replica.

Version notes:
* v0: made for clients whose topics have more partitions than one Metadata answer should hold.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, allowed, operations
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import Topic, check_topic_name
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.describe_topic_partitions import (
    API_KEY,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PARTITIONS_MAX = 2_000
"""The default of Kafka's ``max.request.partition.size.limit``."""


def refuse(
    request: DescribeTopicPartitionsRequest, error: KafkaError, version: int
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name)
            for topic in request.topics
        ]
    )


@api(API_KEY, DescribeTopicPartitionsRequest, refuse=refuse)
def describe_topic_partitions(
    services: Services, exchange: Exchange, request: DescribeTopicPartitionsRequest
) -> Reply:
    named = {topic.name for topic in request.topics}
    names = named or _known_to(services, exchange)
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"DescribeTopicPartitionsRequest cursor partition must be valid: {cursor}",
        )
    first = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in sorted(names):
        if name < first[0]:
            continue
        if named and not allowed(services, exchange, Operation.DESCRIBE, ResourceType.TOPIC, name):
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name
                )
            )
            continue
        topic = services.metadata.topic(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        begin = first[1] if name == first[0] else 0
        if left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=begin)
            break
        end = min(len(topic.partitions), begin + left)
        response.topics.append(_describe(services, topic, begin, end))
        response.topics[-1].topic_authorized_operations = operations(
            services, exchange, ResourceType.TOPIC, name
        )
        left -= max(0, end - begin)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _known_to(services: Services, exchange: Exchange) -> set[str]:
    """The topics that the client may know of."""
    return {
        name
        for name in services.metadata.topics
        if allowed(services, exchange, Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True)
    }


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _describe(
    services: Services, topic: Topic, begin: int, end: int
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for part in topic.partitions[begin:end]:
        partition = services.replicas.find(topic.name, part.index)
        online = partition is not None and partition.is_online
        replicas = list(part.replicas)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if online else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=part.index,
                leader_id=part.leader if online else -1,
                leader_epoch=part.leader_epoch,
                replica_nodes=replicas,
                isr_nodes=list(part.isr) if online else [],
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[] if online else replicas,
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
    )
