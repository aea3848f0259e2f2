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
from collections.abc import Callable
from types import GeneratorType
from typing import Any, cast

from penstock_broker.api.api_versions import unsupported_version
from penstock_broker.api.context import (
    CloseConnectionError,
    Reply,
    Services,
    Staged,
    Steps,
)
from penstock_broker.api.produce import Produced
from penstock_broker.api.produce_frame import OneBatch
from penstock_broker.api.registry import Api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.server.connection import Connection
from penstock_broker.server.exchange import RequestExchange, Route
from penstock_broker.server.long_works import LongWorks
from penstock_broker.server.produce_runs import HEAD_BYTES, ProduceRuns, Run, StagedBatch
from penstock_broker.server.request_metrics import RequestClock, RequestMetrics
from penstock_broker.server.throttling import Throttling
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.fields import Struct
from penstock_broker.wire.framing import FrameReader
from penstock_broker.wire.header import API_VERSIONS_KEY, skip_header_tags
from penstock_broker.wire.messages.produce import API_KEY as PRODUCE
from penstock_broker.wire.schema import decoder, is_flexible

_logger = logging.getLogger(__name__)

_HEADER = struct.Struct(">hhih")
CLIENT_ID_BYTES_MAX = 4_096
STAGED_MAX = 512
"""Requests whose batches are written together: no more answers than that are put off."""


def _lazy_decoder(cls: type[Struct], version: int) -> Callable[[memoryview, int], tuple[Any, int]]:
    """Compile on first use: a broker starts in half the time, and most versions are never seen."""

    def decode(frame: memoryview, position: int) -> tuple[Any, int]:
        return decoder(cls, version)(frame, position)

    return decode


_Waiting = tuple[RequestExchange, Any, Staged] | tuple[Connection, list[StagedBatch]]
"""A request, or a run of them, whose batches are staged."""


