"""ListOffsets: the offset at an end of the log, or of the first record at or after a time."""

from penstock_broker.wire.schema import INT8, INT16, INT32, INT64, STRING, Struct, array, field

API_KEY = 2
VERSIONS = range(1, 10)
FLEXIBLE_FROM = 6

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
"""KIP-734: the record with the largest timestamp; from version 7."""
EARLIEST_LOCAL_TIMESTAMP = -4
"""KIP-405: the first offset that is not only in tiered storage; from version 8."""
LATEST_TIERED_TIMESTAMP = -5
"""KIP-1005: the last offset in tiered storage; from version 9."""


class ListOffsetsPartition(Struct):
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, default=-1)
    timestamp: int = field(INT64)


class ListOffsetsTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    replica_id: int = field(INT32, default=-1)
    isolation_level: int = field(INT8, since=2, default=0)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    timestamp: int = field(INT64, since=1, default=-1)
    offset: int = field(INT64, since=1, default=-1)
    leader_epoch: int = field(INT32, since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=2, default=0)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
