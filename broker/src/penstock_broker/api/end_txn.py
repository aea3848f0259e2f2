"""EndTxn (26), versions 0-4: commit or abort.

Behaviour:
* Answered when it is decided. The markers are written right after that, and again after a restart
  until they all are; read_committed consumers see them partition by partition.
* A retry of what has been done succeeds; while markers are being written it is
  CONCURRENT_TRANSACTIONS, which clients retry. The opposite of what was decided, or the end of
  what was never begun, is INVALID_TXN_STATE. An error that clients may retry is never sent as
  UNKNOWN_SERVER_ERROR.

Version notes:
* v2: PRODUCER_FENCED; INVALID_PRODUCER_EPOCH before. v3: flexible.
* v4: the same bytes; the client knows TRANSACTION_ABORTABLE (KIP-890).
* v5 bumps the epoch with each transaction (transaction version 2) and is not offered.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.fencing import code_for
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.wire.messages.end_txn import API_KEY, EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2


def refuse(request: EndTxnRequest, error: KafkaError, version: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=code_for(error, version, FENCED_SINCE))


@api(API_KEY, EndTxnRequest, refuse=refuse)
def end_txn(services: Services, exchange: Exchange, request: EndTxnRequest) -> Reply:
    transactional_id = request.transactional_id
    require(services, exchange, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    services.transactions.end(
        transactional_id,
        request.producer_id,
        request.producer_epoch,
        commit=request.committed,
    )
    return EndTxnResponse()
