"""CreateTopics."""

import uuid

from penstock_broker.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    UUID_ZERO,
    Struct,
    array,
    field,
)

API_KEY = 19
VERSIONS = range(2, 8)
FLEXIBLE_FROM = 5


class CreatableReplicaAssignment(Struct):
    partition_index: int = field(INT32)
    broker_ids: list[int] = array(INT32)


class CreatableTopicConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable_since=0)


class CreatableTopic(Struct):
    """-1 partitions or replicas: the broker's default (from version 4)."""

    name: str = field(STRING)
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, default=())
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, default=())


class CreateTopicsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOL, since=1, default=False)


class CreatableTopicConfigs(Struct):
    name: str = field(STRING, since=5)
    value: str | None = field(STRING, since=5, nullable_since=5)
    read_only: bool = field(BOOL, since=5)
    config_source: int = field(INT8, since=5, default=-1)
    is_sensitive: bool = field(BOOL, since=5)


class CreatableTopicResult(Struct):
    name: str = field(STRING)
    topic_id: uuid.UUID = field(UUID, since=7, default=UUID_ZERO)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, since=1, nullable_since=0, default=None)
    topic_config_error_code: int = field(INT16, since=5, tag=0, default=0)
    num_partitions: int = field(INT32, since=5, default=-1)
    replication_factor: int = field(INT16, since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable_since=5, default=()
    )


class CreateTopicsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, since=2, default=0)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
