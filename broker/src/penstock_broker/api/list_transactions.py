"""ListTransactions (66), versions 0-1: the transactional ids that there are (KIP-664).

Behaviour:
* Filters by state and by producer id; names that no state has come back as unknown. Ids that the
  client may not describe are left out.

Version notes:
* v1: only those whose transaction began longer ago than so many ms (KIP-994).
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, allowed
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.wire.messages.list_transactions import (
    API_KEY,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)


def refuse(
    request: ListTransactionsRequest, error: KafkaError, version: int
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code)


@api(API_KEY, ListTransactionsRequest, refuse=refuse)
def list_transactions(
    services: Services, exchange: Exchange, request: ListTransactionsRequest
) -> Reply:
    found, unknown = services.transactions.find(
        request.state_filters, set(request.producer_id_filters), request.duration_filter
    )
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.title,
            )
            for transaction in found
            if allowed(
                services,
                exchange,
                Operation.DESCRIBE,
                ResourceType.TRANSACTIONAL_ID,
                transaction.transactional_id,
                quiet=True,
            )
        ],
    )
