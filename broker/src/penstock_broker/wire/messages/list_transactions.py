"""ListTransactions: the transactional ids that a coordinator looks after (KIP-664)."""

from penstock_broker.wire.schema import INT16, INT32, INT64, STRING, Struct, array, field

API_KEY = 66
VERSIONS = range(2)
FLEXIBLE_FROM = 0


class ListTransactionsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """Empty filters let everything pass; `duration_filter` is in ms, -1 for none (KIP-994)."""

    state_filters: list[str] = array(STRING, default=())
    producer_id_filters: list[int] = array(INT64, default=())
    duration_filter: int = field(INT64, since=1, default=-1)


class ListedTransaction(Struct):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


class ListTransactionsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    unknown_state_filters: list[str] = array(STRING, default=())
    transaction_states: list[ListedTransaction] = array(ListedTransaction, default=())
