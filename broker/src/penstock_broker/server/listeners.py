"""All listeners of the broker: made from the settings, watched, stopped together."""

from __future__ import annotations

import asyncio
import logging
import socket

from penstock_broker.clock import SystemClock
from penstock_broker.config import ConfigError, ListenerConfig, listener_configs
from penstock_broker.config.broker_config import BrokerConfig
from penstock_broker.metrics import Metrics
from penstock_broker.security.scram_store import ScramStore
from penstock_broker.server.credentials import ListenerCredentials
from penstock_broker.server.dispatch import Dispatcher
from penstock_broker.server.handshakes import HandshakeLine
from penstock_broker.server.limits import ConnectionLimits
from penstock_broker.server.listener import Listener
from penstock_broker.server.sasl_gate import SaslGate
from penstock_broker.server.timers import LoopTimers
from penstock_broker.server.tls import TlsContext

_logger = logging.getLogger(__name__)

REAP_SECONDS = 1.0
DRAIN_POLL_SECONDS = 0.01
LINES_A_SECOND = 20
"""About connections, in the log: hostile ones come by the thousand."""


class CannotListenError(Exception):
    """An address is taken, or no address of ours."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(f"{host}:{port}: {error}")
        self.host = host
        self.port = port
        self.error = error


class Listeners:
    """Owned by the event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        metrics: Metrics,
    ) -> None:
        self.limits = limits
        self._config = config
        self._loop = loop
        self._metrics = metrics
        self._listeners: dict[str, Listener] = {}
        self._credentials: list[ListenerCredentials] = []
        self._advertised: dict[str, tuple[str, int]] = {}
        clock = SystemClock()
        self._handshakes = HandshakeLine(LoopTimers(loop, clock), clock.monotonic)
        self._reaper: asyncio.TimerHandle | None = None
        self._second = 0
        self._lines = 0

    def prepare(self, host: str, port: int, dispatcher: Dispatcher, scram: ScramStore) -> None:
        """Read what the settings ask for, keys and users included. ConfigError, TlsError."""
        for config in listener_configs(self._config, host, port):
            try:
                self._listeners[config.name] = self._make(config, dispatcher, scram)
            except ValueError as error:
                raise ConfigError(f"listener {config.name}: {error}") from error

    def _make(self, config: ListenerConfig, dispatcher: Dispatcher, scram: ScramStore) -> Listener:
        def reloaded(result: str) -> None:
            self._metrics.certificates_reloaded.labels(result).inc()

        def count(mechanism: str, result: str) -> None:
            self._metrics.authentications.labels(config.name, mechanism, result).inc()

        gate = None
        if config.protocol.has_sasl:
            credentials = ListenerCredentials(config, scram)
            self._credentials.append(credentials)
            gate = SaslGate(
                config,
                credentials,
                dispatcher.dispatch,
                self._loop,
                metrics=self._metrics,
                log_line=self.log_line,
            )
        tls = TlsContext(config, reloaded) if config.protocol.has_tls else None
        return Listener(
            config,
            dispatcher,
            self._loop,
            self.limits,
            self.log_line,
            gate=gate,
            tls=tls,
            handshakes=self._handshakes,
            count=count,
        )

    async def start(self) -> tuple[str, int]:
        """Listen on all; the address of the first. CannotListenError."""
        for name, listener in self._listeners.items():
            config = listener.config
            try:
                bound = await listener.start()
            except OSError as error:
                self.stop_accepting()
                raise CannotListenError(config.host, config.port, error) from error
            advertised = config.advertised_address(bound, socket.gethostname())
            self._advertised[name] = advertised
            if self._config.listeners:
                _logger.info(
                    "listener %s (%s) on %s:%d, advertised as %s:%d",
                    name,
                    config.protocol.value,
                    *bound,
                    *advertised,
                )
        self._reaper = self._loop.call_later(REAP_SECONDS, self._reap)
        return next(iter(self._listeners.values())).address

    def address_of(self, name: str) -> tuple[str, int]:
        """The advertised address for clients of this listener."""
        return self._advertised[name]

    def all(self) -> dict[str, Listener]:
        """The listeners by name."""
        return self._listeners

    def refresh(self) -> None:
        """Look whether files of certificates, keys or users have changed."""
        for listener in self._listeners.values():
            if listener.tls is not None:
                listener.tls.refresh()
        for credentials in self._credentials:
            credentials.refresh()

    @property
    def has_files(self) -> bool:
        """Whether there is anything to :meth:`refresh`."""
        return bool(self._credentials) or any(each.tls for each in self._listeners.values())

    def __len__(self) -> int:
        return len(self.limits)

    # -- the end ---------------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections stay."""
        for listener in self._listeners.values():
            listener.stop_accepting()
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None

    async def drain(self, seconds: float) -> None:
        """Wait until clients have taken what is ready for them, but no longer than this."""
        deadline = self._loop.time() + seconds
        await asyncio.sleep(0)
        while any(each.has_unsent for each in self.limits.all()) and self._loop.time() < deadline:
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    def abort_all(self) -> None:
        """End every connection without another word."""
        for connection in self.limits.all():
            connection.abort(None)
        self.limits.readers.shutdown(wait=False, cancel_futures=True)

    def close_all(self) -> None:
        """End every connection, after a last try to send what is ready."""
        for connection in self.limits.all():
            connection.flush()
            connection.close()
        self.limits.readers.shutdown(wait=False, cancel_futures=True)

    # -- what happens to connections ---------------------------------------------------------------

    def log_line(self, message: str, *arguments: object) -> None:
        """Log what became of a connection; beyond a few lines a second only how many there were."""
        second = int(self._loop.time())
        if second != self._second:
            if self._lines > LINES_A_SECOND:
                _logger.info("%d more lines about connections", self._lines - LINES_A_SECOND)
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= LINES_A_SECOND:
            _logger.info(message, *arguments)

    def _reap(self) -> None:
        self.limits.reap()
        self._reaper = self._loop.call_later(REAP_SECONDS, self._reap)
