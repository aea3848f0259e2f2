"""DeleteRecords (21), versions 0-2: move the start of partitions up.

Behaviour:
* Records before the offset are out of range from the answer on, also after a restart; whole
  segments before it are removed. -1 stands for the high watermark; beyond it is out of range.
* POLICY_VIOLATION where cleanup.policy does not have delete, as a compacted topic.
* The answer carries the low watermark, which is the new log start.

Version notes:
* v2: flexible.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import INTERNAL_TOPICS
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.delete_records import (
    API_KEY,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


def refuse(request: DeleteRecordsRequest, error: KafkaError, version: int) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_failed(p, error) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )


@api(API_KEY, DeleteRecordsRequest, refuse=refuse)
def delete_records(services: Services, exchange: Exchange, request: DeleteRecordsRequest) -> Reply:
    response = DeleteRecordsResponse(topics=[])
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            try:
                require(services, exchange, Operation.DELETE, ResourceType.TOPIC, topic.name)
                results.append(_delete(services, topic.name, wanted))
            except KafkaError as error:
                results.append(_failed(wanted, error))
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return response


def _delete(
    services: Services, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = services.replicas.partition(topic, wanted.partition_index)
    if "delete" not in partition.log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "The topic's cleanup.policy is not to delete.")
    offset = wanted.offset
    if offset == HIGH_WATERMARK:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    low_watermark = partition.delete_records(offset)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark
    )


def _failed(wanted: DeleteRecordsPartition, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, error_code=error.code
    )
