"""One request: what is known of its kind, and the place of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

from penstock_broker.api.context import (
    DEFERRED,
    UNANSWERED,
    CloseConnectionError,
    Encoded,
    Reply,
)
from penstock_broker.api.registry import Api, FastDecoder
from penstock_broker.errors import KafkaError
from penstock_broker.log.slice import LogSlice
from penstock_broker.security.session import Session
from penstock_broker.server.connection import Connection
from penstock_broker.server.request_metrics import RequestMetrics
from penstock_broker.server.throttling import Toll, fetch_bytes_max
from penstock_broker.wire.encoder import Encoder
from penstock_broker.wire.fields import Struct
from penstock_broker.wire.header import response_prefix
from penstock_broker.wire.schema import encoder


@dataclass(frozen=True, slots=True)
class Route:
    """One (API, version), resolved."""

    api: Api
    version: int
    decode: Callable[[memoryview, int], tuple[Any, int]]
    fast_decoder: FastDecoder | None
    flexible: bool
    tagged_response: bool
    metrics: RequestMetrics


class RequestExchange:
    """One request, and the place of its answer (see ``api.context.Exchange``)."""

    __slots__ = (
        "_correlation_id",
        "_deferred_at",
        "_on_closed",
        "_queued",
        "client_id",
        "connection",
        "parts",
        "route",
        "toll",
    )

    def __init__(self, connection: Connection, route: Route, correlation_id: int) -> None:
        self.connection = connection
        self.route = route
        self._correlation_id = correlation_id
        self._on_closed: Callable[[], None] | None = None
        self._queued = False
        self._deferred_at = 0.0
        self.client_id = connection.client_id
        self.parts: Sequence[bytes | LogSlice] | None = None
        self.toll: Toll | None = None

    @property
    def api_version(self) -> int:
        return self.route.version

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def session(self) -> Session:
        return self.connection.session

    @property
    def principal(self) -> str:
        return self.connection.session.principal

    @property
    def is_closed(self) -> bool:
        return self.connection.is_closed

    @property
    def fetch_bytes_max(self) -> int:
        return fetch_bytes_max(self.connection.quota)

    def respond(self, response: Struct | Encoded) -> None:
        """Answer a deferred request; nothing happens when the client is gone."""
        if self.connection.is_closed or self.parts is not None:
            return
        self._on_closed = None
        self.route.metrics.count_wait(perf_counter() - self._deferred_at)
        self.parts = self.frame(response)
        if self._queued:
            self.connection.answered(self.parts)

    def accept(self, reply: Reply) -> None:
        """The handler is done: what it gave takes its place in the order of answers."""
        toll = self.toll
        if reply is DEFERRED:
            if toll is not None:
                toll.deferred()
            if not self._queued:
                self.take_place()
        elif reply is UNANSWERED:
            if toll is not None:
                toll.pay(self.connection, None)
            if self._queued:
                self.parts = ()
                self.connection.answered(())
        elif self._queued:
            self.respond(reply)  # type: ignore[arg-type]
        else:
            self.parts = self.frame(reply)  # type: ignore[arg-type]
            self.take_place()

    def refuse(self, request: Any, error: KafkaError) -> None:
        """Answer with an error, in all the places where it belongs."""
        route = self.route
        try:
            self.accept(route.api.refuse(request, error, route.version))
        except CloseConnectionError as close:
            self.connection.abort(str(close))

    def charge_mutations(self, partitions: int) -> None:
        if self.toll is not None:
            self.toll.charge_mutations(partitions, self.route.version)

    def wait_in_line(self) -> None:
        """The handler needs longer: keep the answer's place, and take no other request."""
        if not self._queued:
            self.take_place()
            self.connection.hold()

    def take_place(self) -> None:
        """Send the answer if there is one and it is its turn, else wait."""
        connection = self.connection
        if self.parts is not None and not connection.must_queue():
            connection.send(self.parts)
        else:
            self._queued = True
            self._deferred_at = perf_counter()
            connection.expect(self)

    def on_closed(self, callback: Callable[[], None]) -> None:
        self._on_closed = callback

    def closed(self) -> None:
        """The connection ended before the answer."""
        callback, self._on_closed = self._on_closed, None
        if callback is not None:
            callback()

    def frame(self, response: Struct | Encoded) -> Sequence[bytes | LogSlice]:
        """The answer as it is sent: size, header, body."""
        route = self.route
        if self.toll is not None:
            self.toll.pay(self.connection, response)
        if type(response) is Encoded:
            body = response.body
            prefix = response_prefix(self._correlation_id, len(body), route.tagged_response)
            return (prefix + body,)
        route.metrics.count_errors(cast(Struct, response))
        parts: list[Any] = _encoder_of(type(response), route.version)(response)
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        prefix = response_prefix(self._correlation_id, size, route.tagged_response)
        if parts and type(parts[0]) is bytes:
            parts[0] = prefix + parts[0]
        else:
            parts.insert(0, prefix)
        return parts


_encoders: dict[tuple[type[Any], int], Encoder] = {}


def _encoder_of(cls: type[Any], version: int) -> Encoder:
    found = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = encoder(cls, version)
    return found
