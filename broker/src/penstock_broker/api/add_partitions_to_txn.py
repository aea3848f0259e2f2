"""AddPartitionsToTxn (24), versions 0-3: partitions that a transaction is about to write to.

Behaviour:
* The first partitions begin the transaction; from here on its timeout counts.
* All or none: where one does not exist (UNKNOWN_TOPIC_OR_PARTITION) or may not be written to, the
  others get OPERATION_NOT_ATTEMPTED. The broker's own topics are TOPIC_AUTHORIZATION_FAILED.
* CONCURRENT_TRANSACTIONS while the markers of the last transaction are being written;
  INVALID_PRODUCER_ID_MAPPING where the transactional id is another producer's, or unknown.

Version notes:
* v2: PRODUCER_FENCED; INVALID_PRODUCER_EPOCH before. v3: flexible.
* v4 and later have several transactions in one request and are for brokers (KIP-890).
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock_broker.api.authorization import Operation, ResourceType, allowed, require
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.fencing import code_for
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import INTERNAL_TOPICS
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.keys import TopicPartition
from penstock_broker.wire.messages.add_partitions_to_txn import (
    API_KEY,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

FENCED_SINCE = 2


def refuse(
    request: AddPartitionsToTxnRequest, error: KafkaError, version: int
) -> AddPartitionsToTxnResponse:
    return _response(request, {}, code_for(error, version, FENCED_SINCE))


@api(API_KEY, AddPartitionsToTxnRequest, refuse=refuse)
def add_partitions_to_txn(
    services: Services, exchange: Exchange, request: AddPartitionsToTxnRequest
) -> Reply:
    transactional_id = request.v3_and_below_transactional_id
    require(services, exchange, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    wrong: dict[TopicPartition, ErrorCode] = {}
    partitions = set()
    for topic in request.v3_and_below_topics:
        name = topic.name
        may_write = name not in INTERNAL_TOPICS and allowed(
            services, exchange, Operation.WRITE, ResourceType.TOPIC, name
        )
        for index in topic.partitions:
            if not may_write:
                wrong[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not services.replicas.has_partition(name, index):
                wrong[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                partitions.add((name, index))
    if wrong:
        return _response(request, wrong, ErrorCode.OPERATION_NOT_ATTEMPTED)
    services.transactions.add_partitions(
        transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        partitions,
    )
    return _response(request, {}, ErrorCode.NONE)


def _response(
    request: AddPartitionsToTxnRequest,
    codes: Mapping[TopicPartition, ErrorCode],
    others: ErrorCode,
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=codes.get((topic.name, index), others),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
