"""DescribeTransactions (65), version 0: the state of transactional ids (KIP-664).

Behaviour:
* State by Kafka's name, producer, timeout, when the transaction began (-1: none has), and the
  partitions that it has written to or whose marker is due.
* Per id: TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST for the empty one, NOT_COORDINATOR where its
  part of the internal topic cannot be read. Topics that the client may not describe are left out.
"""

from __future__ import annotations

from penstock_broker.api.authorization import Operation, ResourceType, allowed, require
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.registry import api
from penstock_broker.errors import KafkaError
from penstock_broker.wire.messages.describe_transactions import (
    API_KEY,
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


def refuse(
    request: DescribeTransactionsRequest, error: KafkaError, version: int
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribedTransaction(error_code=error.code, transactional_id=transactional_id)
            for transactional_id in request.transactional_ids
        ]
    )


@api(API_KEY, DescribeTransactionsRequest, refuse=refuse)
def describe_transactions(
    services: Services, exchange: Exchange, request: DescribeTransactionsRequest
) -> Steps:
    described = []
    for transactional_id in request.transactional_ids:
        try:
            described.append(_describe(services, exchange, transactional_id))
        except KafkaError as error:
            described.append(
                DescribedTransaction(error_code=error.code, transactional_id=transactional_id)
            )
        yield
    return DescribeTransactionsResponse(transaction_states=described)


def _describe(
    services: Services, exchange: Exchange, transactional_id: str
) -> DescribedTransaction:
    require(services, exchange, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    transaction = services.transactions.describe(transactional_id)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            DescribedTransactionTopic(topic=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
            if allowed(
                services, exchange, Operation.DESCRIBE, ResourceType.TOPIC, topic, quiet=True
            )
        ],
    )
