"""DescribeTransactions: the state of transactional ids (KIP-664)."""

from penstock_broker.wire.schema import INT16, INT32, INT64, STRING, Struct, array, field

API_KEY = 65
VERSIONS = range(1)
FLEXIBLE_FROM = 0


class DescribeTransactionsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    transactional_ids: list[str] = array(STRING)


class DescribedTransactionTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = array(INT32)


class DescribedTransaction(Struct):
    """`transaction_start_time_ms` -1 where none is open."""

    error_code: int = field(INT16, default=0)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING, default="")
    transaction_timeout_ms: int = field(INT32, default=0)
    transaction_start_time_ms: int = field(INT64, default=0)
    producer_id: int = field(INT64, default=0)
    producer_epoch: int = field(INT16, default=0)
    topics: list[DescribedTransactionTopic] = array(DescribedTransactionTopic, default=())


class DescribeTransactionsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction)
