"""Settings that change while a producer sends the same request over and over.

Nothing that a connection remembers of its earlier requests may outlive a live AlterConfigs: each
case sends a read event full of equal requests, changes one setting, and sends them again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from in_process import Link, frame_of, in_process

from penstock_broker.errors import ErrorCode
from penstock_broker.server.broker import Broker
from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock_broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock_broker.wire.records import RecordBatch, iter_batches
from penstock_broker.wire.schema import decode
from polling import until_async

TOPIC_RESOURCE = 2
AT_ONCE = 5
VERSIONS = [7, 9]


def now_ms() -> int:
    return int(time.time() * 1000)


def request(batch: bytes, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(batch))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=topics)


def plain(size: int = 200, time_ms: int | None = None) -> bytes:
    stamp = now_ms() if time_ms is None else time_ms
    return bytes(build_batch([NewRecord(None, b"v" * size, stamp)]))


@dataclass
class Producer:
    """A connection that sends several requests as one read event."""

    link: Link
    version: int

    async def send(self, *batches: bytes, acks: int = 1) -> list[PartitionProduceResponse]:
        frames = [
            frame_of(request(batch, acks), self.version, correlation_id=number)
            for number, batch in enumerate(batches)
        ]
        self.link.put(b"".join(frames))
        answers: list[bytes] = []

        def all_there() -> bool:
            answers.extend(self.link.answers())
            return len(answers) == len(batches)

        await until_async("all answers are there", all_there)
        found = []
        for number, answer in enumerate(answers):
            assert int.from_bytes(answer[:4], "big") == number, "answers in the requests' order"
            start = 5 if self.version >= 9 else 4
            message, _ = decode(ProduceResponse, self.version, memoryview(answer), start)
            found.append(message.responses[0].partition_responses[0])
        return found

    async def codes(self, *batches: bytes, acks: int = 1) -> list[int]:
        return [answer.error_code for answer in await self.send(*batches, acks=acks)]


async def make_topic(link: Link) -> None:
    new = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    assert (await link.ask(CreateTopicsRequest(topics=[new]), 7)).topics[0].error_code == 0


async def alter(link: Link, name: str, value: str) -> None:
    changes = [AlterableConfig(name=name, config_operation=0, value=value)]
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name="t", configs=changes
    )
    answer = await link.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def disk(broker: Broker) -> MemFiles:
    assert isinstance(broker._files, MemFiles)
    return broker._files


def stored(broker: Broker) -> list[RecordBatch]:
    log = broker.replicas.partition("t", 0).log
    data = b"".join(s.file.read(0, s.size) for s in log.segments)
    return list(iter_batches(memoryview(bytearray(data))))


@dataclass
class Case:
    """What a setting does to a batch that was taken before it changed."""

    name: str
    value: str
    code: ErrorCode = ErrorCode.NONE
    acks: int = 1
    batch: Callable[[], bytes] = plain
    check: Callable[[Broker, list[PartitionProduceResponse]], bool] = lambda _b, _a: True


def _stamped(broker: Broker, answers: list[PartitionProduceResponse]) -> bool:
    newest = stored(broker)[-AT_ONCE:]
    return all(batch.is_log_append_time and batch.crc_is_valid() for batch in newest) and all(
        answer.log_append_time_ms == batch.max_timestamp > 0
        for answer, batch in zip(answers, newest, strict=True)
    )


def _synced(broker: Broker, answers: list[PartitionProduceResponse]) -> bool:
    log = broker.replicas.partition("t", 0).log
    return log.recovery_point == log.log_end_offset


def _compressed(broker: Broker, answers: list[PartitionProduceResponse]) -> bool:
    return all(batch.codec is Codec.GZIP for batch in stored(broker)[-AT_ONCE:])


def _rolled(broker: Broker, answers: list[PartitionProduceResponse]) -> bool:
    return len(broker.replicas.partition("t", 0).log.segments) == AT_ONCE


CASES = [
    Case("max.message.bytes", "250", ErrorCode.MESSAGE_TOO_LARGE),
    Case("message.timestamp.type", "LogAppendTime", check=_stamped),
    Case("cleanup.policy", "compact", ErrorCode.INVALID_RECORD),
    Case("flush.messages", "1", check=_synced),
    Case("flush.messages", "2", check=_synced),
    Case("compression.type", "gzip", check=_compressed),
    Case("segment.bytes", "1048576", batch=lambda: plain(600_000), check=_rolled),
    Case(
        "message.timestamp.before.max.ms",
        "1000",
        ErrorCode.INVALID_TIMESTAMP,
        batch=lambda: plain(time_ms=now_ms() - 60_000),
    ),
    Case(
        "message.timestamp.after.max.ms",
        "1000",
        ErrorCode.INVALID_TIMESTAMP,
        batch=lambda: plain(time_ms=now_ms() + 60_000),
    ),
    Case("min.insync.replicas", "2", ErrorCode.NOT_ENOUGH_REPLICAS, acks=-1),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}={case.value}")
async def test_a_live_change_is_seen_by_the_next_request(case: Case, version: int) -> None:
    async with in_process() as broker:
        producer, admin = Producer(Link(broker), version), Link(broker)
        await make_topic(admin)
        batch = case.batch()
        if case.name != "segment.bytes":
            for _ in range(3):
                assert await producer.codes(*[batch] * AT_ONCE, acks=case.acks) == [0] * AT_ONCE
        before = broker.replicas.partition("t", 0).log_end_offset
        await alter(admin, case.name, case.value)
        answers = await producer.send(*[batch] * AT_ONCE, acks=case.acks)
        assert [answer.error_code for answer in answers] == [case.code] * AT_ONCE
        if case.code:
            assert broker.replicas.partition("t", 0).log_end_offset == before
        else:
            assert [a.base_offset for a in answers] == list(range(before, before + AT_ONCE))
            await until_async("the setting shows", lambda: case.check(broker, answers))


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_batch_is_held_against_the_size_limit(version: int) -> None:
    """Also one among many that fit, and one that came after many that did."""
    async with in_process() as broker:
        producer, admin = Producer(Link(broker), version), Link(broker)
        await make_topic(admin)
        await alter(admin, "max.message.bytes", "300")
        small, large = plain(200), plain(300)
        expected = [0, 0, ErrorCode.MESSAGE_TOO_LARGE, 0, 0]
        for _ in range(3):
            assert await producer.codes(small, small, large, small, small) == expected
        await alter(admin, "max.message.bytes", str(len(large)))
        assert await producer.codes(large, large) == [0, 0], "as large as it may be"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_producer_id_without_sequence_is_refused_always(version: int) -> None:
    """As Kafka's LogValidator does; stored, it could be appended twice unnoticed."""
    async with in_process() as broker:
        producer, admin = Producer(Link(broker), version), Link(broker)
        await make_topic(admin)
        bad = bytes(build_batch([NewRecord(None, b"v" * 200, now_ms())], producer_id=7))
        good = plain(200)
        expected = [0, ErrorCode.INVALID_RECORD, 0, ErrorCode.INVALID_RECORD, 0]
        for _ in range(3):
            assert await producer.codes(good, bad, good, bad, good) == expected
        assert broker.replicas.partition("t", 0).log_end_offset == 9


