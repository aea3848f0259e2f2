"""A broker in this process, on a disk in memory, and connections without a network.

The connection is the real one; only its transport is made up: bytes are put in by the test, and
answers are read from the other end of a socket pair.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from penstock_broker.config import BrokerConfig
from penstock_broker.server.broker import Broker
from penstock_broker.server.connection import Connection
from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.wire.apis import APIS
from penstock_broker.wire.fields import Struct
from penstock_broker.wire.header import RequestHeader, encode_request_header, skip_header_tags
from penstock_broker.wire.schema import decode, encode

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "offsets.topic.num.partitions": "1",
}
_BY_REQUEST = {api.request: api for api in APIS.values()}


@contextlib.asynccontextmanager
async def in_process(settings: Mapping[str, str] | None = None) -> AsyncIterator[Broker]:
    """A running broker; nothing of it touches the disk."""
    config = BrokerConfig.parse(QUICK | dict(settings or {}))
    broker = Broker(config, Path("/data"), files=MemFiles())
    broker.logs.run_in_background = lambda job: job()  # the disk in memory is not for threads
    await broker.start("127.0.0.1", 0)
    try:
        yield broker
    finally:
        await broker.stop()


def frame_of(request: Struct, version: int, *, correlation_id: int = 1, client: str = "c") -> bytes:
    """A request as it is sent."""
    api = _BY_REQUEST[type(request)]
    header = RequestHeader(api.key, version, correlation_id, client)
    body = encode_request_header(header, api.flexible(version)) + encode(request, version)
    return struct.pack(">i", len(body)) + body


class _Transport:
    """What a connection asks of asyncio's."""

    def __init__(self, link: Link, ours: socket.socket, host: str) -> None:
        self._link = link
        self._extra = {"peername": (host, 1), "sockname": ("127.0.0.1", 2), "socket": ours}
        self.is_paused = False
        self.is_gone = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra.get(name, default)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def abort(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self._link.lost()

    close = abort

    def is_closing(self) -> bool:
        return self.is_gone


class Link:
    """A client's end of a connection to a broker in the same process."""

    def __init__(self, broker: Broker, host: str = "127.0.0.1") -> None:
        self._loop = asyncio.get_running_loop()
        self._theirs, ours = socket.socketpair()
        self._ours = ours
        self._theirs.setblocking(False)
        ours.setblocking(False)
        self._received = bytearray()
        self.transport = _Transport(self, ours, host)
        host = next(iter(broker.listeners._listeners.values()))
        self.connection = Connection(host, self._loop)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    @property
    def is_closed(self) -> bool:
        """Whether the broker has ended the connection."""
        return self.transport.is_gone

    def lost(self) -> None:
        self._loop.call_soon(self._lost)

    def _lost(self) -> None:
        self.connection.connection_lost(None)
        self._ours.close()

    def put(self, data: bytes) -> float:
        """Let the broker read these bytes, as far as it reads; the longest that one read took."""
        longest = 0.0
        view = memoryview(data)
        while view and not self.is_closed and not self.transport.is_paused:
            space = self.connection.get_buffer(len(view))
            count = min(len(space), len(view), 1 << 18)
            space[:count] = view[:count]
            view = view[count:]
            began = time.perf_counter()
            self.connection.buffer_updated(count)
            longest = max(longest, time.perf_counter() - began)
        return longest

    def answers(self) -> list[bytes]:
        """The answers that have come, without their sizes."""
        with contextlib.suppress(BlockingIOError, OSError):
            while data := self._theirs.recv(1 << 20):
                self._received += data
        found = []
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big")
            if len(self._received) < 4 + size:
                break
            found.append(bytes(self._received[4 : 4 + size]))
            del self._received[: 4 + size]
        return found

    async def ask(self, request: Struct, version: int, seconds: float = 120.0) -> Any:
        """A request's answer."""
        api = _BY_REQUEST[type(request)]
        self.put(frame_of(request, version))
        deadline = time.monotonic() + seconds
        while not (found := self.answers()):
            if self.is_closed:
                raise ConnectionError("closed")
            if time.monotonic() > deadline:
                raise TimeoutError(api.name)
            await asyncio.sleep(0)
        position = 4
        if api.flexible(version) and api.name != "ApiVersions":
            position = skip_header_tags(found[0], position)
        return decode(api.response, version, memoryview(found[0]), position)[0]

    def close(self) -> None:
        """Hang up."""
        self.connection.close()
        self._theirs.close()


def with_broker(body: Callable[[Broker], Awaitable[None]], **settings: object) -> None:
    """Run ``body`` with a broker of these settings; an underscore means a dot."""

    async def run() -> None:
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        async with in_process(named) as broker:
            await body(broker)

    asyncio.run(run())
