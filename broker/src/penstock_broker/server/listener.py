"""The listening socket, and the bounds that hold over all connections."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter

from penstock_broker.config import BrokerConfig
from penstock_broker.server.connection import Connection
from penstock_broker.server.dispatch import Dispatcher

_logger = logging.getLogger(__name__)

BACKLOG = 1_024
REAP_SECONDS_MIN = 1.0
REAP_SECONDS_MAX = 30.0
LINES_A_SECOND = 20
"""About connections, in the log: hostile ones come by the thousand."""


class Listener:
    """Accepts connections, counts them, and ends those that have been silent too long."""

    def __init__(
        self, config: BrokerConfig, dispatcher: Dispatcher, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.frame_bytes_max = config.socket_request_max_bytes
        self.dispatch = dispatcher.dispatch
        self.rest = dispatcher.rest
        self._config = config
        self._loop = loop
        self._server: asyncio.Server | None = None
        self._reaper: asyncio.TimerHandle | None = None
        self._connections: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._second = 0
        self._lines = 0

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address that was bound. OSError when it is taken."""
        self._server = await self._loop.create_server(
            lambda: Connection(self, self._loop), host, port, backlog=BACKLOG, start_serving=False
        )
        bound = self._server.sockets[0]
        for listening in self._server.sockets:
            self._set_buffers(listening)
        await self._server.start_serving()
        self._schedule_reaping()
        name = bound.getsockname()
        return str(name[0]), int(name[1])

    def _set_buffers(self, listening: socket.socket) -> None:
        """Accepted sockets inherit these; unset, the kernel grows buffers by itself."""
        given = self._config.given
        for name, option, size in (
            (
                "socket.receive.buffer.bytes",
                socket.SO_RCVBUF,
                self._config.socket_receive_buffer_bytes,
            ),
            ("socket.send.buffer.bytes", socket.SO_SNDBUF, self._config.socket_send_buffer_bytes),
        ):
            if name in given and size > 0:
                listening.setsockopt(socket.SOL_SOCKET, option, size)

    def stop_accepting(self) -> None:
        """Close the listening socket; connections stay."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None

    def close_all(self) -> None:
        """End every connection, after a last try to send what is ready."""
        for connection in list(self._connections):
            connection.flush()
            connection.close()

    # -- what connections ask (connection.Host) -----------------------------------------------

    def admit(self, connection: Connection) -> str | None:
        """Count a new connection; a reason if there is no room for it."""
        config, address = self._config, connection.client_host
        if len(self._connections) >= config.max_connections:
            return f"max.connections is {config.max_connections}"
        if self._by_address[address] >= config.max_connections_per_ip:
            return f"max.connections.per.ip is {config.max_connections_per_ip}"
        self._connections.add(connection)
        self._by_address[address] += 1
        return None

    def forget(self, connection: Connection) -> None:
        """The connection has ended."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        address = connection.client_host
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def say(self, message: str, *arguments: object) -> None:
        """Log what became of a connection; beyond a few lines a second only how many there were."""
        second = int(self._loop.time())
        if second != self._second:
            if self._lines > LINES_A_SECOND:
                _logger.info("%d more lines about connections", self._lines - LINES_A_SECOND)
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= LINES_A_SECOND:
            _logger.info(message, *arguments)

    def __len__(self) -> int:
        return len(self._connections)

    # -- silence ------------------------------------------------------------------------------

    def _schedule_reaping(self) -> None:
        idle_ms = self._config.connections_max_idle_ms
        if idle_ms > 0:
            every = min(REAP_SECONDS_MAX, max(REAP_SECONDS_MIN, idle_ms / 4000.0))
            self._reaper = self._loop.call_later(every, self._reap)

    def _reap(self) -> None:
        oldest = self._loop.time() - self._config.connections_max_idle_ms / 1000.0
        for connection in list(self._connections):
            since = connection.idle_since()
            if since is not None and since < oldest:
                connection.abort("idle")
        self._schedule_reaping()
