"""One listening socket: accepts connections of one protocol, and has their advertised address."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from penstock_broker.config import ListenerConfig
from penstock_broker.security.principals import (
    CertificateError,
    parse_mapping_rules,
    subject_of,
    user,
)
from penstock_broker.security.session import Session
from penstock_broker.server.connection import Connection
from penstock_broker.server.dispatch import Dispatcher
from penstock_broker.server.handshakes import HandshakeLine
from penstock_broker.server.limits import ConnectionLimits
from penstock_broker.server.sasl_gate import SaslGate
from penstock_broker.server.tls import TlsContext
from penstock_broker.server.tls_connection import TlsConnection

BACKLOG = 1_024

LogLine = Callable[..., None]


class Listener:
    """What connections ask of their server (``connection.Host``), for one listener."""

    def __init__(
        self,
        config: ListenerConfig,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        log_line: LogLine,
        *,
        gate: SaslGate | None,
        tls: TlsContext | None,
        handshakes: HandshakeLine,
        count: Callable[[str, str], None],
    ) -> None:
        """``gate``: SASL comes before the requests. ``tls``: it speaks TLS. ``count`` is called
        with the mechanism ("SSL") and the result of each handshake."""
        self.config = config
        self.frame_bytes_max = config.settings.socket_request_max_bytes
        self.handshake_seconds_max = config.settings.authentication_timeout_ms / 1000.0
        self.dispatch = dispatcher.dispatch
        self.dispatch_runs = dispatcher.dispatch_runs
        self.rest = dispatcher.rest
        self.reserve = limits.reserve
        self.release = limits.release
        self.log_line = log_line
        self.tls = tls
        self.address = ("", 0)
        """Where it is bound."""
        self.readers = limits.readers
        self.handshakes = handshakes
        self._limits = limits
        self._gate = gate
        self._count = count
        self._user_of = parse_mapping_rules(config.settings.ssl_principal_mapping_rules)
        self._loop = loop
        self.bytes_in = 0
        """Bytes received, as they are on the wire but for TLS."""
        self.bytes_out = 0
        """Bytes sent."""
        self.accepted = 0
        """Connections that were let in."""
        self.refused = 0
        """Connections over a limit."""
        self._connections = 0
        self._server: asyncio.Server | None = None

    def __len__(self) -> int:
        return self._connections

    async def start(self) -> tuple[str, int]:
        """Listen; the address that was bound. OSError when it is taken."""
        make = Connection if self.tls is None else TlsConnection
        self._server = await self._loop.create_server(
            lambda: make(self, self._loop),
            self.config.host or None,
            self.config.port,
            backlog=BACKLOG,
            start_serving=False,
        )
        for listening in self._server.sockets:
            self._set_buffers(listening)
        await self._server.start_serving()
        name = self._server.sockets[0].getsockname()
        self.address = str(name[0]), int(name[1])
        return self.address

    def _set_buffers(self, listening: socket.socket) -> None:
        """Accepted sockets inherit these; unset, the kernel grows buffers by itself."""
        settings = self.config.settings
        for name, option, size in (
            (
                "socket.receive.buffer.bytes",
                socket.SO_RCVBUF,
                settings.socket_receive_buffer_bytes,
            ),
            ("socket.send.buffer.bytes", socket.SO_SNDBUF, settings.socket_send_buffer_bytes),
        ):
            if name in settings.given and size > 0:
                listening.setsockopt(socket.SOL_SOCKET, option, size)

    def stop_accepting(self) -> None:
        """Close the listening socket; connections stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    # -- what connections ask (connection.Host, tls_connection.TlsHost) --------------------------

    def admit(self, connection: Connection) -> str | None:
        """Count a new connection; the reason if it is over a limit."""
        config = self.config
        connection.session = Session(config.name, config.protocol.value, connection.client_host)
        refusal = self._limits.admit(connection)
        if refusal is not None:
            self.refused += 1
        else:
            self.accepted += 1
            self._connections += 1
            if self._gate is not None:
                self._gate.begin(connection)
        return refusal

    def remove(self, connection: Connection) -> None:
        """The connection has ended."""
        self._connections -= 1
        self._limits.remove(connection)

    def tls_context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        if self.tls is None:
            raise RuntimeError("no TLS on this listener")
        return self.tls.current

    def secured(self, connection: Connection, certificate: bytes | None) -> str | None:
        """The TLS handshake is complete: without SASL, the certificate names the principal."""
        if self._gate is not None or certificate is None:
            return None
        try:
            connection.become(user(self._user_of(subject_of(certificate))))
        except CertificateError as error:
            self._count("SSL", "failure")
            return str(error)
        self._count("SSL", "success")
        return None

    def insecure(self, connection: Connection, reason: str) -> None:
        """A TLS handshake failed."""
        self._count("SSL", "failure")
        self.log_line(
            "TLS handshake of %s on %s failed: %s",
            connection.client_host,
            self.config.name,
            reason,
        )
