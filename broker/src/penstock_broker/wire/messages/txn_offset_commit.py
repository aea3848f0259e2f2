"""TxnOffsetCommit: offsets that count when the transaction commits."""

from penstock_broker.wire.schema import INT16, INT32, INT64, STRING, Struct, array, field

API_KEY = 28
VERSIONS = range(5)
FLEXIBLE_FROM = 3


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=2, default=-1)
    committed_metadata: str | None = field(STRING, nullable_since=0, default=None)


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id: int = field(INT32, since=3, default=-1)
    member_id: str = field(STRING, since=3, default="")
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
