"""Nothing that clients ask for makes the event loop wait for the disk.

The simulated disk says which thread a real one would have kept waiting, so these tests need no
clock: what they hold against is that it was never the loop's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.cluster.metadata_store import PRODUCER_ID_BLOCK
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ErrorCode
from penstock_broker.server.broker import Broker
from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterEntityData,
    AlterEntryData,
    OpData,
)
from penstock_broker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock_broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock_broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock_broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock_broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock_broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock_broker.wire.messages.init_producer_id import InitProducerIdRequest
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from polling import until_async

SEGMENT_BYTES = 64 << 10
BATCHES = 60


class WatchedDisk(MemFiles):
    """Notes what would have waited for the disk, and in which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.in_loop: list[str] = []
        self.elsewhere: list[str] = []
        loop = threading.get_ident()

        def note(operation: str, path: Path) -> None:
            noted = self.in_loop if threading.get_ident() == loop else self.elsewhere
            noted.append(f"{operation} {path.name}")

        self.note = note

    def watch(self) -> None:
        """From now on; starting and stopping may wait."""
        self.in_loop.clear()
        self.elsewhere.clear()
        self.on_wait = self.note

    def leave(self) -> None:
        self.on_wait = lambda operation, path: None


@asynccontextmanager
async def serving(
    tmp_path: Path, settings: dict[str, str] | None = None
) -> AsyncIterator[tuple[Broker, WatchedDisk, Callable[..., Any]]]:
    """A broker on a watched disk, and a way to run client code elsewhere than in its loop."""
    disk = WatchedDisk()
    broker = Broker(BrokerConfig.parse(settings or {}), tmp_path / "data", files=disk)
    address = await broker.start("127.0.0.1", 0)
    loop = asyncio.get_running_loop()

    async def ask(use: Callable[[RawClient], Any]) -> Any:
        def run() -> Any:
            with RawClient(*address) as client:
                return use(client)

        return await loop.run_in_executor(None, run)

    try:
        yield broker, disk, ask
    finally:
        disk.leave()
        await broker.stop()


def fill(broker: Broker, topic: str, partitions: int = 1) -> bytes:
    """Several segments a partition; what is in each."""
    broker.topics.create(topic, partitions, {"segment.bytes": str(SEGMENT_BYTES)})
    sent = b""
    for number in range(BATCHES):
        for index in range(partitions):
            batch = build_batch([NewRecord(None, bytes(5_000), 1_000 + number)])
            broker.replicas.partition(topic, index).append(memoryview(batch))
        sent += bytes(batch)
    return sent


def fetch_request(partitions: int, offset: int, version: int = 11) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=8 << 20)
        for index in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=32 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=wanted)],
    )


@pytest.mark.parametrize("partitions", [1, 5])
async def test_a_fetch_of_what_is_not_in_memory(tmp_path: Path, partitions: int) -> None:
    async with serving(tmp_path) as (broker, disk, ask):
        sent = fill(broker, "t", partitions)
        disk.is_cold = True
        disk.watch()
        answer = await ask(lambda client: client.ask(fetch_request(partitions, 0), 11))
        found = [bytes(p.records) for p in answer.responses[0].partitions]
        assert found == [sent] * partitions
        middle = await ask(lambda client: client.ask(fetch_request(1, BATCHES // 2), 11))
        assert sent.endswith(bytes(middle.responses[0].partitions[0].records))
        assert disk.in_loop == []
        assert any(each.startswith("prefetch") for each in disk.elsewhere)


async def test_an_offset_by_time_in_what_is_not_in_memory(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, disk, ask):
        fill(broker, "t", 2)
        wanted = [
            ListOffsetsPartition(partition_index=0, timestamp=1_000 + BATCHES // 2),
            ListOffsetsPartition(partition_index=1, timestamp=-3),
        ]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=wanted)])
        disk.is_cold = True
        disk.watch()
        answer = await ask(lambda client: client.ask(request, 7))
        assert [p.offset for p in answer.topics[0].partitions] == [BATCHES // 2, BATCHES - 1]
        assert disk.in_loop == []
        assert disk.elsewhere


async def test_a_fetch_whose_memory_cannot_be_read_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, disk, ask):
        fill(broker, "t")
        disk.is_cold = True
        disk.fail("prefetch", times=100)
        disk.fail("read", times=100)
        answer = await ask(lambda client: client.ask(fetch_request(1, 0), 11))
        assert answer.responses[0].partitions[0].error_code == 56  # KAFKA_STORAGE_ERROR


# -- topics ------------------------------------------------------------------------------------


def create_request(*names: str, partitions: int = 2) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
    ]
    return CreateTopicsRequest(topics=topics)


