"""OffsetForLeaderEpoch (23), versions 2-4: where a leader epoch ended.

Behaviour:
* The largest known epoch at or before the one asked for, and the offset after its last record;
  -1 and -1 when there is none. Clients notice by it that a log was cut (KIP-320).

Version notes:
* v2: the client's current leader epoch is checked. v3: replica id. v4: flexible.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, may_replicate, require
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.wire.messages.offset_for_leader_epoch import (
    API_KEY,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def refuse(
    request: OffsetForLeaderEpochRequest, error: KafkaError, version: int
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=p.partition, error_code=error.code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@api(API_KEY, OffsetForLeaderEpochRequest, refuse=refuse)
def offset_for_leader_epoch(
    services: Services, exchange: Exchange, request: OffsetForLeaderEpochRequest
) -> Reply:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_look_up(services, exchange, topic.topic, p) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _look_up(
    services: Services, exchange: Exchange, topic: str, wanted: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        if not may_replicate(services, exchange):
            require(services, exchange, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        partition = services.replicas.partition(topic, wanted.partition)
        partition.check_leader_epoch(wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    epoch, end_offset = partition.end_of_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
