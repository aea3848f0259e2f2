"""AuditedProducer: confluent_kafka's Producer with an account of every record.

What the delivery path costs, and why it is written as it is (measured with
benchmarks/client/bench_audited_producer.py): the header is the largest part, in librdkafka; then
the digest. A lock would cost more than a third of the whole Python side, a function call a tenth;
so ``produce`` is one flat function over local names, and the state of a topic comes in one lookup.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable, Iterable
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException

from penstock_client import lifecycle
from penstock_client.audit import (
    HEADER_BYTES,
    HEADER_NAME,
    HEADER_VERSION,
)
from penstock_client.clock import time_ns
from penstock_client.config import DeliveryCallback, ProducerConfig
from penstock_client.errors import AuditConfigError, ProducerClosedError, RecordTooLargeError
from penstock_client.ledger import Lane
from penstock_client.session import Session

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

Headers = dict[str, Any] | list[tuple[str, Any]]

# librdkafka and its binding refuse a record with one of these; nothing was sent then.
_REFUSALS = (BufferError, KafkaException, TypeError, ValueError, OverflowError)

# lane, taker of sequences, returned sequences, handle's produce, ledger's delivery callback,
# packer of headers, incarnation, server name
_Route = tuple[
    Lane,
    Callable[[], int],
    list[int],
    Callable[..., None],
    Callable[..., None],
    Callable[..., bytes],
    int,
    bytes,
]


class AuditedProducer:
    """A Kafka producer whose every record is stamped, and every acknowledgement reported.

    Takes the configuration of ``confluent_kafka.Producer`` and has its calls: ``produce``,
    ``poll``, ``flush``, ``purge``, ``list_topics``, ``len()``, ``close``, ``with``. In addition:

    ===================== =================== ====================================================
    audit.enable          true                false: an ordinary producer, without stamps or events
    audit.interval.ms     10000               a monitoring event at least so often
    audit.topic           __penstock_audit    where the events go
    audit.application     client.id, program  the name under which people know this program
    ===================== =================== ====================================================

    Other defaults that differ from the bare producer's, and refused settings: see config.

    Each record gets one header more, ``penstock.audit`` (about 40 bytes), as the last; one that is
    there already, as on a record that is passed on, is replaced. Where that header would put the
    record over ``message.max.bytes``, ``produce`` raises RecordTooLargeError: a record is never
    sent without its stamp, nor shortened.

    The record's timestamp is the ``timestamp`` given, or the time of the call.

    Threads may share a producer. After a fork the child's first use starts a new incarnation (see
    lifecycle). Callbacks run in ``poll`` and ``flush`` of the application, as usual.
    """

    def __init__(self, *args: dict[str, Any], **kwargs: Any) -> None:
        """A configuration dict, keyword arguments, or both; raises AuditConfigError or, for
        librdkafka's own settings, KafkaException."""
        if len(args) > 1:
            raise TypeError(f"expected one configuration dict, got {len(args)} arguments")
        self._config = ProducerConfig.parse({**(args[0] if args else {}), **kwargs})
        self._default_callback = self._config.on_delivery
        self._audited = self._config.audit.enable
        self._routes: dict[str, _Route] = {}
        self._closed = False
        self._starting = threading.RLock()
        self._session: Session | None = None
        self._with_callback: Callable[..., None]
        self._start()

    def _start(self) -> Session:
        """The session of this process; a new one in a forked child."""
        with self._starting:
            if self._closed:
                raise ProducerClosedError("the producer is closed: make a new one")
            if self._session is None:
                session = Session(self._config)
                self._with_callback = session.with_callback
                self._session = session
                lifecycle.register(self, session)
                self._finalizer = weakref.finalize(self, _abandon, session)
                self._finalizer.atexit = False  # then lifecycle closes it, and waits
            return self._session

    def drop_session(self) -> None:
        """In a forked child: let the next use start a session of its own."""
        self._routes = {}
        self._starting = threading.RLock()
        if self._session is not None:
            self._finalizer.detach()
            self._session = None

    @property
    def incarnation(self) -> int:
        """This instance's number in headers and events; another one after a fork."""
        return self._start().incarnation

    def produce(  # noqa: PLR0917  flat, and confluent_kafka's own call shape
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Queue a record; ``poll`` calls ``on_delivery(error, message)`` with the outcome.

        Raises BufferError (queue full: poll and try again), RecordTooLargeError, KafkaException,
        TypeError. A record that was refused was not sent and leaves no gap in the sequences.
        """
        on_done = on_delivery or callback or self._default_callback
        try:
            route = self._routes[topic]
        except KeyError:
            if not self._audited:
                send = self._start().handle.produce
                return send(topic, value, key, partition, on_done, None, timestamp, headers)
            route = self._open_route(topic)
        if not timestamp:
            timestamp = time_ns() // 1_000_000
        lane, take, returned, send, delivered, pack, incarnation, server = route
        sequence = lane.retake_sequence() if returned else take()
        if on_done is None:
            report = MethodType(delivered, sequence)
        else:
            report = MethodType(self._with_callback, (delivered, sequence, on_done))
        stamped = [(HEADER_NAME, pack(HEADER_VERSION, incarnation, sequence, timestamp, server))]
        if headers:
            stamped = [*_without_stamp(headers), *stamped]
        try:
            send(topic, value, key, partition, report, None, timestamp, stamped)
        except _REFUSALS as error:
            returned.append(sequence)
            if _is_too_large(error):
                raise self._too_large(topic, key, value, headers) from error
            raise

    def _open_route(self, topic: str) -> _Route:
        """First record to a topic in this session."""
        session = self._start()
        if topic == self._config.audit.topic:
            raise AuditConfigError(
                f"topic {topic!r} carries the audit itself: its events are never audited. "
                "Produce to it with confluent_kafka.Producer if you must"
            )
        lane = session.ledger.lane(topic)
        pack = struct.Struct(f">Bqqq{len(session.server)}s").pack
        route = (
            lane,
            lane.take_sequence,
            lane.returned,
            session.handle.produce,
            lane.delivered,
            pack,
            session.incarnation,
            session.server,
        )
        self._routes[topic] = route
        return route

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks for at most ``timeout`` seconds (negative: until there is one)."""
        return 0 if self._session is None else self._session.poll(timeout)

    def flush(self, timeout: float = -1) -> int:
        """Wait until every record is acknowledged or failed, and send a monitoring event.

        ``timeout`` in seconds, negative for no limit. Returns how many records are still queued.
        Flushes that follow each other within a tenth of a second share one event.
        """
        return 0 if self._session is None else self._session.flush(timeout)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up queued records: their callbacks get an error, the audit reports them failed."""
        if self._session is not None:
            self._session.handle.purge(in_queue, in_flight, blocking)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The cluster's metadata, of one topic or of all."""
        handle = self._start().handle
        found: ClusterMetadata = (
            handle.list_topics(timeout=timeout)
            if topic is None
            else handle.list_topics(topic, timeout)
        )
        return found

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these from the next connection on (not kept for a forked child)."""
        self._start().handle.set_sasl_credentials(username, password)

    def close(self, timeout: float = -1) -> bool:
        """Flush for ``timeout`` seconds (negative: no limit), send the last event, end.

        Records that are not acknowledged by then are given up and reported as failed. Returns
        whether the last event was acknowledged. May be called again, from a signal handler too.
        """
        self._closed = True
        self._routes = {}
        session, self._session = self._session, None
        if session is None:
            return True
        self._finalizer.detach()
        lifecycle.unregister(session)
        return session.close(timeout)

    def __len__(self) -> int:
        return 0 if self._session is None else len(self._session)

    def __bool__(self) -> bool:
        """True, although an idle producer has length 0: as the bare one."""
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _too_large(
        self,
        topic: str,
        key: str | bytes | None,
        value: str | bytes | None,
        headers: Headers | None,
    ) -> RecordTooLargeError:
        session = self._start()
        return RecordTooLargeError(
            topic,
            key=_bytes(key),
            value=_bytes(value),
            headers=sum(
                _bytes(name) + _bytes(content) for name, content in _without_stamp(headers or [])
            ),
            audit_header=len(HEADER_NAME) + HEADER_BYTES + len(session.server),
            limit=self._config.audit.message_max_bytes,
        )


def _is_too_large(error: BaseException) -> bool:
    if not isinstance(error, KafkaException) or not error.args:
        return False
    reason = error.args[0]
    return isinstance(reason, KafkaError) and reason.code() == KafkaError.MSG_SIZE_TOO_LARGE


def _without_stamp(headers: Headers) -> Iterable[tuple[str, Any]]:
    """The application's headers; the stamp of a record that is passed on is left out."""
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [pair for pair in pairs if pair[0] != HEADER_NAME]


def _bytes(text: str | bytes | None) -> int:
    return len(text.encode() if isinstance(text, str) else text or b"")


def _abandon(session: Session) -> None:
    lifecycle.unregister(session)
    session.abandon()