class Dispatcher:
    """Routes frames to handlers."""

    def __init__(self, services: Services, table: dict[int, Api]) -> None:
        self._services = services
        self._table = table
        self._clock = RequestClock()
        self._staged: list[_Waiting] = []
        """Requests of this read event whose batches are not written yet."""
        self.long_works = LongWorks(self._handle, self.commit)
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
                    api.fast_decoder,
                    flexible,
                    flexible and api.key != API_VERSIONS_KEY,
                    RequestMetrics(services.metrics, api.name, version),
                )

    def dispatch(self, frame: memoryview, connection: Connection) -> None:
        """Handle one request, or end its connection."""
        try:
            key, version, correlation_id, id_size = _HEADER.unpack_from(frame)
        except struct.error:
            raise DecodeError(f"a request of {len(frame)} bytes") from None
        route = self._routes.get((key, version))
        if self._staged and (key != PRODUCE or len(self._staged) >= STAGED_MAX):
            self.commit()
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
        request = None
        if route.fast_decoder is not None and exchange.toll is None:  # which the answer names
            request = route.fast_decoder(frame, position, version)
        if request is None:
            request, _end = route.decode(frame, position)
        self._handle(exchange, request, None)
        if type(request) is OneBatch:
            self._expect_more(connection, frame, request, exchange)

    def _expect_more(
        self,
        connection: Connection,
        frame: memoryview,
        request: OneBatch,
        exchange: RequestExchange,
    ) -> None:
        """Recognize requests like this one, if nothing was wrong with it."""
        if self._staged and self._staged[-1][0] is exchange:
            if connection.runs is None:
                connection.runs = ProduceRuns()
            connection.runs.learn(frame, request, exchange)

    def dispatch_runs(self, frames: FrameReader, connection: Connection) -> int:
        """Stage the buffered Produce requests that are like earlier ones; their number.

        0 where another response comes before theirs, or each is charged to a quota.
        """
        runs = connection.runs
        if (
            runs is None
            or frames.buffered <= HEAD_BYTES
            or connection.must_queue()
            or connection.quota is not None
            or connection.quota_generation != self._throttling.generation
        ):
            return 0
        if runs.last is not None:
            self._clock.begin(runs.last.exchange.route.metrics, 0)
        batches = runs.take(self._services, frames, STAGED_MAX)
        if batches:
            self._clock.add(len(batches))
            self._staged.append((connection, batches))
            if len(batches) == STAGED_MAX:
                self.commit()
        return len(batches)

    def commit(self) -> None:
        """Write what the requests of this read event append, and answer them in their order."""
        partitions = self._services.staged
        while partitions:
            partition = partitions.pop()
            try:
                partition.commit()
            except Exception:  # a bug of ours: the other partitions are not to suffer
                _logger.exception(
                    "%s-%d: appended records cannot be announced to consumers",
                    partition.topic,
                    partition.index,
                )
        staged, self._staged = self._staged, []
        for waiting in staged:
            if len(waiting) == 2:
                self._answer_run(*waiting)
            else:
                self._finish(*waiting)

    def _answer_run(self, connection: Connection, batches: list[StagedBatch]) -> None:
        """Answer requests of a run, those that have succeeded with one buffer."""
        answers: list[bytes] = []
        before: Run | None = None
        for run, correlation_id, result, records in batches:
            partition = run.partition
            if run is not before and partition is not None:
                before, pack, size, head, tail = run, run.pack, run.answer_size, run.head, run.tail
                is_ready = not (
                    connection.must_queue()
                    or partition.must_wait(run.acks, partition.log_end_offset - 1)
                )
                counters, has_answer = partition.counters, run.acks != 0
            if is_ready and result.error is None:
                counters.produces += 1
                if has_answer:
                    answers.append(
                        pack(
                            size, correlation_id, head, result.base_offset,
                            result.log_append_time_ms, result.log_start_offset, tail,
                        )
                    )  # fmt: skip
                continue
            if answers:
                connection.send((b"".join(answers),))
                answers = []
            request = run.request if records is None else run.request._replace(records=records)
            exchange = RequestExchange(connection, run.exchange.route, correlation_id)
            produced = Produced(self._services, exchange, request, [(partition, result)])
            self._finish(exchange, request, produced)
            before = None
        if answers:
            connection.send((b"".join(answers),))

    def rest(self) -> None:
        """There are no more requests in the buffer: the read event is over."""
        if self._staged or self._services.staged:
            self.commit()
        self._clock.rest()

    def _handle(self, exchange: RequestExchange, request: Any, steps: Steps | None) -> None:
        """Have a request handled, or continue with the ``steps`` of a long one."""
        route = exchange.route
        try:
            reply: Reply | Staged | Steps | None = steps
            if reply is None:
                reply = route.api.handle(self._services, exchange, request)
            if type(reply) is GeneratorType:
                reply = self.long_works.proceed(exchange, request, reply)
            if reply is not None:
                if hasattr(reply, "finish"):
                    self._staged.append((exchange, request, cast(Staged, reply)))
                    if exchange.toll is not None:
                        self.commit()  # which may mute the connection before its next request
                else:
                    exchange.accept(cast(Reply, reply))
        except (KafkaError, CloseConnectionError) as error:
            self._refuse(exchange, request, error)
        except Exception:
            _logger.exception("%s v%d failed", route.api.name, route.version)
            self._refuse(exchange, request, None)

    def _finish(self, exchange: RequestExchange, request: Any, staged: Staged) -> None:
        """Answer a request whose batches have been written, or could not be."""
        route = exchange.route
        if exchange.is_closed:
            return
        try:
            exchange.accept(staged.finish())
        except (KafkaError, CloseConnectionError) as error:
            self._refuse(exchange, request, error)
        except Exception:
            _logger.exception("%s v%d failed", route.api.name, route.version)
            self._refuse(exchange, request, None)

    def _refuse(
        self,
        exchange: RequestExchange,
        request: Any,
        error: KafkaError | CloseConnectionError | None,
    ) -> None:
        """Answer with what a handler has raised (None: a bug of ours), or end the connection."""
        if isinstance(error, CloseConnectionError):
            exchange.connection.abort(str(error))
            return
        if error is None:
            self._services.metrics.unexpected_errors.labels(exchange.route.api.name).inc()
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        exchange.refuse(request, error)

    def _answer_unknown(
        self, key: int, version: int, correlation_id: int, connection: Connection
    ) -> None:
        """Only ApiVersions has an answer for unknown versions: in the form of v0."""
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
