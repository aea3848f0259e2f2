"""AddOffsetsToTxn (25), versions 0-4: a transaction is about to commit offsets of a group.

Behaviour:
* The partition of ``__consumer_offsets`` that the group's offsets are in becomes part of the
  transaction, as AddPartitionsToTxn does with partitions; the errors are the same.

Version notes:
* v2: PRODUCER_FENCED; INVALID_PRODUCER_EPOCH before. v3: flexible.
* v4: the same bytes; the client knows TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.fencing import code_for
from penstock_broker.api.registry import api
from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.errors import KafkaError
from penstock_broker.wire.messages.add_offsets_to_txn import (
    API_KEY,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

FENCED_SINCE = 2


def refuse(
    request: AddOffsetsToTxnRequest, error: KafkaError, version: int
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code_for(error, version, FENCED_SINCE))


@api(API_KEY, AddOffsetsToTxnRequest, refuse=refuse)
def add_offsets_to_txn(
    services: Services, exchange: Exchange, request: AddOffsetsToTxnRequest
) -> Reply:
    transactional_id, group_id = request.transactional_id, request.group_id
    require(services, exchange, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    require(services, exchange, Operation.READ, ResourceType.GROUP, group_id)
    services.offsets.ensure_topic()
    services.transactions.add_partitions(
        transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(OFFSETS_TOPIC, services.offsets.partition_of(group_id))],
    )
    return AddOffsetsToTxnResponse()
