"""What a broken disk does to a running broker: one partition goes offline, with an error.

Over the wire, on a simulated disk: the error of the request that met it, the metadata afterwards,
the other partitions, and the process, which lives.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.errors import ErrorCode
from penstock_broker.testing import MemFiles
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.testing.thread_broker import ThreadBroker
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

DATA_DIR = Path("/data")
WAIT = 120.0


class Harness:
    """A broker with two topics, one of which is going to have trouble."""

    def __init__(self, broker: ThreadBroker, client: RawClient) -> None:
        self.broker = broker
        self.client = client

    @property
    def files(self) -> MemFiles:
        assert self.broker.files is not None
        return self.broker.files

    def create(self, name: str, **configs: str) -> None:
        values = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=values
        )
        answer = self.client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
        assert answer.topics[0].error_code == 0

    def produce(self, topic: str, value: str = "x", acks: int = -1) -> ErrorCode:
        records = memoryview(build_batch([NewRecord(None, value.encode(), 1)]))
        data = PartitionProduceData(index=0, records=records)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = self.client.ask(request, 8)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def fetch(self, topic: str, offset: int = 0) -> ErrorCode:
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1000,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )
        answer = self.client.ask(request, 11)
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    def leader(self, topic: str) -> tuple[ErrorCode, int]:
        """What metadata say of partition 0."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        answer = self.client.ask(request, 9)
        part = answer.topics[0].partitions[0]
        return ErrorCode(part.error_code), part.leader_id

    def is_offline(self, topic: str) -> bool:
        return self.leader(topic) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


@pytest.fixture
def harness() -> Iterator[Harness]:
    files = MemFiles()
    with (
        ThreadBroker(DATA_DIR, files=files) as broker,
        RawClient(broker.host, broker.port) as client,
    ):
        harness = Harness(broker, client)
        for topic in ("bad", "good"):
            harness.create(topic, segment_bytes="400")
            for number in range(8):
                assert harness.produce(topic, f"{number}" * 20) is ErrorCode.NONE
        assert harness.leader("bad") == (ErrorCode.NONE, 0)
        yield harness


def assert_the_other_works(harness: Harness) -> None:
    assert harness.produce("good") is ErrorCode.NONE
    assert harness.fetch("good") is ErrorCode.NONE
    assert harness.leader("good") == (ErrorCode.NONE, 0)


def assert_offline(harness: Harness, reason: str) -> None:
    assert harness.is_offline("bad"), "metadata name no leader, without a restart"
    assert harness.produce("bad") is ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.fetch("bad") is ErrorCode.KAFKA_STORAGE_ERROR
    failure = harness.broker.broker.replicas.partition("bad", 0).log.failure
    assert failure is not None
    assert reason in failure
    assert_the_other_works(harness)


def test_an_error_on_append(harness: Harness) -> None:
    harness.files.fail("write", errno.EIO, path_part="bad-0", partial_bytes=20)
    assert harness.produce("bad") is ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(harness, "Input/output error")
    harness.broker.stop()
    harness.broker.start()
    with RawClient(harness.broker.host, harness.broker.port) as client:
        again = Harness(harness.broker, client)
        assert again.leader("bad") == (ErrorCode.NONE, 0), "a restart reads what is there"
        assert again.produce("bad") is ErrorCode.NONE


