"""The bounds that hold over all connections of the broker, whichever listener took them.

How many there are (in all, from one address, as long as there are descriptors), how fast they
come (KIP-612), how many bytes of large requests are received at a time, how many bytes of answers
wait for clients that do not read, and how long a peer may take over what it has begun.

A connection that comes faster than ``max.connection.creation.rate`` is accepted and left unread
until it is its turn; one that comes faster than its address may is held so long and then closed,
as Kafka does it, so that a client that hammers pays with time.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from penstock_broker.config import BrokerConfig
from penstock_broker.config.limit_settings import parse_overrides
from penstock_broker.quotas.token_bucket import TokenBucket
from penstock_broker.server.connection import Connection

DESCRIPTORS_SPARED = 128
"""Kept free of connections: segments are opened and rolled whatever clients do."""
COUNT_FILES_EVERY_REAPS = 8
PRESSED_SECONDS = 5.0
"""How long a large request may take to arrive while others wait for its memory."""
HOLD_SECONDS_MAX = 30.0
READ_THREADS = 8
"""Reads of records under way at a time; more wait their turn."""


class AddressRates(Protocol):
    """The quotas for IP addresses."""

    def connection_wait(self, address: str) -> float:
        """Count a new connection; the seconds by which it comes too early."""
        ...


class ConnectionLimits:
    """All connections. Owned by the event loop."""

    def __init__(self, config: BrokerConfig, now: Callable[[], float], rates: AddressRates) -> None:
        self.readers = ThreadPoolExecutor(READ_THREADS, "penstock-read")
        """Reads what is to be sent and is not in memory."""
        self._now = now
        self._rates = rates
        self.use_config(config)
        self._connections: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._reserved: dict[Connection, int] = {}
        self._reserved_bytes = 0
        self._waiting: deque[tuple[Connection, int]] = deque()
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._descriptors = sys.maxsize if allowed == resource.RLIM_INFINITY else allowed
        self._other_files = 0
        self._reaps = 0

    def use_config(self, config: BrokerConfig) -> None:
        """Keep to these settings from now on; connections that are there stay."""
        self._config = config
        self._overrides = parse_overrides(config.max_connections_per_ip_overrides)
        rate = float(config.max_connection_creation_rate)
        self._creation = TokenBucket(rate, rate, self._now())

    def __len__(self) -> int:
        return len(self._connections)

    def all(self) -> list[Connection]:
        """Every connection there is."""
        return list(self._connections)

    # -- how many, how fast --------------------------------------------------------------------

    def admit(self, connection: Connection) -> str | None:
        """Count a new connection; the reason if it is over a limit."""
        config, address = self._config, connection.client_host
        if len(self._connections) >= config.max_connections:
            return f"max.connections is {config.max_connections}"
        most = self._overrides.get(address, config.max_connections_per_ip)
        if self._by_address[address] >= most:
            return f"max.connections.per.ip is {most} for it"
        if not self.has_descriptors(1):
            return f"{self._descriptors} open files are allowed"
        self._connections.add(connection)
        self._by_address[address] += 1
        wait = self._rates.connection_wait(address)
        if wait > 0:
            connection.hold_and_close(min(wait, HOLD_SECONDS_MAX), "connection_creation_rate")
        elif (wait := self._creation.take(1, self._now())) > 0:
            connection.mute(min(wait, HOLD_SECONDS_MAX))
        return None

    def remove(self, connection: Connection) -> None:
        """The connection has ended."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        address = connection.client_host
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def has_descriptors(self, count: int) -> bool:
        """Whether so many more files may be opened."""
        used = len(self._connections) + self._other_files
        return used + count + DESCRIPTORS_SPARED <= self._descriptors

    # -- memory for requests -------------------------------------------------------------------

    def reserve(self, connection: Connection, size: int) -> bool:
        """Whether a large frame may be received now. As Kafka's pool: while anything is left, so
        that one request may exceed the bound and every request has its turn, in order."""
        most = self._config.queued_max_request_bytes
        if most >= 0 and (self._waiting or self._reserved_bytes >= most):
            self._waiting.append((connection, size))
            return False
        self._reserved[connection] = size
        self._reserved_bytes += size
        return True

    def release(self, connection: Connection) -> None:
        """Its frame has arrived, or will not: let connections that wait receive theirs."""
        self._reserved_bytes -= self._reserved.pop(connection, 0)
        while self._waiting:
            waiting, size = self._waiting[0]
            if not waiting.is_closed:
                if self._reserved_bytes >= self._config.queued_max_request_bytes:
                    return
                self._reserved[waiting] = size
                self._reserved_bytes += size
            self._waiting.popleft()
            if not waiting.is_closed:
                waiting.may_receive()

    # -- time ----------------------------------------------------------------------------------

    def reap(self) -> None:
        """End the connections whose peer is silent or too slow; called about every second."""
        config, now = self._config, self._now()
        if self._reaps % COUNT_FILES_EVERY_REAPS == 0:
            self._other_files = max(0, open_files() - len(self._connections))
        self._reaps += 1
        idle = config.connections_max_idle_ms / 1000.0
        oldest = now - idle if idle > 0 else float("-inf")
        receive = config.request_receive_timeout_ms / 1000.0
        send = config.response_send_timeout_ms / 1000.0
        pressed = min(receive, PRESSED_SECONDS) if self._waiting else receive
        unsent = 0
        for connection in list(self._connections):
            allowed = pressed if connection in self._reserved else receive
            reason = connection.overdue(now, allowed, send)
            if reason is not None:
                connection.abort(reason)
                continue
            since = connection.idle_since()
            if since is not None and since < oldest:
                connection.abort("idle")
                continue
            unsent += connection.unsent_bytes
        if 0 <= config.queued_max_response_bytes < unsent:
            self._shed(unsent - config.queued_max_response_bytes)

    def _shed(self, excess: int) -> None:
        """End those that leave most unread, until the rest is within the bound."""
        for connection in sorted(self._connections, key=_unsent_bytes, reverse=True):
            if excess <= 0:
                return
            excess -= connection.unsent_bytes
            connection.abort(f"{connection.unsent_bytes} bytes unread, and no memory for more")


def _unsent_bytes(connection: Connection) -> int:
    return connection.unsent_bytes


def open_files() -> int:
    """The descriptors that this process has open; 0 where the system does not say."""
    for place in ("/proc/self/fd", "/dev/fd"):
        try:
            return sum(1 for _ in os.scandir(place))
        except OSError:
            continue
    return 0
