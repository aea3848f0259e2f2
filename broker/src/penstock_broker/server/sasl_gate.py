"""The handler of a SASL listener's requests until the client is authenticated.

Until then a connection gets answers to ApiVersions, SaslHandshake and SaslAuthenticate, in the
order that SASL has, or none: anything else closes it, as does a frame that is too large, or more
time than ``authentication.timeout.ms``. Afterwards nothing here is in the way of a request, unless
sessions have an end (KIP-368): then the connection comes back here when it has come, and only a
renewal leads out again.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable

from penstock_broker.config import ListenerConfig
from penstock_broker.metrics import Metrics
from penstock_broker.security.authentication import Authentication, AuthenticationState
from penstock_broker.security.sasl import AuthenticationError, Credentials
from penstock_broker.server.connection import Connection
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.header import API_VERSIONS_KEY
from penstock_broker.wire.messages import sasl_authenticate, sasl_handshake

_logger = logging.getLogger(__name__)

_KEY = struct.Struct(">h")
_SIZE = struct.Struct(">i")

Dispatch = Callable[[memoryview, Connection], None]


class SaslGate:
    """The gate of one listener."""

    def __init__(
        self,
        listener: ListenerConfig,
        credentials: Credentials,
        dispatch: Dispatch,
        loop: asyncio.AbstractEventLoop,
        *,
        metrics: Metrics,
        log_line: Callable[..., None],
    ) -> None:
        self.listener_name = listener.name
        self.settings = listener.settings
        self.dispatch_on = dispatch
        self.loop = loop
        self.log_line = log_line
        self._credentials = credentials
        self._metrics = metrics

    def begin(self, connection: Connection) -> None:
        """A new connection: not authenticated yet."""
        settings = self.settings
        _Passage(self, connection, self._credentials)
        connection.limit_frames(settings.sasl_server_max_receive_size)

    def count(self, mechanism: str, result: str) -> None:
        """An authentication has ended."""
        self._metrics.authentications.labels(self.listener_name, mechanism, result).inc()


class _Passage:
    """One connection's way through the gate (``security.authentication.Door``)."""

    def __init__(self, gate: SaslGate, connection: Connection, credentials: Credentials) -> None:
        self._gate = gate
        self._connection = connection
        settings = gate.settings
        self._authentication = Authentication(
            settings.sasl_enabled_mechanisms, credentials, self, settings.connections_max_reauth_ms
        )
        connection.session.authentication = self._authentication
        connection.dispatch = self.dispatch
        seconds = settings.authentication_timeout_ms / 1000.0
        self._timer = gate.loop.call_later(seconds, self._too_late)
        connection.when_closed = self._release

    def dispatch(self, frame: memoryview, connection: Connection) -> None:
        """A frame of a client that is not known, or no longer. DecodeError."""
        authentication = self._authentication
        if authentication.state is AuthenticationState.RAW:
            self._take_raw(frame)
            return
        if len(frame) < _KEY.size:
            raise DecodeError(f"a request of {len(frame)} bytes")
        (key,) = _KEY.unpack_from(frame)
        if (
            key == API_VERSIONS_KEY
            or (key == sasl_handshake.API_KEY and authentication.takes_handshake)
            or (key == sasl_authenticate.API_KEY and authentication.takes_token)
        ):
            self._gate.dispatch_on(frame, connection)
        else:
            self._gate.count("none", "unauthenticated_request")
            connection.abort(f"API {key} before authentication, or after its end")

    def _take_raw(self, token: memoryview) -> None:
        try:
            answer = self._authentication.step(bytes(token))
        except AuthenticationError as error:
            self._authentication.refuse(error.detail)
            return
        self._connection.send((_SIZE.pack(len(answer)) + answer,))

    # -- what authentication leads to ------------------------------------------------------------

    def passed(self, principal: str, mechanism: str) -> None:
        connection, gate = self._connection, self._gate
        self._timer.cancel()
        connection.become(principal)
        connection.limit_frames(gate.settings.socket_request_max_bytes)
        connection.dispatch = gate.dispatch_on
        gate.count(mechanism, "success")
        _logger.debug("%s is %s (%s)", connection.client_host, principal, mechanism)
        if self._authentication.lifetime_ms:
            seconds = self._authentication.lifetime_ms / 1000.0
            self._timer = gate.loop.call_later(seconds, self._expire)

    def refused(self, mechanism: str, detail: str, respond: Callable[[], None] | None) -> None:
        connection, gate = self._connection, self._gate
        gate.count(mechanism, "failure")
        gate.log_line(
            "authentication of %s on %s failed (%s): %s",
            connection.client_host,
            gate.listener_name,
            mechanism,
            detail,
        )
        connection.hold()
        self._timer.cancel()
        seconds = gate.settings.connection_failed_authentication_delay_ms / 1000.0
        self._timer = gate.loop.call_later(seconds, self._end, respond)

    def _end(self, respond: Callable[[], None] | None) -> None:
        if respond is not None:
            respond()
            self._connection.flush()
        self._connection.abort(None)

    def _expire(self) -> None:
        """The session is over: what comes now must be a renewal."""
        self._connection.runs = None
        self._connection.dispatch = self.dispatch

    def _too_late(self) -> None:
        self._gate.count("none", "timeout")
        self._connection.abort("not authenticated in time")

    def _release(self) -> None:
        """The connection is closed: drop the references in both directions."""
        self._timer.cancel()
        self._authentication.close()
        self._connection.session.authentication = None
        self._connection.dispatch = self._gate.dispatch_on
        self._connection.when_closed = None
