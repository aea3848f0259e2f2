"""DeleteRecords (21), versions 0-2: move the start of partitions up.

Behaviour:
* Records before the offset are out of range from the answer on, also after a restart; whole
  segments before it are removed. -1 means the high watermark; beyond it is out of range.
* POLICY_VIOLATION where cleanup.policy does not have delete, as a compacted topic.
* The answer carries the low watermark, which is the new log start.

Version notes:
* v2: flexible.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import INTERNAL_TOPICS
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.replication.partition import Partition
from penstock_broker.steps import Commit
from penstock_broker.wire.messages.delete_records import (
    API_KEY,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


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
def delete_records(services: Services, exchange: Exchange, request: DeleteRecordsRequest) -> Steps:
    """All starts are moved, written down together by a thread, and only then segments go."""
    found: dict[int, Partition | KafkaError] = {}
    moved: list[DeleteRecordsPartition] = []
    for topic in request.topics:
        for wanted in topic.partitions:
            try:
                require(services, exchange, Operation.DELETE, ResourceType.TOPIC, topic.name)
                partition = _partition(services, topic.name, wanted)
                if partition.advance_start(wanted.offset):
                    moved.append(wanted)
                found[id(wanted)] = partition
            except KafkaError as error:
                found[id(wanted)] = error
            yield
    if moved:
        try:
            yield Commit(services.replicas.logs.log_starts_job())
        except OSError as error:
            problem = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot keep it: {error}")
            found |= {id(wanted): problem for wanted in moved}
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_result(wanted, found[id(wanted)]) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _partition(services: Services, topic: str, wanted: DeleteRecordsPartition) -> Partition:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = services.replicas.partition(topic, wanted.partition_index)
    if "delete" not in partition.log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "The topic's cleanup.policy is not to delete.")
    return partition


def _result(
    wanted: DeleteRecordsPartition, found: Partition | KafkaError
) -> DeleteRecordsPartitionResult:
    if isinstance(found, KafkaError):
        return _failed(wanted, found)
    try:
        found.log.delete_old_segments()
    except KafkaError as error:
        return _failed(wanted, error)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=found.log_start_offset
    )


def _failed(wanted: DeleteRecordsPartition, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, error_code=error.code
    )
