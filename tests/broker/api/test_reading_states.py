"""The reading side of a connection: it is read from while no reason is there not to."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from penstock_broker.server.connection import OUT_BYTES_MAX, UNANSWERED_MAX, Connection
from penstock_broker.server.reading import WAITS_FOR_US, Stop
from penstock_broker.wire.framing import CAPACITY

# MEMORY and BACKLOG begin while bytes arrive: before the others.
IN_ORDER = (Stop.MEMORY, Stop.BACKLOG, Stop.MUTED, Stop.HELD)
SUBSETS = [some for count in range(5) for some in itertools.combinations(IN_ORDER, count)]


class FakeHost:
    """A server that has no memory for large frames until a test says so."""

    frame_bytes_max = 1 << 30
    readers: ThreadPoolExecutor
    bytes_in = bytes_out = 0
    releases = 0

    def admit(self, connection: Connection) -> None:
        return None

    def remove(self, connection: Connection) -> None: ...

    def log_line(self, message: str, *arguments: object) -> None: ...

    def reserve(self, connection: Connection, size: int) -> bool:
        return False

    def release(self, connection: Connection) -> None:
        self.releases += 1

    def dispatch(self, frame: memoryview, connection: Connection) -> None: ...

    def dispatch_runs(self, frames: object, connection: Connection) -> int:
        return 0

    def rest(self) -> None: ...


class FakeTransport:
    """Notes whether it is read from; asyncio's may be paused and resumed only once each."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours = ours
        self.is_reading = True
        self.changes = 0

    def get_extra_info(self, name: str) -> Any:
        return {"socket": self._ours, "peername": ("127.0.0.1", 1)}[name]

    def pause_reading(self) -> None:
        self.is_reading = False
        self.changes += 1

    def resume_reading(self) -> None:
        self.is_reading = True
        self.changes += 1

    def abort(self) -> None: ...


class Unanswered:
    """A request that waits."""

    parts: Any = None

    def closed(self) -> None: ...


class Bench:
    """One connection, and what begins and ends each reason."""

    def __init__(self, connection: Connection, transport: FakeTransport, host: FakeHost) -> None:
        self.connection = connection
        self.transport = transport
        self.host = host
        self.begin: dict[Stop, Callable[[], None]] = {
            Stop.MUTED: lambda: connection.mute(3_600),
            Stop.MEMORY: self._large_frame,
            Stop.HELD: connection.hold,
            Stop.BACKLOG: self._unanswered,
        }
        self.end: dict[Stop, Callable[[], None]] = {
            Stop.MUTED: connection._unmute,
            Stop.MEMORY: connection.may_receive,
            Stop.HELD: connection.unhold,
            Stop.BACKLOG: self._answer,
        }

    def _put(self, data: bytes) -> None:
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def _large_frame(self) -> None:
        """It has no whole frame: what is buffered stays. Also while it is not read from, as when
        the transport had read before it was paused."""
        self._put((CAPACITY + 1).to_bytes(4, "big"))

    def _unanswered(self) -> None:
        for _ in range(UNANSWERED_MAX):
            self.connection.expect(Unanswered())
        if self.transport.is_reading:
            self._put(b"")
        else:  # nothing is read, so it is not found out by reading
            self.connection._stop(Stop.BACKLOG)

    def _answer(self) -> None:
        pending = list(self.connection._pending)
        for each in pending:
            each.parts = ()
        self.connection.answered(())


@contextmanager
def bench() -> Iterator[Bench]:
    theirs, ours = socket.socketpair()
    host, transport = FakeHost(), FakeTransport(ours)
    connection = Connection(host, asyncio.get_running_loop())  # type: ignore[arg-type]
    connection.connection_made(transport)  # type: ignore[arg-type]
    try:
        yield Bench(connection, transport, host)
    finally:
        connection.close()
        theirs.close()
        ours.close()


def in_loop(body: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await body()

    asyncio.run(run())


@pytest.mark.parametrize("before", SUBSETS, ids=lambda some: "+".join(s.name for s in some) or "-")
def test_each_reason_comes_and_goes_by_its_own_event(before: tuple[Stop, ...]) -> None:
    """From each of the sixteen states, by each of the eight events."""

    async def run() -> None:
        for reason, is_begin in itertools.product(Stop, (True, False)):
            with bench() as at:
                for each in before:
                    at.begin[each]()
                assert at.connection._stops == set(before)
                (at.begin if is_begin else at.end)[reason]()
                after = {*before, reason} if is_begin else {*before} - {reason}
                assert at.connection._stops == after
                assert at.transport.is_reading == (not after)
                assert at.transport.changes <= 2
                waits = after & WAITS_FOR_US or Stop.BACKLOG in after
                assert (at.connection.idle_since() is None) == bool(waits)

    in_loop(run)


def test_an_answer_that_the_peer_does_not_read_stops_reading_until_half_of_it_is_gone() -> None:
    async def run() -> None:
        with bench() as at:
            connection = at.connection
            connection._out_bytes = OUT_BYTES_MAX + 1
            at._put(b"")
            assert connection._stops == {Stop.BACKLOG}
            connection._out_bytes = OUT_BYTES_MAX // 2 + 1
            connection._look_at_backlog()
            assert not at.transport.is_reading
            connection._out_bytes = OUT_BYTES_MAX // 2
            connection._look_at_backlog()
            assert at.transport.is_reading

    in_loop(run)


def test_a_connection_that_ends_while_it_waits_for_memory_waits_no_more() -> None:
    async def run() -> None:
        for reason in Stop:
            with bench() as at:
                at.begin[reason]()
                at.connection.close()
                assert at.host.releases == (reason is Stop.MEMORY)
                at.end[reason]()

    in_loop(run)
