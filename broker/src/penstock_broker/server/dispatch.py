"""From a frame to a handler, and from an exception to an error code: once, here.

A route is everything about one (API, version) that can be known beforehand. What a frame can
cause: an answer, or a closed connection (bytes that do not decode, an API or version that is not
served: the protocol has no error for those, except for ApiVersions itself). A handler's
:class:`KafkaError` becomes the answer that carries its code; anything else it raises is a bug of
ours, logged with its traceback and answered UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import GeneratorType
from typing import Any, cast

from penstock_broker.api.api_versions import unsupported_version
from penstock_broker.api.context import (
    DEFERRED,
    UNANSWERED,
    CloseConnectionError,
    Encoded,
    Reply,
    Services,
    Steps,
)
from penstock_broker.api.produce_repeat import Repeats
from penstock_broker.api.registry import Api, Quick
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.slice import LogSlice
from penstock_broker.security.session import Session
from penstock_broker.server.connection import Connection
from penstock_broker.server.long_works import LongWorks
from penstock_broker.server.repeats import RepeatDispatcher
from penstock_broker.server.request_metrics import RequestClock, RequestMetrics
from penstock_broker.server.throttling import Throttling, Toll, fetch_bytes_max
from penstock_broker.wire.encoder import Encoder
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.fields import Struct
from penstock_broker.wire.header import API_VERSIONS_KEY, response_prefix, skip_header_tags
from penstock_broker.wire.messages.produce import API_KEY as PRODUCE
from penstock_broker.wire.schema import decoder, encoder, is_flexible

_logger = logging.getLogger(__name__)

_HEADER = struct.Struct(">hhih")
CLIENT_ID_BYTES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Route:
    """One (API, version), resolved."""

    api: Api
    version: int
    decode: Callable[[memoryview, int], tuple[Any, int]]
    quick: Quick | None
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
    def repeats(self) -> Repeats | None:
        return self.connection.repeats

    @repeats.setter
    def repeats(self, repeats: Repeats | None) -> None:
        self.connection.repeats = repeats

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
        """The answer as it goes on the wire: size, header, body."""
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


def _lazy_decoder(cls: type[Struct], version: int) -> Callable[[memoryview, int], tuple[Any, int]]:
    """Compile on first use: a broker starts in half the time, and most versions are never seen."""

    def decode(frame: memoryview, position: int) -> tuple[Any, int]:
        return decoder(cls, version)(frame, position)

    return decode


_encoders: dict[tuple[type[Any], int], Encoder] = {}


def _encoder_of(cls: type[Any], version: int) -> Encoder:
    found = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = encoder(cls, version)
    return found


class Dispatcher:
    """Routes frames to handlers."""

    def __init__(self, services: Services, table: dict[int, Api]) -> None:
        self._services = services
        self._table = table
        self._clock = RequestClock()
        self.rest = self._clock.rest
        self.long_works = LongWorks(self._handle)
        self._throttling = Throttling(
            services.quotas, services.clock.monotonic, services.metrics.throttle_seconds
        )
        self._routes: dict[tuple[int, int], Route] = {}
        for api in table.values():
            for version in api.versions:
                flexible = is_flexible(api.request, version)
                self._routes[api.key, version] = Route(
                    api,
                    version,
                    _lazy_decoder(api.request, version),
                    api.quick,
                    flexible,
                    flexible and api.key != API_VERSIONS_KEY,
                    RequestMetrics(services.metrics, api.name, version),
                )
        self.dispatch_repeats = RepeatDispatcher(
            self._clock,
            self._throttling,
            lambda version: self._routes[PRODUCE, version].metrics,
        ).dispatch

    def dispatch(self, frame: memoryview, connection: Connection) -> None:
        """Handle one request, or end its connection."""
        try:
            key, version, correlation_id, id_size = _HEADER.unpack_from(frame)
        except struct.error:
            raise DecodeError(f"a request of {len(frame)} bytes") from None
        route = self._routes.get((key, version))
        if route is None:
            self._answer_unknown(key, version, correlation_id, connection)
            return
        self._clock.begin(route.metrics)
        position = 10
        if id_size == -1:
            if connection.client_id is not None:
                connection.client_id, connection.client_id_raw = None, b""
                connection.quota_generation = -1
        else:
            position = self._read_client_id(frame, id_size, connection)
        if route.flexible:
            position = skip_header_tags(frame, position)
        exchange = RequestExchange(connection, route, correlation_id)
        if connection.quota_generation != self._throttling.generation:
            self._throttling.resolve(connection)
        if connection.quota is not None:
            exchange.toll = self._throttling.toll(connection.quota, key, len(frame))
        elif route.quick is not None and self._answer_quickly(route, exchange, frame, position):
            return
        request, _end = route.decode(frame, position)
        self._handle(exchange, request, None)

    def _handle(self, exchange: RequestExchange, request: Any, steps: Steps | None) -> None:
        """Have a request handled, or go on with the ``steps`` of a long one."""
        route = exchange.route
        try:
            reply: Reply | Steps | None = steps
            if reply is None:
                reply = route.api.handle(self._services, exchange, request)
            if type(reply) is GeneratorType:
                reply = self.long_works.go_on(exchange, request, reply)
            if reply is not None:
                exchange.accept(cast(Reply, reply))
        except KafkaError as error:
            exchange.refuse(request, error)
        except CloseConnectionError as error:
            exchange.connection.abort(str(error))
        except Exception:
            _logger.exception("%s v%d failed", route.api.name, route.version)
            self._services.metrics.unexpected_errors.labels(route.api.name).inc()
            exchange.refuse(request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _answer_quickly(
        self, route: Route, exchange: RequestExchange, frame: memoryview, position: int
    ) -> bool:
        """Whether the request was one that need not be decoded."""
        quick = cast(Quick, route.quick)
        try:
            reply = quick(self._services, exchange, frame, position)
        except CloseConnectionError as error:
            exchange.connection.abort(str(error))
            return True
        except Exception:
            _logger.exception("%s v%d failed", route.api.name, route.version)
            self._services.metrics.unexpected_errors.labels(route.api.name).inc()
            exchange.connection.abort("internal error")
            return True
        if reply is None:
            return False
        exchange.accept(reply)
        return True

    def _answer_unknown(
        self, key: int, version: int, correlation_id: int, connection: Connection
    ) -> None:
        """Only ApiVersions has an answer for versions that nobody knows: in the form of v0."""
        if key != API_VERSIONS_KEY:
            raise DecodeError(f"API {key} version {version} is not served")
        exchange = RequestExchange(connection, self._routes[key, 0], correlation_id)
        exchange.parts = exchange.frame(unsupported_version(self._table))
        exchange.take_place()

    def _read_client_id(self, frame: memoryview, size: int, connection: Connection) -> int:
        end = 10 + size
        if size < 0 or end > len(frame) or size > CLIENT_ID_BYTES_MAX:
            raise DecodeError(f"client id of {size} bytes")
        raw = frame[10:end]
        if raw != connection.client_id_raw:
            try:
                connection.client_id = str(raw, "utf-8")
            except UnicodeDecodeError:
                raise DecodeError("client id is not UTF-8") from None
            connection.client_id_raw = bytes(raw)
            connection.quota_generation = -1
        return end
