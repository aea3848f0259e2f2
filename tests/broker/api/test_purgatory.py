"""The purgatory, alone with a simulated clock; and answers where there is no sendfile."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from pathlib import Path

import pytest

from penstock_broker.config import BrokerConfig
from penstock_broker.server import connection as connection_module
from penstock_broker.server.broker import Broker
from penstock_broker.server.purgatory import DelayedOperations
from penstock_broker.testing import SimClock
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic


class Want:
    """An operation that wants some bytes of any of its keys."""

    def __init__(self, amount: int) -> None:
        self.missing = amount
        self.completions = 0

    def advanced(self, key: Hashable, amount: int) -> bool:
        self.missing -= amount
        return self.missing <= 0

    def still_waits(self) -> bool:
        return False

    def complete(self) -> None:
        self.completions += 1


def test_a_key_completes_after_the_event_and_only_once() -> None:
    clock = SimClock()
    purgatory = DelayedOperations(clock)
    want = Want(10)
    purgatory.park(want, ["a", "b", "a"], clock.monotonic() + 5)
    purgatory.advance("a", 4)
    purgatory.advance("nobody", 100)
    clock.run_ready()
    assert (want.completions, len(purgatory)) == (0, 1)
    purgatory.advance("b", 6)
    purgatory.advance("a", 6)
    assert want.completions == 0, "not inside the append"
    clock.run_ready()
    clock.advance(10_000)
    purgatory.advance("a", 100)
    clock.run_ready()
    assert (want.completions, len(purgatory)) == (1, 0)


def test_the_deadline_completes() -> None:
    clock = SimClock()
    purgatory = DelayedOperations(clock)
    want = Want(10)
    purgatory.park(want, ["a"], clock.monotonic() + 5)
    clock.advance(4_999)
    assert want.completions == 0
    clock.advance(2)
    assert (want.completions, len(purgatory)) == (1, 0)


def test_ready_and_overdue_at_once_is_still_once() -> None:
    clock = SimClock()
    purgatory = DelayedOperations(clock)
    want = Want(1)
    purgatory.park(want, ["a"], clock.monotonic())
    purgatory.advance("a", 1)
    clock.run_ready()
    assert want.completions == 1


def test_the_cancelled_are_forgotten() -> None:
    clock = SimClock()
    purgatory = DelayedOperations(clock)
    want, other = Want(1), Want(1)
    purgatory.park(want, ["a"], clock.monotonic() + 5)
    purgatory.park(other, ["a"], clock.monotonic() + 5)
    purgatory.advance("a", 1)
    purgatory.cancel(want)
    purgatory.cancel(want)
    clock.advance(10_000)
    assert (want.completions, other.completions, len(purgatory)) == (0, 1, 0)


def test_a_key_that_goes_away_and_a_stop_complete_with_what_there_is() -> None:
    clock = SimClock()
    purgatory = DelayedOperations(clock)
    wants = [Want(100) for _ in range(3)]
    for number, want in enumerate(wants):
        purgatory.park(want, [number], clock.monotonic() + 5)
    purgatory.wake_soon(0)
    clock.run_ready()
    assert [w.completions for w in wants] == [1, 0, 0]
    purgatory.complete_all()
    assert [w.completions for w in wants] == [1, 1, 1]


@pytest.mark.parametrize("has_sendfile", [True, False])
async def test_answers_are_the_same_without_sendfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_sendfile: bool
) -> None:
    """A megabyte for a client that begins to read late: sent in pieces, whole and in order."""
    monkeypatch.setattr(connection_module, "_HAS_SENDFILE", has_sendfile)
    broker = Broker(BrokerConfig(), tmp_path / "data")
    host, port = await broker.start("127.0.0.1", 0)
    try:
        broker.topics.create("t", 1, {})
        sent = b""
        for number in range(40):
            batch = build_batch([NewRecord(None, b"%d" % number * 30_000, 1)])
            broker.replicas.partition("t", 0).append(memoryview(batch))
            sent += bytes(batch)
        received = await asyncio.get_running_loop().run_in_executor(None, _fetch_twice, host, port)
        assert received == [sent, sent]
    finally:
        await broker.stop()


def _fetch_twice(host: str, port: int) -> list[bytes]:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=32 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=32 << 20,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )
    with RawClient(host, port) as client:
        client.send(request, 11)
        client.send(request, 12)
        client.is_silent(0.2)
        answers = [client.receive()[1] for _ in range(2)]
    return [bytes(a.responses[0].partitions[0].records) for a in answers]
