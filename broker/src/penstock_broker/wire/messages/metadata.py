"""Metadata: brokers, topics, partitions and their leaders."""

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

API_KEY = 3
VERSIONS = range(13)
FLEXIBLE_FROM = 9

OPERATIONS_NOT_ASKED = -(2**31)
"""The value of `..._authorized_operations` when the client did not ask for them."""


class MetadataRequestTopic(Struct):
    topic_id: uuid.UUID = field(UUID, since=10, default=UUID_ZERO)
    name: str | None = field(STRING, nullable_since=10)


class MetadataRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    """`topics` null asks for all topics; so does an empty list in version 0."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
    allow_auto_topic_creation: bool = field(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = field(BOOL, since=8, until=10, default=False)
    include_topic_authorized_operations: bool = field(BOOL, since=8, default=False)


class MetadataResponseBroker(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, since=1, nullable_since=1, default=None)


class MetadataResponsePartition(Struct):
    error_code: int = field(INT16, default=0)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, since=7, default=-1)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    offline_replicas: list[int] = array(INT32, since=5, default=())


class MetadataResponseTopic(Struct):
    error_code: int = field(INT16, default=0)
    name: str | None = field(STRING, nullable_since=12)
    topic_id: uuid.UUID = field(UUID, since=10, default=UUID_ZERO)
    is_internal: bool = field(BOOL, since=1, default=False)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = field(INT32, since=8, default=OPERATIONS_NOT_ASKED)


class MetadataResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=3, default=0)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = field(STRING, since=2, nullable_since=2, default=None)
    controller_id: int = field(INT32, since=1, default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = field(
        INT32, since=8, until=10, default=OPERATIONS_NOT_ASKED
    )
