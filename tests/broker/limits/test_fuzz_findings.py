"""What the fuzzer has found, one by one."""

from __future__ import annotations

import asyncio
import gc
import random
import struct
import tracemalloc

import pytest
from in_process import Link, in_process

from penstock_broker.api.bounds import PRODUCE_PARTITIONS_MAX
from penstock_broker.errors import ErrorCode
from penstock_broker.testing.hostile_frames import bomb, crc_of
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from polling import until_async

NOW = 1_700_000_000_000


def produce(batch: bytes, *, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(batch))
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )


def repaired(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, crc_of(batch))
    return bytes(batch)


async def code_of(link: Link, request: ProduceRequest, version: int = 8) -> ErrorCode:
    answer = await link.ask(request, version)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("version", [8, 9])
def test_a_negative_number_of_headers_is_not_stored(version: int) -> None:
    async def run() -> None:
        async with in_process() as broker:
            broker.topics.create("t", 1, {})
            batch = build_batch([NewRecord(None, b"v", NOW)])
            assert batch[-1] == 0
            batch[-1] = 1  # zigzag: -1
            link = Link(broker)
            assert await code_of(link, produce(repaired(batch)), version) in {
                ErrorCode.INVALID_RECORD,
                ErrorCode.CORRUPT_MESSAGE,
            }
            assert broker.replicas.partition("t", 0).high_watermark == 0

    asyncio.run(run())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_that_do_not_decode_where_each_timestamp_is_looked_at(codec: Codec) -> None:
    """``message.timestamp.before.max.ms`` looks at records; what it cannot read is an error for
    the client, not a bug of ours."""

    async def run() -> None:
        async with in_process() as broker:
            link = Link(broker)
            setting = CreatableTopicConfig(name="message.timestamp.before.max.ms", value="1000")
            topic = CreatableTopic(
                name="t", num_partitions=1, replication_factor=1, configs=[setting]
            )
            await link.ask(CreateTopicsRequest(topics=[topic], timeout_ms=0), 4)
            batch = build_batch([NewRecord(None, b"v" * 50, NOW)], codec=codec)
            batch[61:75] = b"\xff" * 14
            assert await code_of(link, produce(repaired(batch))) not in {
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_SERVER_ERROR,
            }

    asyncio.run(run())


def test_an_error_of_the_whole_request_with_acks_0_ends_the_connection() -> None:
    """There is no answer to put it in; the exception used to leave the connection's callback."""

    async def run() -> None:
        async with in_process() as broker:
            link = Link(broker)
            request = produce(b"", acks=0)
            request.topic_data[0].partition_data *= PRODUCE_PARTITIONS_MAX + 1
            with pytest.raises(ConnectionError):
                await link.ask(request, 8)

    asyncio.run(run())


def test_topics_that_are_named_often_are_answered_once() -> None:
    """A request of a few kilobytes must not become an answer of gigabytes."""

    async def run() -> None:
        async with in_process() as broker:
            broker.topics.create("t", 50, {})
            link = Link(broker)
            wanted = [MetadataRequestTopic(name="t") for _ in range(1_000)]
            answer = await link.ask(MetadataRequest(topics=wanted), 9)
            assert len(answer.topics) == 1

    asyncio.run(run())


def test_bombs_are_refused_and_leave_nothing_behind() -> None:
    """Opened in another thread; their errors used to hold what was opened in a circle, until a
    collection came by: ninety bombs of 64 MiB were 2.9 GB."""

    async def run() -> None:
        async with in_process() as broker:
            broker.topics.create("t", 1, {})
            chance = random.Random(5)
            link = Link(broker)
            for number in range(12):
                data = bomb(chance, 16 << 20)
                if number == 4:
                    gc.collect()
                    gc.disable()
                    tracemalloc.start()
                link.put(struct.pack(">i", len(data)) + data)
                # With acks=0 the connection's end is the only answer.
                await until_async(
                    "an answer or the end", lambda link=link: link.answers() or link.is_closed
                )
                link.close()
                link = Link(broker)
            assert tracemalloc.get_traced_memory()[0] < 4 << 20
            assert broker.replicas.partition("t", 0).high_watermark == 0

    try:
        asyncio.run(run())
    finally:
        tracemalloc.stop()
        gc.enable()
