"""OffsetCommit: a group's progress, by topic name."""

from penstock_broker.wire.schema import INT16, INT32, INT64, STRING, Struct, array, field

API_KEY = 8
VERSIONS = range(2, 10)
FLEXIBLE_FROM = 8


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=6, default=-1)
    committed_metadata: str | None = field(STRING, nullable_since=0, default=None)


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, since=1, default=-1)
    member_id: str = field(STRING, since=1, default="")
    group_instance_id: str | None = field(STRING, since=7, nullable_since=7, default=None)
    retention_time_ms: int = field(INT64, since=2, until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=3, default=0)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