def test_an_error_on_read(harness: Harness) -> None:
    harness.files.fail("read", errno.EIO, path_part="bad-0")
    assert harness.fetch("bad", 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(harness, "cannot read at offset 1")


def test_an_error_on_a_sync_that_producers_wait_for(harness: Harness) -> None:
    """They get KAFKA_STORAGE_ERROR, which they retry, not a timeout."""
    harness.create("synced", flush_messages="1")
    assert harness.produce("synced") is ErrorCode.NONE
    harness.files.fail("sync", errno.EIO, path_part="synced-0")
    assert harness.produce("synced", acks=1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.is_offline("synced")
    assert_the_other_works(harness)


def test_a_full_disk_is_no_reason_to_go_offline(harness: Harness) -> None:
    """The producer gets a retriable error, and succeeds once there is space."""
    harness.files.capacity_bytes = (
        harness.files.space(DATA_DIR)[0] - harness.files.space(DATA_DIR)[1]
    )
    assert harness.produce("bad", "y" * 100) is ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.leader("bad") == (ErrorCode.NONE, 0)
    assert harness.fetch("bad") is ErrorCode.NONE
    harness.files.capacity_bytes = None
    assert harness.produce("bad", "y" * 100) is ErrorCode.NONE


def test_a_directory_that_has_become_read_only(harness: Harness) -> None:
    """The open segment can still be written; the next one cannot be made."""
    harness.files.fail("open", errno.EROFS, path_part="bad-0", times=100)
    outcomes = {harness.produce("bad", "z" * 100) for _ in range(8)}
    assert ErrorCode.KAFKA_STORAGE_ERROR in outcomes
    assert_offline(harness, "cannot begin a segment: [Errno 30] Read-only file system")


def test_a_directory_that_has_vanished(harness: Harness) -> None:
    """What is written to files without a name would be lost at the next start: it is noticed."""
    harness.files.remove_tree(DATA_DIR / "bad-0")
    logs = harness.broker.broker.logs
    assert logs.vanished() == [("bad", 0)]
    harness.broker._call(lambda: logs.fail_vanished(logs.vanished()))
    assert_offline(harness, "its directory has vanished")


def test_damage_in_the_middle_of_a_closed_segment(harness: Harness) -> None:
    path = DATA_DIR / "bad-0" / f"{0:020d}.log"
    data = bytearray(harness.files.get(path))
    data[8:12] = b"\0\0\0\0"
    harness.files.put(path, bytes(data))
    assert harness.fetch("bad", 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(harness, "a length of 0 at position 0")


def test_a_log_file_that_has_become_shorter(harness: Harness) -> None:
    """Something else has cut it: the end that the broker knows is not there."""
    path = DATA_DIR / "bad-0" / f"{0:020d}.log"
    harness.files.put(path, harness.files.get(path)[:100])
    assert harness.fetch("bad", 2) is ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(harness, "torn batch: its header is not whole at position")


def test_a_damaged_index_is_made_again(harness: Harness) -> None:
    """An index is never believed: the partition stays online."""
    for name in harness.files.names(DATA_DIR / "bad-0"):
        if name.endswith(("index",)):
            harness.files.put(DATA_DIR / "bad-0" / name, b"garbage")
    for offset in range(8):
        assert harness.fetch("bad", offset) is ErrorCode.NONE
    assert harness.leader("bad") == (ErrorCode.NONE, 0)


def test_a_partition_that_cannot_be_opened_at_the_start(harness: Harness) -> None:
    harness.broker.stop()
    harness.files.fail("open", errno.EACCES, path_part="bad-0", times=100)
    harness.broker.start()
    with RawClient(harness.broker.host, harness.broker.port) as client:
        again = Harness(harness.broker, client)
        assert again.is_offline("bad")
        assert again.produce("bad") is ErrorCode.KAFKA_STORAGE_ERROR
        assert_the_other_works(again)
    report = harness.files.get(DATA_DIR / "recovery-report.jsonl").decode()
    assert '"event": "offline", ' in report
    assert '"topic": "bad"' in report


def test_damage_that_a_start_meets_takes_one_partition_offline(harness: Harness) -> None:
    """The producers' state cannot be made again: the log is kept as it is, and not served."""
    harness.broker.stop()
    for name in harness.files.names(DATA_DIR / "bad-0"):
        if name.endswith(".snapshot"):
            harness.files.remove(DATA_DIR / "bad-0" / name)
    path = DATA_DIR / "bad-0" / f"{0:020d}.log"
    data = bytearray(harness.files.get(path))
    data[8:12] = b"\0\0\0\0"
    harness.files.put(path, bytes(data))
    harness.broker.start()
    with RawClient(harness.broker.host, harness.broker.port) as client:
        again = Harness(harness.broker, client)
        assert again.is_offline("bad")
        assert_the_other_works(again)
    assert (
        "damaged below its recovery point"
        in harness.files.get(DATA_DIR / "recovery-report.jsonl").decode()
    )


def test_a_waiting_fetch_gets_the_error(harness: Harness) -> None:
    part = FetchPartition(partition=0, fetch_offset=8, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=3_600_000,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic="bad", partitions=[part])],
    )
    with RawClient(harness.broker.host, harness.broker.port) as waiting:
        waiting.send(request, 11)
        harness.files.fail("write", errno.EIO, path_part="bad-0")
        assert harness.produce("bad") is ErrorCode.KAFKA_STORAGE_ERROR
        _, answer = waiting.receive()
    assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
