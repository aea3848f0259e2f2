"""InitProducerId (22), versions 0-5: an identity for an idempotent or transactional producer.

Behaviour:
* Without a transactional id: always a new id with epoch 0, never given out again, not even after
  a kill of the broker. A producer that asks for its next epoch (v3) gets a new id as well.
* With one: the same producer id each time, with the next epoch, which fences every earlier
  instance. A transaction that one of them has left open is aborted; until its markers are written
  the answer is CONCURRENT_TRANSACTIONS.
* A producer that sends its id and epoch (v3, KIP-360) gets the next epoch; the current one again
  for a retry of the request that gave it; PRODUCER_FENCED when another producer has begun since.
* Epochs end at 32,766; then the transactional id gets a new producer id.
* A timeout above ``transaction.max.timeout.ms``, or none: INVALID_TRANSACTION_TIMEOUT.
* Nothing is given out whose record could not be written.

Version notes:
* v2: flexible. v3: producer id and epoch (KIP-360).
* v4: PRODUCER_FENCED; INVALID_PRODUCER_EPOCH before. v5: the same bytes; the client knows
  TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from penstock_broker.api.authorization import (
    Operation,
    ResourceType,
    may_write_idempotently,
    require,
)
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.fencing import code_for
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.transactions.transaction import NO_EPOCH
from penstock_broker.wire.messages.init_producer_id import (
    API_KEY,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock_broker.wire.records import NO_PRODUCER_ID

FENCED_SINCE = 4


def refuse(
    request: InitProducerIdRequest, error: KafkaError, version: int
) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code_for(error, version, FENCED_SINCE), producer_epoch=NO_EPOCH
    )


@api(API_KEY, InitProducerIdRequest, refuse=refuse)
def init_producer_id(
    services: Services, exchange: Exchange, request: InitProducerIdRequest
) -> Reply:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        require(
            services, exchange, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        )
    elif not may_write_idempotently(services, exchange):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    knows_id = request.producer_id != NO_PRODUCER_ID
    if knows_id != (request.producer_epoch != NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return InitProducerIdResponse(producer_id=services.next_producer_id(), producer_epoch=0)
    producer_id, epoch = services.transactions.init_producer_id(
        transactional_id,
        request.transaction_timeout_ms,
        (request.producer_id, request.producer_epoch) if knows_id else None,
    )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
