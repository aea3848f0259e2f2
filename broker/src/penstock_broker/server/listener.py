"""The listening socket, and the bounds that hold over all connections."""

from __future__ import annotations

import asyncio
import logging
import socket

from penstock_broker.config import BrokerConfig
from penstock_broker.server.connection import Connection
from penstock_broker.server.dispatch import Dispatcher
from penstock_broker.server.limits import ConnectionLimits

_logger = logging.getLogger(__name__)

BACKLOG = 1_024
REAP_SECONDS = 1.0
LINES_A_SECOND = 20
"""About connections, in the log: hostile ones come by the thousand."""


class Listener:
    """Accepts connections, counts them, and ends those that have been silent too long."""

    def __init__(
        self,
        config: BrokerConfig,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
    ) -> None:
        self.frame_bytes_max = config.socket_request_max_bytes
        self.dispatch = dispatcher.dispatch
        self.dispatch_repeats = dispatcher.dispatch_repeats
        self.rest = dispatcher.rest
        self.limits = limits
        self.admit = limits.admit
        self.forget = limits.forget
        self.reserve = limits.reserve
        self.release = limits.release
        self._config = config
        self._loop = loop
        self._server: asyncio.Server | None = None
        self._reaper: asyncio.TimerHandle | None = None
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
        self._reaper = self._loop.call_later(REAP_SECONDS, self._reap)
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

    def abort_all(self) -> None:
        """End every connection without another word."""
        for connection in self.limits.all():
            connection.abort(None)

    def close_all(self) -> None:
        """End every connection, after a last try to send what is ready."""
        for connection in self.limits.all():
            connection.flush()
            connection.close()

    # -- what connections ask (connection.Host) -----------------------------------------------

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
        return len(self.limits)

    # -- silence ------------------------------------------------------------------------------

    def _reap(self) -> None:
        self.limits.reap()
        self._reaper = self._loop.call_later(REAP_SECONDS, self._reap)
