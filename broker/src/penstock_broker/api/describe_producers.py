"""DescribeProducers (61), version 0: the producers that partitions remember (KIP-664).

Behaviour:
* Of each producer with a batch in the partition that has not expired yet: epoch, last sequence,
  when it last wrote by the broker's clock, and where its open transaction begins.
* Per partition: INVALID_TOPIC_EXCEPTION for an impossible name, UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import check_topic_name
from penstock_broker.errors import KafkaError
from penstock_broker.wire.messages.describe_producers import (
    API_KEY,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ProducerState,
)


def refuse(
    request: DescribeProducersRequest, error: KafkaError, version: int
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name=topic.name,
                partitions=[_failed(index, error) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


@api(API_KEY, DescribeProducersRequest, refuse=refuse)
def describe_producers(
    services: Services, exchange: Exchange, request: DescribeProducersRequest
) -> Steps:
    response = DescribeProducersResponse(topics=[])
    for topic in request.topics:
        answers = []
        for index in topic.partition_indexes:
            try:
                check_topic_name(topic.name)
                require(services, exchange, Operation.READ, ResourceType.TOPIC, topic.name)
                answers.append(_describe(services, topic.name, index))
            except KafkaError as error:
                answers.append(_failed(index, error))
            yield
        response.topics.append(DescribeProducersTopicResponse(name=topic.name, partitions=answers))
    return response


def _describe(services: Services, topic: str, index: int) -> DescribeProducersPartitionResponse:
    producers = services.replicas.partition(topic, index).log.producers
    begun = producers.transactions.begun
    return DescribeProducersPartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_append_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=begun.get(producer_id, -1),
            )
            for producer_id, entry in producers.producers().items()
        ],
    )


def _failed(index: int, error: KafkaError) -> DescribeProducersPartitionResponse:
    return DescribeProducersPartitionResponse(
        partition_index=index, error_code=error.code, error_message=str(error)
    )
