"""Records over TLS: read in pieces, from the cache or in a thread, whole and in order."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.config import BrokerConfig
from penstock_broker.log import files as files_module
from penstock_broker.log.files import OsFiles
from penstock_broker.server import tls_connection
from penstock_broker.server.broker import Broker
from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.metadata import MetadataRequest

ANSWERS = 3


def settings(authority: Any) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.issue("pieces.pem", "localhost")),
    }


async def start(broker: Broker) -> tuple[bytes, tuple[str, int]]:
    """A broker with a topic ``t``; what is in it, and where it listens."""
    address = await broker.start("127.0.0.1", 0)
    broker.topics.create("t", 1, {})
    sent = b""
    for number in range(120):
        batch = build_batch([NewRecord(None, os.urandom(30_000), number)])
        broker.replicas.partition("t", 0).append(memoryview(batch))
        sent += bytes(batch)
    return sent, address


def fetch_late(authority: Any, address: tuple[str, int]) -> list[bytes]:
    """Ask three times and read only then."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=32 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=32 << 20,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )
    context = ssl.create_default_context(cafile=authority.path)
    with RawClient(*address) as client:
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        for _ in range(ANSWERS):
            client.send(request, 11)
        other = RawClient(*address)
        other.socket = context.wrap_socket(other.socket, server_hostname="localhost")
        for _ in range(20):  # others are served while it does not read
            assert other.ask(MetadataRequest(topics=[]), 9).brokers
        other.close()
        answers = [client.receive()[1] for _ in range(ANSWERS)]
    return [bytes(a.responses[0].partitions[0].records) for a in answers]


@pytest.mark.parametrize("way", ["cache", "thread", "simulated disk"])
async def test_answers_are_whole_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Any, way: str
) -> None:
    if way == "thread":
        monkeypatch.setattr(files_module, "_NOWAIT", None)
    files = MemFiles() if way == "simulated disk" else OsFiles()
    broker = Broker(BrokerConfig.parse(settings(authority)), tmp_path / "data", files=files)
    sent, address = await start(broker)
    try:
        loop = asyncio.get_running_loop()
        received = await loop.run_in_executor(None, fetch_late, authority, address)
        assert received == [sent] * ANSWERS
    finally:
        await broker.stop()


async def test_a_slow_disk_delays_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Any
) -> None:
    """While a thread waits for what is not in the cache, the loop serves others; and a connection
    that ends meanwhile ends quietly."""
    monkeypatch.setattr(files_module, "_NOWAIT", None)
    broker = Broker(BrokerConfig.parse(settings(authority)), tmp_path / "data")
    sent, address = await start(broker)
    gate, is_reading = threading.Event(), threading.Event()
    file_type = type(next(iter(broker.replicas.partition("t", 0).fetch(0, 100, True).parts)).file)
    read: Callable[..., bytes] = file_type.read

    def slow(self: Any, position: int, size: int) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            is_reading.set()
            assert gate.wait(15)
        return read(self, position, size)

    monkeypatch.setattr(file_type, "read", slow)
    loop = asyncio.get_running_loop()

    def begin() -> RawClient:
        client = RawClient(*address)
        context = ssl.create_default_context(cafile=authority.path)
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=32 << 20)
        client.send(
            FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=32 << 20,
                topics=[FetchTopic(topic="t", partitions=[wanted])],
            ),
            11,
        )
        assert is_reading.wait(15)
        other = RawClient(*address)
        other.socket = context.wrap_socket(other.socket, server_hostname="localhost")
        assert other.ask(MetadataRequest(topics=[]), 9).brokers
        other.close()
        return client

    try:
        client = await loop.run_in_executor(None, begin)
        gone = await loop.run_in_executor(None, begin)
        gone.close()
        gate.set()
        answer = await loop.run_in_executor(None, client.receive)
        assert bytes(answer[1].responses[0].partitions[0].records) == sent
        client.close()
    finally:
        gate.set()
        await broker.stop()


async def test_a_turn_that_ends_where_the_cache_ends_sends_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Any
) -> None:
    """The last piece of a turn is short because the rest is not cached: the turn is over, and a
    thread reads, both at a time."""
    end = tls_connection.TURN_BYTES - 20  # with the answer's head, just over a turn
    preadv, loop_thread, cold = os.preadv, threading.get_ident(), []

    def until_the_end_of_the_cache(
        fd: int, buffers: Sequence[bytearray], position: int, flags: int = 0
    ) -> int:
        if threading.get_ident() != loop_thread or not flags:
            return preadv(fd, buffers, position, flags)
        if position >= end:
            cold.append(position)
            raise BlockingIOError
        size = min(len(buffers[0]), end - position)
        return preadv(fd, [memoryview(buffers[0])[:size]], position)

    broker = Broker(BrokerConfig.parse(settings(authority)), tmp_path / "data")
    sent, address = await start(broker)
    monkeypatch.setattr(os, "preadv", until_the_end_of_the_cache)
    try:
        loop = asyncio.get_running_loop()
        received = await loop.run_in_executor(None, fetch_late, authority, address)
        assert [each == sent for each in received] == [True] * ANSWERS
        assert end in cold
    finally:
        await broker.stop()
