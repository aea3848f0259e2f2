"""DescribeTopicPartitions: topics page by page (KIP-966)."""

import uuid

from penstock_broker.wire.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UUID,
    UUID_ZERO,
    Struct,
    array,
    field,
)

API_KEY = 75
VERSIONS = range(1)
FLEXIBLE_FROM = 0


class DescribeTopicPartitionsRequestTopic(Struct):
    name: str = field(STRING)


class Cursor(Struct):
    """The partition that the next page begins with."""

    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class DescribeTopicPartitionsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """No topics asks for all of them."""

    topics: list[DescribeTopicPartitionsRequestTopic] = array(DescribeTopicPartitionsRequestTopic)
    response_partition_limit: int = field(INT32, default=2000)
    cursor: Cursor | None = field(Cursor, nullable_since=0, default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = field(INT16, default=0)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    eligible_leader_replicas: list[int] | None = array(INT32, nullable_since=0, default=None)
    last_known_elr: list[int] | None = array(INT32, nullable_since=0, default=None)
    offline_replicas: list[int] = array(INT32, default=())


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = field(INT16, default=0)
    name: str | None = field(STRING, nullable_since=0)
    topic_id: uuid.UUID = field(UUID, default=UUID_ZERO)
    is_internal: bool = field(BOOL, default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition, default=()
    )
    topic_authorized_operations: int = field(INT32, default=-(2**31))


class DescribeTopicPartitionsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = field(Cursor, nullable_since=0, default=None)
