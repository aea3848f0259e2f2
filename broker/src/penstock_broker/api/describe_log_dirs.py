"""DescribeLogDirs (35), versions 1-4: the data directory, and what partitions take in it.

Behaviour:
* One directory. Every partition that is asked for and is there (null asks for all), with the bytes
  of its log; what is not there is left out, as Apache Kafka does.
* A directory that cannot be looked at is KAFKA_STORAGE_ERROR, without sizes.

Version notes:
* v2: flexible. v3: an error of its own. v4: bytes of the volume, all and usable (KIP-827).
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock_broker.api.authorization import Operation, require_cluster
from penstock_broker.api.context import Exchange, Reply, Services
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.replication.partition import Partition
from penstock_broker.wire.messages.describe_log_dirs import (
    API_KEY,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def refuse(
    request: DescribeLogDirsRequest, error: KafkaError, version: int
) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=error.code)


@api(API_KEY, DescribeLogDirsRequest, refuse=refuse)
def describe_log_dirs(
    services: Services, exchange: Exchange, request: DescribeLogDirsRequest
) -> Reply:
    require_cluster(services, exchange, Operation.DESCRIBE)
    logs = services.replicas.logs
    result = DescribeLogDirsResult(log_dir=str(logs.data_dir.absolute()))
    try:
        result.total_bytes, result.usable_bytes = logs.space()
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    by_topic: dict[str, DescribeLogDirsTopic] = {}
    for partition in _wanted(services, request):
        name = partition.topic
        topic = by_topic.get(name)
        if topic is None:
            topic = by_topic[name] = DescribeLogDirsTopic(name=name, partitions=[])
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=partition.index, partition_size=partition.size_bytes
            )
        )
    result.topics = list(by_topic.values())
    return DescribeLogDirsResponse(results=[result])


def _wanted(services: Services, request: DescribeLogDirsRequest) -> Iterable[Partition]:
    replicas = services.replicas
    if request.topics is None:
        return replicas.partitions()
    named = [(topic.topic, index) for topic in request.topics for index in topic.partitions]
    found = (replicas.find(*key) for key in dict.fromkeys(named))
    return [partition for partition in found if partition is not None]
