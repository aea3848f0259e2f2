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

from penstock_broker.config import BrokerConfig
from penstock_broker.server.broker import Broker
from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

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