def delete_request(*names: str) -> DeleteTopicsRequest:
    topics = [DeleteTopicState(name=name) for name in names]
    return DeleteTopicsRequest(topics=topics, timeout_ms=1_000)


async def test_topics_are_made_changed_and_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, disk, ask):
        disk.watch()
        for _ in range(2):  # the second time with names that checkpoints know
            made = await ask(lambda client: client.ask(create_request("a", "b"), 7))
            assert [each.error_code for each in made.topics] == [0, 0]
            for name in ("a", "b"):
                broker.replicas.partition(name, 1).append(
                    memoryview(build_batch([NewRecord(None, b"x", 1)] * 3))
                )
            grown = await ask(
                lambda client: client.ask(
                    CreatePartitionsRequest(
                        topics=[CreatePartitionsTopic(name="a", count=5)], timeout_ms=1_000
                    ),
                    3,
                )
            )
            assert grown.results[0].error_code == 0
            wanted = DeleteRecordsTopic(
                name="a", partitions=[DeleteRecordsPartition(partition_index=1, offset=2)]
            )
            request = DeleteRecordsRequest(topics=[wanted], timeout_ms=1_000)
            cut = await ask(lambda client: client.ask(request, 2))  # noqa: B023
            assert cut.topics[0].partitions[0].low_watermark == 2
            gone = await ask(lambda client: client.ask(delete_request("a", "b"), 6))
            assert [each.error_code for each in gone.responses] == [0, 0]
        assert disk.in_loop == []
        assert any("log-start-offset-checkpoint" in each for each in disk.elsewhere)


async def test_topics_that_are_made_by_asking_for_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, disk, ask):
        disk.watch()
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        answer = await ask(lambda client: client.ask(asked, 9))
        assert answer.topics[0].error_code == 0
        for key_type in (0, 1):
            found = await ask(
                lambda client: client.ask(
                    FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]),  # noqa: B023
                    4,
                )
            )
            assert found.coordinators[0].error_code == 0
        assert disk.in_loop == []
        assert set(broker.metadata.topics) == {"new", "__consumer_offsets", "__transaction_state"}


