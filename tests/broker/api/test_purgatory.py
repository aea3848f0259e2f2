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
        self.waits = False
        self.looks = 0

    def advanced(self, key: Hashable, amount: int) -> bool:
        self.missing -= amount
        return self.missing <= 0

    def still_waits(self) -> bool:
        self.looks += 1
        return self.waits

    def complete(self) -> None:
        self.completions += 1


def test_one_that_fails_leaves_no_other_without_an_answer() -> None:
    clock = SimClock()
    purgatory = DelayedOperations(clock)

    class Broken(Want):
        def complete(self) -> None:
            raise ZeroDivisionError

    class Confused(Want):
        def still_waits(self) -> bool:
            raise ZeroDivisionError

    wants = [Broken(1), Want(1), Confused(1), Want(1)]
    for want in wants:
        purgatory.park(want, ["a"], clock.monotonic() + 5)
    purgatory.advance("a", 1)
    clock.run_ready()
    assert [want.completions for want in wants] == [0, 1, 0, 1]
    assert len(purgatory) == purgatory.named == 0


def test_a_key_completes_after_the_event_and_only_once() -> None:
    clock = SimClock()
    purgatory = DelayedOperations(clock)
    want = Want(10)
    purgatory.park(want, ["a", "b", "a"], clock.monotonic() + 5)
    purgatory.advance("a", 4)
    purgatory.advance("unknown", 100)
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


def test_who_looks_again_and_finds_too_little_waits_on() -> None:
    """Pitfall 40: what was appended may not be readable yet. But a key that goes away, the deadline
    and a stop always complete it."""
    clock = SimClock()
    purgatory = DelayedOperations(clock)
    want, other, last = Want(1), Want(1), Want(1)
    for number, each in enumerate((want, other, last)):
        each.waits = True
        purgatory.park(each, [number], clock.monotonic() + 5)
        purgatory.advance(number, 1)
    clock.run_ready()
    assert (want.looks, want.completions, len(purgatory)) == (1, 0, 3)
    want.waits = False
    purgatory.advance(0, 1)
    purgatory.wake_soon(1)
    clock.run_ready()
    assert (want.looks, want.completions) == (2, 1)
    assert other.completions == 1
    clock.advance(5_001)
    assert (last.completions, len(purgatory)) == (1, 0)


class Watch:
    """A watcher of keys, on whose behalf an operation waits."""

    waiting_key = "mine"

    def __init__(self) -> None:
        self.seen: list[tuple[Hashable, int]] = []

    def advanced(self, key: Hashable, amount: int) -> bool:
        self.seen.append((key, amount))
        return False


def test_watchers_are_notified_until_they_stop() -> None:
    clock = SimClock()
    purgatory = DelayedOperations(clock)
    watch, want = Watch(), Want(10)
    purgatory.watch("a", watch)
    purgatory.watch("b", watch)
    purgatory.park(want, ["mine"], clock.monotonic() + 5)
    for _ in range(2):
        purgatory.advance("a", 7)
    assert watch.seen == [("a", 7)] * 2
    purgatory.wake_soon("b")
    clock.run_ready()
    assert (watch.seen[2:], want.completions) == ([("b", 0)], 1)
    purgatory.unwatch("a", watch)
    purgatory.unwatch("nothing", watch)
    purgatory.advance("a", 7)
    assert len(watch.seen) == 3
    assert len(purgatory) == 0, "a watcher does not wait"


def test_cancelled_operations_are_removed() -> None:
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


def test_a_key_that_goes_away_and_a_stop_complete_with_the_records_there_are() -> None:
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
