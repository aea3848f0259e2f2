"""AlterReplicaLogDirs (34), versions 1-2: move partitions to another directory of this broker.

Behaviour:
* There is one directory: a partition is in it already, which is no error; any other path is
  LOG_DIR_NOT_FOUND. A partition that is not there is UNKNOWN_TOPIC_OR_PARTITION.

Version notes:
* v2: flexible.
"""

from __future__ import annotations

from pathlib import Path

from penstock_broker.api.authorization import Operation, require_cluster
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.keys import TopicPartition
from penstock_broker.wire.messages.alter_replica_log_dirs import (
    API_KEY,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def refuse(
    request: AlterReplicaLogDirsRequest, error: KafkaError, version: int
) -> AlterReplicaLogDirsResponse:
    return _response(
        {(t.name, p): error.code for d in request.dirs for t in d.topics for p in t.partitions}
    )


@api(API_KEY, AlterReplicaLogDirsRequest, refuse=refuse)
def alter_replica_log_dirs(
    services: Services, exchange: Exchange, request: AlterReplicaLogDirsRequest
) -> Reply:
    require_cluster(services, exchange, Operation.ALTER)
    here = services.replicas.logs.data_dir.absolute()
    codes = {}
    for directory in request.dirs:
        is_here = Path(directory.path) == here
        for topic in directory.topics:
            for index in topic.partitions:
                if not is_here:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif services.replicas.has_partition(topic.name, index):
                    code = ErrorCode.NONE
                else:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                codes[topic.name, index] = code
    return _response(codes)


def _response(codes: dict[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    by_topic: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), code in codes.items():
        topic = by_topic.setdefault(
            name, AlterReplicaLogDirTopicResult(topic_name=name, partitions=[])
        )
        topic.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        )
    return AlterReplicaLogDirsResponse(results=list(by_topic.values()))
