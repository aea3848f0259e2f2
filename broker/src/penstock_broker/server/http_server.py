"""The HTTP listener for probes and scrapes: ``/metrics``, ``/health/live``, ``/health/ready``.

Its own, because it is one page: GET and HEAD of three paths, one request per connection, no body
read. What a peer can cost is bounded: connections, the size of a request's head, and the time that
it has for everything (a peer that sends or reads too slowly is cut off). Metrics are written in
pieces, with other work in between, and never faster than the peer reads.

It is off unless ``penstock.http.listener`` names an address, and has no authentication: bind it to
loopback or to a network of your own.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable

from penstock_broker.metrics import Metrics
from penstock_broker.server.health import Health

_logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 16
HEAD_BYTES_MAX = 8_192
SECONDS_MAX = 10.0
TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON = "application/json"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class HttpServer:
    """Answers probes and scrapes."""

    def __init__(
        self, health: Health, metrics: Metrics, *, seconds_max: float = SECONDS_MAX
    ) -> None:
        self._health = health
        self._metrics = metrics
        self._seconds_max = seconds_max
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address that was bound. OSError when it is taken."""
        self._server = await asyncio.start_server(
            self._accepted, host, port, limit=HEAD_BYTES_MAX, backlog=CONNECTIONS_MAX
        )
        name = self._server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def stop(self) -> None:
        """Stop listening, and end what is being answered."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._seconds_max):
                await self._answer(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # gone, or too slow
        except Exception:
            _logger.exception("an HTTP request failed")
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            await _send(writer, 431, TEXT, [b"the request's head is too large\n"])
            return
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            await _send(writer, 400, TEXT, [b"this is not HTTP/1.1\n"])
            return
        method, path = words[0], words[1].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            await _send(writer, 405, TEXT, [b"GET or HEAD\n"])
            return
        status, kind, body = self._find(path)
        if method == b"HEAD":
            body = []
        await _send(writer, status, kind, body, chunked=words[2] == b"HTTP/1.1")

    def _find(self, path: bytes) -> tuple[int, str, Iterable[bytes]]:
        if path == b"/metrics":
            return 200, TEXT, self._metrics.render()
        if path == b"/health/live":
            return 200, JSON, [_json({"status": "live"})]
        if path == b"/health/ready":
            reasons = self._health.reasons()
            if reasons:
                return 503, JSON, [_json({"status": "not ready", "reasons": reasons})]
            return 200, JSON, [_json({"status": "ready"})]
        return 404, TEXT, [b"/metrics, /health/live, /health/ready\n"]


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


async def _send(
    writer: asyncio.StreamWriter,
    status: int,
    kind: str,
    body: Iterable[bytes],
    *,
    chunked: bool = False,
) -> None:
    """Send a head and a body: a list as a whole, anything else piece by piece as it is made.

    In chunks, so that a scrape that was cut off does not pass for a whole one; to HTTP/1.0, which
    has none, until the end of the connection.
    """
    if isinstance(body, list):
        chunked = False
        framing = f"Content-Length: {sum(map(len, body))}\r\n"
    else:
        framing = "Transfer-Encoding: chunked\r\n" if chunked else ""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n{framing}"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode("ascii"))
    for piece in body:
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
        await asyncio.sleep(0)
    if chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
