"""TxnOffsetCommit (28), versions 0-4: how far a group has come, if the transaction commits.

Behaviour:
* Written to ``__consumer_offsets`` as part of the transaction; OffsetFetch says the old offsets,
  or UNSTABLE_OFFSET_COMMIT to clients that ask for stable ones, until the marker is there.
* AddOffsetsToTxn comes first: INVALID_TXN_STATE where it did not (KIP-890).
* A member commits for its current generation (v3, KIP-447); a producer that names no member, as
  all did before v3, whatever the group is doing.

Version notes:
* v0-v1: COORDINATOR_NOT_AVAILABLE instead of COORDINATOR_LOAD_IN_PROGRESS. v2: leader epochs.
* v3: flexible; member id, generation and instance id.
* v4: TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE (KIP-890).
* v5 adds the group to the transaction by itself (transaction version 2) and is not offered.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock_broker.api.authorization import Operation, ResourceType, allowed, require
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.log.keys import TopicPartition
from penstock_broker.wire.messages.txn_offset_commit import (
    API_KEY,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_SINCE = 2
ABORTABLE_SINCE = 4


def refuse(
    request: TxnOffsetCommitRequest, error: KafkaError, version: int
) -> TxnOffsetCommitResponse:
    return _response(request, {}, _code(error.code, version))


def _code(code: ErrorCode, version: int) -> ErrorCode:
    """What a client makes sense of where the coordinator of transactions says no."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


@api(API_KEY, TxnOffsetCommitRequest, refuse=refuse)
def txn_offset_commit(
    services: Services, exchange: Exchange, request: TxnOffsetCommitRequest
) -> Reply:
    transactional_id, group_id = request.transactional_id, request.group_id
    require(services, exchange, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    require(services, exchange, Operation.READ, ResourceType.GROUP, group_id)
    now_ms = services.clock.now_ms()
    codes: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in request.topics:
        may_read = allowed(services, exchange, Operation.READ, ResourceType.TOPIC, topic.name)
        for partition in topic.partitions:
            place = (topic.name, partition.partition_index)
            if not may_read:
                codes[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif services.topics.has_partition(*place):
                offsets[place] = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now_ms,
                )
    if offsets:
        services.offsets.ensure_topic()
        _verify(services, request)
        codes |= services.groups.offsets.commit(
            group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            offsets,
            producer=(request.producer_id, request.producer_epoch),
        )
    return _response(request, codes, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _verify(services: Services, request: TxnOffsetCommitRequest) -> None:
    """KafkaError unless the group's partition is part of the transaction."""
    index = services.offsets.partition_of(request.group_id)
    partition = services.replicas.find(OFFSETS_TOPIC, index)
    if partition is not None and partition.has_open_transaction(request.producer_id):
        return
    services.transactions.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(OFFSETS_TOPIC, index)],
    )


def _response(
    request: TxnOffsetCommitRequest,
    codes: Mapping[TopicPartition, ErrorCode],
    others: ErrorCode,
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=codes.get((topic.name, p.partition_index), others),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
