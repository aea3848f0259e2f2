"""Several batches with one write: all of them are in the log, or none."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
from test_log_manager import Broker

from penstock_broker.api.context import CloseConnectionError
from penstock_broker.api.produce_quick import read_one
from penstock_broker.api.produce_repeat import Repeats, learn, may_repeat
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import KafkaError
from penstock_broker.log.lookup import run
from penstock_broker.log.staged import stage
from penstock_broker.replication.partition import Partition
from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.framing import FrameReader
from penstock_broker.wire.header import RequestHeader, encode_request_header
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock_broker.wire.schema import encode


@pytest.fixture
def broker() -> Broker:
    return Broker(MemFiles())


def frame(broker: Broker, partition: int, value: str) -> bytes:
    batch = build_batch([NewRecord(None, value.encode(), broker.clock.now_ms())])
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics)
    header = encode_request_header(RequestHeader(0, 9, 1, "me"), True)
    body = header + encode(request, 9)
    return len(body).to_bytes(4, "big") + body


def repeats_for(broker: Broker, *partitions: int) -> Repeats:
    """A connection that has sent one ordinary request to each."""
    services = SimpleNamespace(generation=0, clock=broker.clock, config=BrokerConfig())
    exchange = SimpleNamespace(repeats=None)
    for index in partitions:
        whole = memoryview(bytearray(frame(broker, index, "first"))[4:])
        request = read_one(whole, 13, 9)
        assert request is not None
        partition = broker.replicas.partition("t", index)
        partition.append(request.records)
        assert may_repeat(partition, 9, 1)
        learn(services, exchange, whole, request, partition)  # type: ignore[arg-type]
    assert isinstance(exchange.repeats, Repeats)
    return exchange.repeats


def fed(broker: Broker, *wanted: tuple[int, str]) -> FrameReader:
    frames = FrameReader(1 << 20)
    frames.feed(b"".join(frame(broker, index, value) for index, value in wanted))
    return frames


def disk(broker: Broker) -> MemFiles:
    assert isinstance(broker.files, MemFiles)
    return broker.files


def test_one_write_for_all(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    repeats = repeats_for(broker, 0)
    frames = fed(broker, *((0, f"{n}") for n in range(50)))
    writes = disk(broker).writes
    answers = repeats.take(frames)
    assert repeats.handled == 50 and answers
    assert disk(broker).writes == writes + 1
    assert frames.next_frame() is None
    assert broker.values("t") == ["first", *(f"{n}" for n in range(50))]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("partial_bytes", [0, 100])
def test_a_write_that_fails_leaves_the_frames_as_they_came(
    broker: Broker, code: int, partial_bytes: int
) -> None:
    """Nothing is answered, nothing is in the log, and the ordinary way says what is wrong."""
    broker.replicas.create_topic("t", 1, {})
    repeats = repeats_for(broker, 0)
    frames = fed(broker, (0, "a"), (0, "b"), (0, "c"))
    disk(broker).fail("write", code, path_part=".log", partial_bytes=partial_bytes)
    assert repeats.take(frames) is None
    partition = broker.replicas.partition("t", 0)
    for _ in range(3):  # every batch is one that can be sent again
        whole = frames.next_frame()
        assert whole is not None
        request = read_one(whole, 13, 9)
        assert request is not None
        assert bytes(request.records[:8]) == bytes(8)
        if code == errno.EIO:
            with pytest.raises(KafkaError, match="offline"):
                partition.append(request.records)
        else:
            partition.append(request.records)
    assert partition.log_end_offset == (1 if code == errno.EIO else 4)
    broker.kill()
    found = broker.values("t")
    if code == errno.EIO and partial_bytes:
        assert found == ["first", "a"], "written, but never acknowledged"
    else:
        assert found == ["first", "a", "b", "c"][: partition.log_end_offset]


def test_no_answer_is_honest_when_only_a_part_was_written(broker: Broker) -> None:
    broker.replicas.create_topic("t", 2, {})
    repeats = repeats_for(broker, 0, 1)
    frames = fed(broker, (0, "a"), (1, "b"))
    disk(broker).fail("write", errno.EIO, path_part="t-1")
    with pytest.raises(CloseConnectionError):
        repeats.take(frames)
    assert broker.values("t", 0) == ["first", "a"]


def test_what_was_staged_is_forgotten(broker: Broker) -> None:
    """A frame that needs the ordinary way, with an append by somebody else between."""
    broker.replicas.create_topic("t", 1, {})
    repeats = repeats_for(broker, 0)
    bad = bytearray(frame(broker, 0, "x"))
    bad[-4] ^= 1
    frames = FrameReader(1 << 20)
    frames.feed(bytes(bad))
    assert repeats.take(frames) is None
    broker.append("t", 0, "between")
    assert frames.next_frame() is not None
    frames.feed(frame(broker, 0, "after"))
    assert repeats.take(frames)
    assert broker.values("t") == ["first", "between", "after"]


def test_staged_batches_find_their_way_into_the_indexes(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"index.interval.bytes": "200"})
    repeats = repeats_for(broker, 0)
    for _ in range(4):
        broker.clock.advance(1_000)
        assert repeats.take(fed(broker, *((0, "v" * 50) for _ in range(30))))
    partition = broker.replicas.partition("t", 0)
    for offset in (1, 17, 60, 119, 120):
        assert partition.fetch(offset, 10).base_offset == offset
    segment = partition.log.segments[-1]
    assert len(segment.offset_index) > 20
    assert run(partition.looking_for_latest()) is not None
    assert run(partition.looking_for_timestamp(broker.clock.now_ms())).offset == 91  # type: ignore[union-attr]
    broker.restart()
    assert len(broker.values("t")) == 121


@pytest.mark.parametrize(
    "config",
    [
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "LogAppendTime"},
        {"compression.type": "gzip"},
        {"message.timestamp.before.max.ms": "1000"},
    ],
    ids=lambda config: next(iter(config)),
)
def test_topics_with_rules_of_their_own_are_looked_at_each_time(
    broker: Broker, config: dict[str, str]
) -> None:
    broker.replicas.create_topic("t", 1, config)
    assert not may_repeat(broker.replicas.partition("t", 0), 9, 1)


def test_logs_that_need_care_are_not_staged(broker: Broker) -> None:
    def may_stage(partition: Partition, epoch: int = 0) -> bool:
        return stage(partition.log, epoch, broker.clock.now_ms()) is not None

    broker.replicas.create_topic("t", 1, {})
    partition = broker.replicas.partition("t", 0)
    broker.append("t", 0, "value")
    assert may_stage(partition)
    assert not may_stage(partition, epoch=1), "a new leader epoch is written down first"
    broker.replicas.set_configs("t", {"flush.messages": "1"})
    assert not may_stage(partition), "each append is synced"
    partition.log.fail("for the test")
    assert not may_stage(partition)