async def test_a_disk_that_fails_under_a_repeating_producer_is_reported() -> None:
    """Every request of the read event gets the error, and none of them is in the log."""
    async with in_process() as broker:
        producer, admin = Producer(Link(broker), 9), Link(broker)
        await make_topic(admin)
        batch = plain()
        assert await producer.codes(*[batch] * AT_ONCE) == [0] * AT_ONCE
        disk(broker).fail("write", 5, path_part=".log")
        assert await producer.codes(*[batch] * AT_ONCE) == [ErrorCode.KAFKA_STORAGE_ERROR] * AT_ONCE
        assert broker.replicas.partition("t", 0).log_end_offset == AT_ONCE


async def test_an_error_without_a_place_for_it_ends_the_connection() -> None:
    """acks=0: what came before it in the read event is in the log."""
    async with in_process() as broker:
        producer, admin = Producer(Link(broker), 9), Link(broker)
        await make_topic(admin)
        assert await producer.codes(*[plain()] * AT_ONCE) == [0] * AT_ONCE
        bad = bytearray(plain())
        bad[-1] ^= 1
        frames = [frame_of(request(batch, acks=0), 9) for batch in (plain(), plain(), bytes(bad))]
        producer.link.put(frames[0] * AT_ONCE)
        assert not producer.link.is_closed
        producer.link.put(b"".join(frames))
        await until_async("the connection ends", lambda: producer.link.is_closed)
        assert broker.replicas.partition("t", 0).log_end_offset == 2 * AT_ONCE + 2


async def test_other_requests_see_what_was_appended_before_them() -> None:
    """Also within one read event, and answers keep the order of the requests."""
    async with in_process() as broker:
        producer, admin = Producer(Link(broker), 9), Link(broker)
        await make_topic(admin)
        assert await producer.codes(*[plain()] * AT_ONCE) == [0] * AT_ONCE
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
        asked = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
        sent = [request(plain()), request(plain()), asked, request(plain())]
        producer.link.put(
            b"".join(
                frame_of(one, 7 if one is asked else 9, correlation_id=number)
                for number, one in enumerate(sent)
            )
        )
        answers: list[bytes] = []

        def all_there() -> bool:
            answers.extend(producer.link.answers())
            return len(answers) == len(sent)

        await until_async("all answers are there", all_there)
        assert [int.from_bytes(answer[:4], "big") for answer in answers] == [0, 1, 2, 3]
        found, _ = decode(ListOffsetsResponse, 7, memoryview(answers[2]), 5)
        assert found.topics[0].partitions[0].offset == AT_ONCE + 2
