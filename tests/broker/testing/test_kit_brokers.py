"""Time and disk of a broker that serves real clients, moved and broken by the test."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.clock import SystemClock
from penstock_broker.errors import ErrorCode
from penstock_broker.testing import MemFiles, RawClient, ShiftedClock, ThreadBroker
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.list_groups import ListGroupsRequest
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock_broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from polling import until, until_async


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadBroker]:
    clock = ShiftedClock()
    settings = {
        "log.retention.check.interval.ms": "1000",
        "offsets.topic.num.partitions": "1",
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "1000",
    }
    files = MemFiles(clock)
    with ThreadBroker(tmp_path / "data", settings, clock=clock, files=files) as started:
        yield started


def produce(broker: ThreadBroker, topic: str, value: bytes = b"v") -> PartitionProduceResponse:
    now = broker.clock.now_ms() if broker.clock else 0
    records = memoryview(build_batch([NewRecord(None, value, now)]))
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
    )
    with RawClient(broker.host, broker.port) as client:
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data]), 8)
    return answer.responses[0].partition_responses[0]


def offset(broker: ThreadBroker, topic: str, timestamp: int) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
    with broker.client() as client:
        answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5)
    return answer.topics[0].partitions[0].offset


def test_retention_runs_when_the_clock_is_moved(broker: ThreadBroker) -> None:
    assert broker.clock is not None
    topic = broker.create_topic(config={"retention.ms": "60000", "segment.ms": "1000"})
    produce(broker, topic)
    broker.clock.advance(120)
    produce(broker, topic)
    broker.clock.advance(5)
    until("the old segment is deleted", lambda: offset(broker, topic, -2) == 1)
    assert offset(broker, topic, -1) == 2


def test_committed_offsets_expire_when_the_clock_is_moved(broker: ThreadBroker) -> None:
    assert broker.clock is not None
    topic = broker.create_topic()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]

    def groups() -> list[str]:
        with broker.client() as client:
            return [g.group_id for g in client.ask(ListGroupsRequest(), 0).groups]

    with broker.client() as client:
        client.ask(OffsetCommitRequest(group_id="g", topics=topics), 3)
    assert groups() == ["g"]
    broker.clock.advance(70)
    until("the group is gone", lambda: groups() == [])


def test_a_long_poll_ends_when_its_time_has_passed(broker: ThreadBroker) -> None:
    assert broker.clock is not None
    topic = broker.create_topic()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=600_000,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    with RawClient(broker.host, broker.port) as client:
        client.send(request, 11)
        until("the fetch has come", lambda: broker.faults.seen("Fetch") == 1)
        broker.clock.advance(599)
        assert client.is_silent(0.1)
        broker.clock.advance(2)
        client.receive()


def test_setting_the_calendar_moves_stamps_and_no_durations(broker: ThreadBroker) -> None:
    assert broker.clock is not None
    topic = broker.create_topic(config={"message.timestamp.type": "LogAppendTime"})
    before = produce(broker, topic).log_append_time_ms
    assert abs(before - SystemClock().now_ms()) < 600_000
    steady = broker.clock.monotonic()
    broker.clock.jump(-3_600_000)
    after = produce(broker, topic).log_append_time_ms
    assert 3_000_000 < before - after < 3_600_001
    assert broker.clock.monotonic() - steady < 600
    with pytest.raises(ValueError, match="does not go back"):
        broker.clock.advance(-1)


def test_a_failing_disk_takes_one_partition_offline(broker: ThreadBroker) -> None:
    assert broker.files is not None
    good, bad = broker.create_topic("good"), broker.create_topic("bad")
    broker.files.fail("write", errno.EIO, path_part="bad-0")
    assert produce(broker, bad).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(broker, good).error_code == 0


def test_a_power_cut_leaves_what_was_synced(broker: ThreadBroker) -> None:
    topic = broker.create_topic(config={"flush.messages": "1"})
    for _ in range(5):
        assert produce(broker, topic).error_code == 0
    broker.power_cut(seed=3)
    broker.start()
    assert broker.topics() == [topic]
    assert offset(broker, topic, -1) == 5


def test_faults_given_to_a_stopped_broker_apply_after_its_start(tmp_path: Path) -> None:
    broker = ThreadBroker(tmp_path / "data")
    broker.faults.fail("Produce", "KAFKA_STORAGE_ERROR")
    with broker:
        topic = broker.create_topic()
        assert produce(broker, topic).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.broker


async def test_timers_run_as_soon_as_the_clock_is_moved() -> None:
    clock = ShiftedClock()
    timers = clock.timers(asyncio.get_running_loop(), clock)
    seen: list[str] = []
    rung = asyncio.Event()
    timers.call_at(clock.monotonic() + 2_000, lambda: seen.append("late"))
    timers.call_at(clock.monotonic() + 1_000, rung.set)
    timers.call_at(clock.monotonic() + 900, lambda: seen.append("second"))
    timers.call_at(clock.monotonic() + 800, lambda: seen.append("first"))
    timers.call_at(clock.monotonic() + 700, lambda: seen.append("never")).cancel()
    await asyncio.to_thread(clock.advance, 1_001)
    await asyncio.wait_for(rung.wait(), 5)
    assert seen == ["first", "second"]
    timers.call_at(clock.monotonic() + 0.01, rung.clear)
    await until_async("the timer runs", lambda: not rung.is_set())
