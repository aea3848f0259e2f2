"""DescribeProducers: the producers that partitions remember (KIP-664)."""

from penstock_broker.wire.schema import INT16, INT32, INT64, STRING, Struct, array, field

API_KEY = 61
VERSIONS = range(1)
FLEXIBLE_FROM = 0


class DescribeProducersRequestTopic(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = array(INT32)


class DescribeProducersRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    topics: list[DescribeProducersRequestTopic] = array(DescribeProducersRequestTopic)


class ProducerState(Struct):
    """-1 means none: no sequence, no timestamp, no coordinator, no transaction."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32, default=-1)
    current_txn_start_offset: int = field(INT64, default=-1)


class DescribeProducersPartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable_since=0, default=None)
    active_producers: list[ProducerState] = array(ProducerState, default=())


class DescribeProducersTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[DescribeProducersPartitionResponse] = array(DescribeProducersPartitionResponse)


class DescribeProducersResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse)
