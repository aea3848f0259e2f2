"""OffsetDelete: delete a group's offsets of partitions."""

from penstock_broker.wire.schema import INT16, INT32, STRING, Struct, array, field

API_KEY = 47
VERSIONS = range(1)
FLEXIBLE_FROM = None


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(INT32)


class OffsetDeleteRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)


class OffsetDeleteResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    error_code: int = field(INT16, default=0)
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, default=())
