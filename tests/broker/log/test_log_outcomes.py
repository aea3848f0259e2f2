"""What a broken disk does to a running broker: one partition goes offline, and everybody is told.

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


class House:
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
def house() -> Iterator[House]:
    files = MemFiles()
    with (
        ThreadBroker(DATA_DIR, files=files) as broker,
        RawClient(broker.host, broker.port) as client,
    ):
        house = House(broker, client)
        for topic in ("bad", "good"):
            house.create(topic, segment_bytes="400")
            for number in range(8):
                assert house.produce(topic, f"{number}" * 20) is ErrorCode.NONE
        assert house.leader("bad") == (ErrorCode.NONE, 0)
        yield house


def assert_the_other_works(house: House) -> None:
    assert house.produce("good") is ErrorCode.NONE
    assert house.fetch("good") is ErrorCode.NONE
    assert house.leader("good") == (ErrorCode.NONE, 0)


def assert_offline(house: House, reason: str) -> None:
    assert house.is_offline("bad"), "metadata name no leader, without a restart"
    assert house.produce("bad") is ErrorCode.KAFKA_STORAGE_ERROR
    assert house.fetch("bad") is ErrorCode.KAFKA_STORAGE_ERROR
    failure = house.broker.broker.replicas.partition("bad", 0).log.failure
    assert failure is not None
    assert reason in failure
    assert_the_other_works(house)


def test_an_error_on_append(house: House) -> None:
    house.files.fail("write", errno.EIO, path_part="bad-0", partial_bytes=20)
    assert house.produce("bad") is ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(house, "Input/output error")
    house.broker.stop()
    house.broker.start()
    with RawClient(house.broker.host, house.broker.port) as client:
        again = House(house.broker, client)
        assert again.leader("bad") == (ErrorCode.NONE, 0), "a restart reads what is there"
        assert again.produce("bad") is ErrorCode.NONE


def test_an_error_on_read(house: House) -> None:
    house.files.fail("read", errno.EIO, path_part="bad-0")
    assert house.fetch("bad", 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(house, "cannot read at offset 1")


def test_an_error_on_a_sync_that_producers_wait_for(house: House) -> None:
    """They are told KAFKA_STORAGE_ERROR, which they retry, not that it took too long."""
    house.create("synced", flush_messages="1")
    assert house.produce("synced") is ErrorCode.NONE
    house.files.fail("sync", errno.EIO, path_part="synced-0")
    assert house.produce("synced", acks=1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert house.is_offline("synced")
    assert_the_other_works(house)


def test_a_full_disk_is_no_reason_to_go_offline(house: House) -> None:
    """The producer is told to try again, and can when there is room."""
    house.files.capacity_bytes = house.files.space(DATA_DIR)[0] - house.files.space(DATA_DIR)[1]
    assert house.produce("bad", "y" * 100) is ErrorCode.KAFKA_STORAGE_ERROR
    assert house.leader("bad") == (ErrorCode.NONE, 0)
    assert house.fetch("bad") is ErrorCode.NONE
    house.files.capacity_bytes = None
    assert house.produce("bad", "y" * 100) is ErrorCode.NONE


def test_a_directory_that_has_become_read_only(house: House) -> None:
    """The open segment can still be written; the next one cannot be made."""
    house.files.fail("open", errno.EROFS, path_part="bad-0", times=100)
    outcomes = {house.produce("bad", "z" * 100) for _ in range(8)}
    assert ErrorCode.KAFKA_STORAGE_ERROR in outcomes
    assert_offline(house, "cannot begin a segment: [Errno 30] Read-only file system")


def test_a_directory_that_has_vanished(house: House) -> None:
    """What is written to files without a name would be lost at the next start: it is noticed."""
    house.files.remove_tree(DATA_DIR / "bad-0")
    logs = house.broker.broker.logs
    assert logs.vanished() == [("bad", 0)]
    house.broker._call(lambda: logs.fail_vanished(logs.vanished()))
    assert_offline(house, "its directory has vanished")


def test_damage_in_the_middle_of_a_closed_segment(house: House) -> None:
    path = DATA_DIR / "bad-0" / f"{0:020d}.log"
    data = bytearray(house.files.get(path))
    data[8:12] = b"\0\0\0\0"
    house.files.put(path, bytes(data))
    assert house.fetch("bad", 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(house, "a length of 0 at position 0")


def test_a_damaged_index_is_made_again(house: House) -> None:
    """An index is never believed: the partition stays online."""
    for name in house.files.names(DATA_DIR / "bad-0"):
        if name.endswith(("index",)):
            house.files.put(DATA_DIR / "bad-0" / name, b"garbage")
    for offset in range(8):
        assert house.fetch("bad", offset) is ErrorCode.NONE
    assert house.leader("bad") == (ErrorCode.NONE, 0)


def test_a_partition_that_cannot_be_opened_at_the_start(house: House) -> None:
    house.broker.stop()
    house.files.fail("open", errno.EACCES, path_part="bad-0", times=100)
    house.broker.start()
    with RawClient(house.broker.host, house.broker.port) as client:
        again = House(house.broker, client)
        assert again.is_offline("bad")
        assert again.produce("bad") is ErrorCode.KAFKA_STORAGE_ERROR
        assert_the_other_works(again)
    report = house.files.get(DATA_DIR / "recovery-report.jsonl").decode()
    assert '"event": "offline", ' in report
    assert '"topic": "bad"' in report


def test_damage_that_a_start_meets_takes_one_partition_offline(house: House) -> None:
    """The producers' state cannot be made again: the log is kept as it is, and not served."""
    house.broker.stop()
    for name in house.files.names(DATA_DIR / "bad-0"):
        if name.endswith(".snapshot"):
            house.files.remove(DATA_DIR / "bad-0" / name)
    path = DATA_DIR / "bad-0" / f"{0:020d}.log"
    data = bytearray(house.files.get(path))
    data[8:12] = b"\0\0\0\0"
    house.files.put(path, bytes(data))
    house.broker.start()
    with RawClient(house.broker.host, house.broker.port) as client:
        again = House(house.broker, client)
        assert again.is_offline("bad")
        assert_the_other_works(again)
    assert (
        "damaged below its recovery point"
        in house.files.get(DATA_DIR / "recovery-report.jsonl").decode()
    )


def test_a_waiting_fetch_hears_of_it(house: House) -> None:
    part = FetchPartition(partition=0, fetch_offset=8, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=3_600_000,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic="bad", partitions=[part])],
    )
    with RawClient(house.broker.host, house.broker.port) as waiting:
        waiting.send(request, 11)
        house.files.fail("write", errno.EIO, path_part="bad-0")
        assert house.produce("bad") is ErrorCode.KAFKA_STORAGE_ERROR
        _, answer = waiting.receive()
    assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
