"""AlterReplicaLogDirs: move partitions to another directory of the same broker (KIP-113)."""

from penstock_broker.wire.schema import INT16, INT32, STRING, Struct, array, field

API_KEY = 34
VERSIONS = range(1, 3)
FLEXIBLE_FROM = 2


class AlterReplicaLogDirTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = array(INT32)


class AlterReplicaLogDir(Struct):
    path: str = field(STRING)
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Struct, versions=VERSIONS, flexible_from=FLEXIBLE_FROM):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
