"""OffsetCommit (8), versions 2-9: how far a group has come.

Behaviour:
* Members commit for their current generation; "simple" consumers (generation -1, no member) only
  while the group is empty. Acknowledged when it is in the internal topic.
* A partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION, the others are committed.

Version notes:
* v2-v4: a retention time of the client's own counts instead of the broker's (KIP-211).
* v6: leader epoch. v7: static members. v8: flexible.
* v9: the member epoch of consumer groups (KIP-848) instead of the generation; groups here are
  classic. A member's unknown group is GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, allowed, require
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.log.keys import TopicPartition
from penstock_broker.wire.messages.offset_commit import (
    API_KEY,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def refuse(request: OffsetCommitRequest, error: KafkaError, version: int) -> OffsetCommitResponse:
    return _response(request, {}, error.code)


@api(API_KEY, OffsetCommitRequest, refuse=refuse)
def offset_commit(services: Services, exchange: Exchange, request: OffsetCommitRequest) -> Reply:
    require(services, exchange, Operation.READ, ResourceType.GROUP, request.group_id)
    denied: dict[TopicPartition, ErrorCode] = {}
    now_ms = services.clock.now_ms()
    retention_ms = request.retention_time_ms
    expire_ms = now_ms + retention_ms if retention_ms >= 0 else -1
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in request.topics:
        may_read = allowed(services, exchange, Operation.READ, ResourceType.TOPIC, topic.name)
        for partition in topic.partitions:
            if not may_read:
                denied[topic.name, partition.partition_index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif services.topics.has_partition(topic.name, partition.partition_index):
                offsets[topic.name, partition.partition_index] = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now_ms,
                    expire_ms,
                )
    services.offsets.ensure_topic()
    codes = services.groups.offsets.commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
        unknown_group=ErrorCode.GROUP_ID_NOT_FOUND
        if exchange.api_version >= 9
        else ErrorCode.ILLEGAL_GENERATION,
    )
    return _response(request, {**codes, **denied}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _response(
    request: OffsetCommitRequest, codes: dict[TopicPartition, ErrorCode], missing: ErrorCode
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=codes.get((topic.name, p.partition_index), missing),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
