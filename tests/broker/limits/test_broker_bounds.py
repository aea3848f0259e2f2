"""Bounds that the broker sets on what clients ask for, at their edges."""

from __future__ import annotations

from in_process import Link, with_broker

from penstock_broker.errors import ErrorCode
from penstock_broker.server.broker import Broker
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

FETCH_BYTES_MAX = 10_000
BATCH_BYTES = 4_000


def append(broker: Broker, count: int) -> int:
    """Batches of about ``BATCH_BYTES``; the size of one."""
    batch = b""
    for _ in range(count):
        batch = build_batch([NewRecord(None, bytes(BATCH_BYTES), 1)])
        broker.replicas.partition("t", 0).append(memoryview(batch))
    return len(batch)


async def _greedy_fetch(broker: Broker) -> None:
    broker.topics.create("t", 1, {})
    size = append(broker, 10)
    link = Link(broker)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )
    answer = await link.ask(request, 11)
    records = answer.responses[0].partitions[0].records
    assert size <= len(records) <= FETCH_BYTES_MAX < 10 * size
    link.close()


def test_the_brokers_own_bound_on_a_fetch_holds_whatever_the_client_allows() -> None:
    with_broker(_greedy_fetch, fetch_max_bytes=FETCH_BYTES_MAX)


async def _delete_unsynced(broker: Broker) -> None:
    """With flush.messages=1 the high watermark does not move until a sync; here none comes."""
    broker.logs.group_flush.submit = lambda job, done: None
    broker.topics.create("t", 1, {"flush.messages": "1"})
    append(broker, 3)
    partition = broker.replicas.partition("t", 0)
    assert (partition.high_watermark, partition.log_end_offset) == (0, 3)
    link = Link(broker)

    async def delete(offset: int) -> tuple[int, int]:
        wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name="t", partitions=[wanted])
        answer = await link.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), 2)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.low_watermark

    assert await delete(-1) == (0, 0), "all that counts, not all that is there"
    assert (await delete(1))[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    partition.log.flush()
    assert await delete(2) == (0, 2)
    assert await delete(-1) == (0, 3)
    assert (await delete(4))[0] == ErrorCode.OFFSET_OUT_OF_RANGE
    link.close()


def test_records_are_deleted_up_to_the_high_watermark_not_the_end() -> None:
    with_broker(_delete_unsynced)
