"""InitProducerId (22), versions 0-5: an identity for an idempotent producer.

Behaviour:
* Without a transactional id: always a new id with epoch 0, never given out again, not even after
  a kill of the broker. A producer that asks for its next epoch (v3) gets a new id as well.
* With a transactional id: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, since there are no transactions.

Version notes:
* v2: flexible. v3: producer id and epoch (KIP-360). v4: PRODUCER_FENCED exists.
* v5: the same bytes as v4; the client knows TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.init_producer_id import (
    API_KEY,
    InitProducerIdRequest,
    InitProducerIdResponse,
)


def refuse(
    request: InitProducerIdRequest, error: KafkaError, version: int
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code)


@api(API_KEY, InitProducerIdRequest, refuse=refuse)
def init_producer_id(
    services: Services, exchange: Exchange, request: InitProducerIdRequest
) -> Reply:
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "This broker has no transactions."
        )
    return InitProducerIdResponse(producer_id=services.next_producer_id(), producer_epoch=0)
