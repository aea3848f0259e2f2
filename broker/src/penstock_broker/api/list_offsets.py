"""ListOffsets (2), versions 1-9: the ends of a log, and the first record at or after a time.

Behaviour:
* -1: the high watermark, with read_committed (v2) the last stable offset; -2: the log's start;
  -3 (v7): the record with the largest timestamp. A record at or past the end that the isolation
  level allows is no answer.
* Nothing is in tiered storage, so that -4 (v8), the first offset on this disk, is the log's start,
  and -5 (v9), the last offset in tiered storage, is answered -1.
* Else the first record, in offset order, whose timestamp is at or after the one given, looked up
  inside compressed batches too; none: offset -1, timestamp -1, epoch -1 and no error.
* The leader epoch in an answer is that of the offset, not the current one.

Version notes:
* v0 (a list, and other rules) is not served. v2: isolation level. v4: leader epochs.
* v6: flexible. v7: -3 (KIP-734). v8: -4 (KIP-405). v9: -5 (KIP-1005). A special time that its
  version does not know is UNSUPPORTED_VERSION.
* v1-v9: a partition named twice gets INVALID_REQUEST both times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Services, Steps
from penstock_broker.api.fetch_reading import READ_COMMITTED
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.messages.list_offsets import (
    API_KEY,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_OLDEST = {7: MAX_TIMESTAMP, 8: EARLIEST_LOCAL_TIMESTAMP, 9: LATEST_TIERED_TIMESTAMP}
"""The lowest special time by version; below 7 it is EARLIEST_TIMESTAMP."""


def refuse(request: ListOffsetsRequest, error: KafkaError, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_failed(p.partition_index, error.code) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


@api(API_KEY, ListOffsetsRequest, refuse=refuse)
def list_offsets(services: Services, exchange: Exchange, request: ListOffsetsRequest) -> Steps:
    named = Counter(
        (topic.name, p.partition_index) for topic in request.topics for p in topic.partitions
    )
    committed = request.isolation_level == READ_COMMITTED
    response = ListOffsetsResponse(topics=[])
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            try:
                if named[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                require(services, exchange, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
                results.append(
                    (
                        yield from _look_up(
                            services, topic.name, wanted, exchange.api_version, committed
                        )
                    )
                )
            except KafkaError as error:
                results.append(_failed(wanted.partition_index, error.code))
            yield
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return response


def _look_up(
    services: Services, topic: str, wanted: ListOffsetsPartition, version: int, committed: bool
) -> Generator[Callable[[], None], None, ListOffsetsPartitionResponse]:
    partition = services.replicas.partition(topic, wanted.partition_index)
    partition.check_leader_epoch(wanted.current_leader_epoch)
    if wanted.timestamp < _OLDEST.get(version, EARLIEST_TIMESTAMP):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    index = wanted.partition_index
    if wanted.timestamp == LATEST_TIMESTAMP:
        return ListOffsetsPartitionResponse(
            partition_index=index,
            offset=partition.end_offset(committed=committed),
            leader_epoch=partition.leader_epoch,
        )
    if wanted.timestamp in {EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP}:
        offset = partition.log_start_offset
        return ListOffsetsPartitionResponse(
            partition_index=index, offset=offset, leader_epoch=partition.epoch_of(offset)
        )
    if wanted.timestamp == LATEST_TIERED_TIMESTAMP:
        found = None
    elif wanted.timestamp == MAX_TIMESTAMP:
        found = yield from partition.looking_for_latest(committed=committed)
    else:
        found = yield from partition.looking_for_timestamp(wanted.timestamp, committed=committed)
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=index)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _failed(partition: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=code)
