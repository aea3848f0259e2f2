"""Fetch: read record batches, as consumer (`replica_id` -1) or as follower.

Topics are named to version 12, and known by their id from version 13 on (KIP-516).
"""

import uuid
from collections.abc import Sized

from penstock_broker.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    UUID_ZERO,
    Struct,
    array,
    field,
)

API_KEY = 1
VERSIONS = range(4, 18)
FLEXIBLE_FROM = 12


class FetchPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, default=-1)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: uuid.UUID = field(UUID, since=17, tag=0, default=UUID_ZERO)


class FetchTopic(Struct):
    topic: str = field(STRING, until=12, default="")
    topic_id: uuid.UUID = field(UUID, since=13, default=UUID_ZERO)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = field(STRING, since=7, until=12, default="")
    topic_id: uuid.UUID = field(UUID, since=13, default=UUID_ZERO)
    partitions: list[int] = array(INT32, since=7)


class ReplicaState(Struct):
    replica_id: int = field(INT32, since=15, default=-1)
    replica_epoch: int = field(INT64, since=15, default=-1)


class FetchRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """`isolation_level` 1 is read_committed; sessions as in KIP-227."""

    replica_id: int = field(INT32, until=14, default=-1)
    replica_state: ReplicaState | None = field(ReplicaState, since=15, tag=1, default=None)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, since=3, default=0x7FFFFFFF)
    isolation_level: int = field(INT8, since=4, default=0)
    session_id: int = field(INT32, since=7, default=0)
    session_epoch: int = field(INT32, since=7, default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7, default=())
    rack_id: str = field(STRING, since=11, default="")
    cluster_id: str | None = field(STRING, since=12, nullable_since=12, tag=0, default=None)


class EpochEndOffset(Struct):
    epoch: int = field(INT32, since=12, default=-1)
    end_offset: int = field(INT64, since=12, default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, since=12, default=-1)
    leader_epoch: int = field(INT32, since=12, default=-1)


class SnapshotId(Struct):
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field(INT64, since=4)
    first_offset: int = field(INT64, since=4)


class PartitionData(Struct):
    """`records` may be anything with a length: the encoder passes it on as a part of its own."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, since=4, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    diverging_epoch: EpochEndOffset | None = field(EpochEndOffset, since=12, tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, since=12, tag=1, default=None)
    snapshot_id: SnapshotId | None = field(SnapshotId, since=12, tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, since=4, nullable_since=4, default=None
    )
    preferred_read_replica: int = field(INT32, since=11, default=-1)
    records: Sized | None = field(RECORDS, nullable_since=0, default=None)


class FetchableTopicResponse(Struct):
    topic: str = field(STRING, until=12, default="")
    topic_id: uuid.UUID = field(UUID, since=13, default=UUID_ZERO)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = field(INT32, since=16)
    host: str = field(STRING, since=16)
    port: int = field(INT32, since=16)
    rack: str | None = field(STRING, since=16, nullable_since=16, default=None)


class FetchResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=1, default=0)
    error_code: int = field(INT16, since=7, default=0)
    session_id: int = field(INT32, since=7, default=0)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0, default=())
