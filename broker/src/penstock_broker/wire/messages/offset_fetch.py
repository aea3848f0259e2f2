"""OffsetFetch: committed offsets of one group (to version 7) or of several."""

from penstock_broker.wire.schema import BOOL, INT16, INT32, INT64, STRING, Struct, array, field

API_KEY = 9
VERSIONS = range(1, 10)
FLEXIBLE_FROM = 6


class OffsetFetchRequestTopic(Struct):
    name: str = field(STRING, until=7)
    partition_indexes: list[int] = array(INT32, until=7)


class OffsetFetchRequestTopics(Struct):
    name: str = field(STRING, since=8)
    partition_indexes: list[int] = array(INT32, since=8)


class OffsetFetchRequestGroup(Struct):
    group_id: str = field(STRING, since=8)
    member_id: str | None = field(STRING, since=9, nullable_since=9, default=None)
    member_epoch: int = field(INT32, since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, since=8, nullable_since=8, default=None
    )


class OffsetFetchRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """`topics` None asks for every topic that the group has offsets of."""

    group_id: str = field(STRING, until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable_since=2, default=None
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8, default=())
    require_stable: bool = field(BOOL, since=7, default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field(INT32, until=7)
    committed_offset: int = field(INT64, until=7)
    committed_leader_epoch: int = field(INT32, since=5, until=7, default=-1)
    metadata: str | None = field(STRING, until=7, nullable_since=0, default="")
    error_code: int = field(INT16, until=7, default=0)


class OffsetFetchResponseTopic(Struct):
    name: str = field(STRING, until=7)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = field(INT32, since=8)
    committed_offset: int = field(INT64, since=8)
    committed_leader_epoch: int = field(INT32, since=8, default=-1)
    metadata: str | None = field(STRING, since=8, nullable_since=8, default="")
    error_code: int = field(INT16, since=8, default=0)


class OffsetFetchResponseTopics(Struct):
    name: str = field(STRING, since=8)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(STRING, since=8)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8, default=())
    error_code: int = field(INT16, since=8, default=0)


class OffsetFetchResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=3, default=0)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7, default=())
    error_code: int = field(INT16, since=2, until=7, default=0)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8, default=())