async def test_settings_quotas_users_and_acls_are_altered(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
    async with serving(tmp_path, settings) as (broker, disk, ask):
        broker.topics.create("t", 1, {})
        disk.watch()

        def alter(client: RawClient) -> None:
            change = [AlterableConfig(name="retention.ms", config_operation=0, value="1000")]
            topic = AlterConfigsResource(resource_type=2, resource_name="t", configs=change)
            answer = client.ask(IncrementalAlterConfigsRequest(resources=[topic]), 1)
            assert answer.responses[0].error_code == 0
            quota = AlterEntryData(
                entity=[AlterEntityData(entity_type="user", entity_name="u")],
                ops=[OpData(key="producer_byte_rate", value=1e6, remove=False)],
            )
            asked = AlterClientQuotasRequest(entries=[quota], validate_only=False)
            assert client.ask(asked, 1).entries[0].error_code == 0
            rule = AclCreation(
                resource_type=2,
                resource_name="t",
                resource_pattern_type=3,
                principal="User:u",
                host="*",
                operation=3,
                permission_type=3,
            )
            made = client.ask(CreateAclsRequest(creations=[rule]), 3)
            assert made.results[0].error_code == 0

        await asyncio.gather(*(ask(alter) for _ in range(5)))
        assert broker.metadata.topics["t"].configs == {"retention.ms": "1000"}
        assert disk.in_loop == []
        assert disk.elsewhere


async def test_producer_ids_beyond_the_current_block(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, disk, ask):
        disk.watch()

        def ids(client: RawClient) -> list[int]:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            found: list[int] = []
            while len(found) < 3 * PRODUCER_ID_BLOCK:
                answer = client.ask(request, 4)
                if answer.error_code == 0:
                    found.append(answer.producer_id)
                else:
                    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return found

        found = await ask(ids)
        assert len(set(found)) == len(found)
        assert disk.in_loop == []


async def test_a_client_that_leaves_while_its_topic_is_being_saved(tmp_path: Path) -> None:
    """What has been begun with the disk is finished: metadata and logs stay in step."""
    gate, is_saving = threading.Event(), threading.Event()

    def wait(operation: str, path: Path) -> None:
        if path.name == "metadata.json.tmp" and operation == "sync":
            is_saving.set()
            assert gate.wait(15)

    async with serving(tmp_path) as (broker, disk, ask):
        disk.on_wait = wait

        def leave(client: RawClient) -> None:
            client.send(create_request("t"), 7)
            assert is_saving.wait(15)

        await ask(leave)
        for connection in broker.listeners.limits.all():
            connection.abort(None)
        assert broker.metadata.topic("t") is None, "no client sees what is not on the disk"
        gate.set()
        await until_async("the topic is there", lambda: broker.metadata.topic("t"))
        assert broker.replicas.has_partition("t", 1)


async def test_changes_that_are_made_while_one_is_saved_share_the_next_write(
    tmp_path: Path,
) -> None:
    gate, is_saving = threading.Event(), threading.Event()
    saves: list[str] = []

    def wait(operation: str, path: Path) -> None:
        if path.name == "metadata.json.tmp" and operation == "sync":
            saves.append(path.name)
            is_saving.set()
            assert gate.wait(15)

    async with serving(tmp_path) as (broker, disk, ask):
        disk.on_wait = wait
        asked = [
            asyncio.ensure_future(ask(lambda c, name=name: c.ask(create_request(name), 7)))
            for name in ("a", "b", "c", "d")
        ]
        await until_async(
            "all topics wait for the save",
            lambda: is_saving.is_set() and len(broker.metadata._newest.topics) == 4,
        )
        gate.set()
        answers = await asyncio.gather(*asked)
        assert [answer.topics[0].error_code for answer in answers] == [0] * 4
        assert len(saves) == 2
        assert set(broker.metadata.topics) == {"a", "b", "c", "d"}


async def test_a_save_that_fails_refuses_what_was_made_from_it(tmp_path: Path) -> None:
    gate, is_saving = threading.Event(), threading.Event()

    def wait(operation: str, path: Path) -> None:
        if path.name == "metadata.json.tmp" and operation == "sync" and not gate.is_set():
            is_saving.set()
            assert gate.wait(15)
            raise OSError(5, "the disk says no")

    async with serving(tmp_path) as (broker, disk, ask):
        disk.on_wait = wait
        asked = [
            asyncio.ensure_future(ask(lambda c, name=name: c.ask(create_request(name), 7)))
            for name in ("a", "b", "c")
        ]
        await until_async(
            "all topics wait for the save",
            lambda: is_saving.is_set() and len(broker.metadata._newest.topics) == 3,
        )
        gate.set()
        answers = await asyncio.gather(*asked)
        codes = {answer.topics[0].error_code for answer in answers}
        assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert not broker.metadata.topics
        again = await ask(lambda client: client.ask(create_request("a"), 7))
        assert again.topics[0].error_code == 0
        assert set(broker.metadata.topics) == {"a"}
