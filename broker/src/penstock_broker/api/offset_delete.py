"""OffsetDelete (47), version 0: delete a group's offsets of some partitions.

Behaviour:
* GROUP_SUBSCRIBED_TO_TOPIC where a member still consumes the topic; NON_EMPTY_GROUP when the
  members' subscriptions cannot be read (not consumers); GROUP_ID_NOT_FOUND for an unknown group.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, allowed, require
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.offset_delete import (
    API_KEY,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def refuse(request: OffsetDeleteRequest, error: KafkaError, version: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)


@api(API_KEY, OffsetDeleteRequest, refuse=refuse)
def offset_delete(services: Services, exchange: Exchange, request: OffsetDeleteRequest) -> Reply:
    require(services, exchange, Operation.DELETE, ResourceType.GROUP, request.group_id)
    denied = {
        topic.name
        for topic in request.topics
        if not allowed(services, exchange, Operation.READ, ResourceType.TOPIC, topic.name)
    }
    known = [
        (topic.name, p.partition_index)
        for topic in request.topics
        for p in topic.partitions
        if topic.name not in denied and services.topics.has_partition(topic.name, p.partition_index)
    ]
    codes = services.groups.offsets.delete(request.group_id, known)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=p.partition_index,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        if topic.name in denied
                        else codes.get(
                            (topic.name, p.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
