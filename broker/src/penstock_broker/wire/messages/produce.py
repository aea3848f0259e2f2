"""Produce: append record batches. `acks=0` has no response at all."""

from penstock_broker.wire.schema import INT16, INT32, INT64, RECORDS, STRING, Struct, array, field

API_KEY = 0
VERSIONS = range(3, 12)
FLEXIBLE_FROM = 9


class PartitionProduceData(Struct):
    """`records` is a view into the request's frame."""

    index: int = field(INT32)
    records: memoryview | None = field(RECORDS, nullable_since=0)


class TopicProduceData(Struct):
    name: str = field(STRING)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    transactional_id: str | None = field(STRING, since=3, nullable_since=3, default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field(INT32, since=8)
    batch_index_error_message: str | None = field(STRING, since=8, nullable_since=8, default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, since=10, default=-1)
    leader_epoch: int = field(INT32, since=10, default=-1)


class PartitionProduceResponse(Struct):
    index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, since=2, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, default=()
    )
    error_message: str | None = field(STRING, since=8, nullable_since=8, default=None)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, since=10, tag=0, default=None)


class TopicProduceResponse(Struct):
    name: str = field(STRING)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = field(INT32, since=10)
    host: str = field(STRING, since=10)
    port: int = field(INT32, since=10)
    rack: str | None = field(STRING, since=10, nullable_since=10, default=None)


class ProduceResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = field(INT32, since=1, default=0)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0, default=())
