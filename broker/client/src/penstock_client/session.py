"""One incarnation of a producer: a librdkafka handle, its ledger, its journal, its reporter thread.

**Who does what.** Application threads produce and poll; on the delivery path they only append
(see ledger). The reporter thread alone owns the accounting and the journal: it drains, writes and
sends the monitoring events, every interval and when asked. Requests reach it through a SimpleQueue,
whose ``put`` is re-entrant, so ``flush`` and ``close`` may be called from a signal handler that
interrupted them: no lock is ever held by an application thread.

**Who serves librdkafka.** Acknowledgements arrive by ``poll`` and ``flush``. If the application
does neither for a tick, the reporter does, so that an application that waits for work still tells
what became of its records; the application's own callbacks are then kept for its next ``poll`` or
``flush`` and never run in a thread that it does not know.

**Events travel on the same handle** as the data (no second set of connections), without the audit
header and outside the ledger, so they are never counted as data.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import MethodType
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaException, Producer

from penstock_client.audit import MonitoringEvent
from penstock_client.clock import monotonic, now_ms, sleep
from penstock_client.config import DeliveryCallback, ProducerConfig
from penstock_client.journal import Journal, items_max
from penstock_client.ledger import Ledger
from penstock_client.topic_ids import Admin, TopicIds

log = logging.getLogger("penstock_client")

TICK_SECONDS = 0.5
# Calls into librdkafka are cut into slices, so that Ctrl-C is noticed.
SLICE_SECONDS = 0.2
# A flush waits no longer than this for its monitoring event once the data is through.
EVENT_WAIT_SECONDS = 5.0
# An application that flushes after every record does not get an event for every record.
FLUSH_EVENTS_APART_SECONDS = 0.1
RETRY_SECONDS = 0.1
WARNING_APART_SECONDS = 60.0
SERVER_NAME_BYTES = 64

_APPLICATION_CALLBACKS = ("error_cb", "throttle_cb", "stats_cb")


@dataclass(frozen=True, slots=True)
class Drain:
    """Account what has been acknowledged: there is much of it."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Send an event now if anything happened; answer when it has been handed to librdkafka."""

    reply: SimpleQueue[bool]


@dataclass(frozen=True, slots=True)
class Close:
    """Send the last event, wait for it until ``deadline`` (monotonic), answer and end.

    ``orphan``: the producer object is gone, so the reporter flushes, and no callback is run.
    """

    reply: SimpleQueue[bool]
    deadline: float
    orphan: bool = False


Request = Drain | Publish | Close


class Session:
    """See the module's docstring. Thread-safe; not to be used in a forked child."""

    def __init__(self, config: ProducerConfig) -> None:
        self.incarnation = secrets.randbelow(2**63 - 1) + 1
        self.server = socket.gethostname().encode()[:SERVER_NAME_BYTES]
        self._audit = config.audit
        self._interval = config.audit.interval_ms / 1000
        self._inbox: SimpleQueue[Request] = SimpleQueue()
        self._deferred: deque[Callable[[], None]] = deque()
        self._polling: list[None] = []  # one item for each thread inside poll or flush
        self._served = False  # by the application, since the last tick
        self._drain_asked = False
        self._outcomes: deque[tuple[int, str | None]] = deque()
        self._audit_down = False  # an event failed or stayed away: flush does not wait for more
        self._orphan = False
        self._warned_at = -WARNING_APART_SECONDS
        self._event_at = -FLUSH_EVENTS_APART_SECONDS
        self.ledger = Ledger(self._ask_for_drain)
        self.with_callback = self._make_with_callback()
        self.journal = Journal(
            self._identity(), lambda: str(uuid4()), items_max(config.audit.message_max_bytes)
        )
        self.topic_ids = TopicIds(Admin(config.librdkafka))
        self.handle = Producer(self._with_callbacks_in_application(config.librdkafka))
        self._reporter = threading.Thread(target=self._report, name="penstock-audit", daemon=True)
        self._reporter.start()

    def _identity(self) -> MonitoringEvent:
        return MonitoringEvent(
            uuid="",
            incarnation=self.incarnation,
            number=0,
            final=False,
            client_id=self._audit.client_id,
            application=self._audit.application,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at_ms=now_ms(),
            sent_at_ms=0,
            interval_ms=self._audit.interval_ms,
        )

    # --- the application's side -----------------------------------------------------------

    def poll(self, timeout: float) -> int:
        """Serve callbacks, as the bare producer's poll; returns how many."""
        served = self._run_deferred() if self._deferred else 0
        self._polling.append(None)
        try:
            served += self.handle.poll(0 if served else timeout)
        finally:
            self._polling.pop()
            self._served = True
        return served

    def flush(self, timeout: float) -> int:
        """Wait for the data, then send an event and wait for that; returns what is still queued.

        ``timeout`` in seconds, negative for no limit (every record ends by librdkafka's
        ``message.timeout.ms``).
        """
        deadline = None if timeout < 0 else monotonic() + timeout
        self._flush_until(deadline)
        if self._audit.enable and self.ledger.lanes:
            reply: SimpleQueue[bool] = SimpleQueue()
            self._inbox.put(Publish(reply))
            limit = monotonic() + EVENT_WAIT_SECONDS
            limit = limit if deadline is None else min(limit, deadline)
            if _answer(reply, limit) and not self._audit_down:
                self._flush_until(limit)
                self._audit_down = len(self.handle) > 0
        self._run_deferred()
        return len(self)

    def close(self, timeout: float) -> bool:
        """Flush, give up what is left after ``timeout`` seconds, send the final event, end.

        Returns whether the final event was acknowledged. Records that are given up are reported
        to the application's callbacks and in the event as failed.
        """
        self._flush_until(None if timeout < 0 else monotonic() + timeout)
        self._give_up()
        deadline = monotonic() + EVENT_WAIT_SECONDS
        reply: SimpleQueue[bool] = SimpleQueue()
        self._inbox.put(Close(reply, deadline))
        done = _answer(reply, deadline + EVENT_WAIT_SECONDS)
        self._run_deferred()
        self._reporter.join(EVENT_WAIT_SECONDS)
        return done

    def abandon(self) -> None:
        """The producer object is gone without close(): let the reporter end the session."""
        self._inbox.put(Close(SimpleQueue(), monotonic() + EVENT_WAIT_SECONDS, orphan=True))

    def __len__(self) -> int:
        """The application's records without an outcome, and callbacks not yet run.

        librdkafka's own count has the events in it, and counts reports beside the records; but
        when it is zero there is nothing left, so it is the upper bound.
        """
        queued = len(self.handle)
        if self._audit.enable:
            queued = min(queued, self.ledger.in_flight)
        return queued + len(self._deferred)

    def _flush_until(self, deadline: float | None) -> None:
        self._polling.append(None)
        try:
            while True:
                left = SLICE_SECONDS if deadline is None else deadline - monotonic()
                remaining = self.handle.flush(max(0.0, min(left, SLICE_SECONDS)))
                if not self._orphan:
                    self._run_deferred()
                if remaining == 0 or (deadline is not None and monotonic() >= deadline):
                    return
        finally:
            self._polling.pop()
            self._served = True

    def _give_up(self) -> None:
        if len(self):
            log.warning(
                "closing with %d records not acknowledged: they are reported as failed", len(self)
            )
            self.handle.purge()
            self._flush_until(monotonic() + EVENT_WAIT_SECONDS)

    def _run_deferred(self) -> int:
        count = 0
        while self._deferred:
            try:
                callback = self._deferred.popleft()
            except IndexError:  # another thread was faster
                break
            callback()
            count += 1
        return count

    # --- the delivery path ----------------------------------------------------------------

    def _ask_for_drain(self) -> None:
        if not self._drain_asked:
            self._drain_asked = True
            self._inbox.put(Drain())

    def _make_with_callback(self) -> Callable[..., None]:
        """The delivery callback of a record whose application has a callback of its own."""

        def with_callback(
            record: tuple[Callable[..., None], int, DeliveryCallback], error: Any, message: Any
        ) -> None:
            delivered, sequence, on_done = record
            delivered(sequence, error, message)
            if threading.current_thread() is self._reporter:
                self._deferred.append(lambda: on_done(error, message))
            else:
                on_done(error, message)

        return with_callback

    def _with_callbacks_in_application(self, config: dict[str, Any]) -> dict[str, Any]:
        wrapped = dict(config)
        for name in _APPLICATION_CALLBACKS:
            if callable(config.get(name)):
                wrapped[name] = self._in_application(config[name])
        return wrapped

    def _in_application(self, callback: Callable[..., Any]) -> Callable[..., None]:
        def called(*values: Any) -> None:
            if threading.current_thread() is self._reporter:
                self._deferred.append(lambda: callback(*values))
            else:
                callback(*values)

        return called

    # --- the reporter's side --------------------------------------------------------------

    def _report(self) -> None:
        heartbeat_due = monotonic() + self._interval
        flush_due: float | None = None
        while True:
            due = heartbeat_due if flush_due is None else min(heartbeat_due, flush_due)
            request = self._next_request(min(TICK_SECONDS, max(0.0, due - monotonic())))
            self._drain_asked = False
            self.ledger.drain()
            self._take_outcomes()
            if isinstance(request, Close):
                self._end(request)
                return
            if isinstance(request, Publish):
                flush_due = self._event_at + FLUSH_EVENTS_APART_SECONDS
            if flush_due is not None and monotonic() >= flush_due:
                flush_due = None
                self._publish(heartbeat=False)
            if monotonic() >= heartbeat_due:
                heartbeat_due = monotonic() + self._interval
                self._publish(heartbeat=True)
            if isinstance(request, Publish):
                request.reply.put(True)

    def _next_request(self, seconds: float) -> Request | None:
        try:
            return self._inbox.get(timeout=seconds)
        except Empty:
            self._serve()
            return None

    def _end(self, request: Close) -> None:
        self._orphan = request.orphan
        if request.orphan:
            self._flush_until(request.deadline)
            self._give_up()
        request.reply.put(self._finish(request.deadline))

    def _serve(self) -> None:
        """Poll in the application's place if it has not done so for a tick."""
        if self._audit.enable and not self._served and not self._polling:
            try:
                self.handle.poll(0)
            except KafkaException as error:
                log.warning("serving librdkafka in the application's place: %s", error)
        self._served = False

    def _publish(self, *, heartbeat: bool, final: bool = False) -> None:
        if not self._audit.enable or not self.ledger.lanes:
            return  # nothing was ever sent: no evidence of this incarnation is due
        if final or not self.journal.full:
            accounts = self.ledger.take(final=final)
            accounts = self.topic_ids.label(accounts)
            if accounts or heartbeat or final:
                self.journal.write(accounts, now_ms(), final=final)
        self._send_due()
        self._event_at = monotonic()

    def _send_due(self) -> None:
        for entry in self.journal.due():
            entry.in_flight = True
            try:
                self.handle.produce(
                    self._audit.topic,
                    entry.value,
                    entry.key,
                    on_delivery=MethodType(self._event_delivered, entry.number),
                )
            except (BufferError, KafkaException) as error:
                entry.in_flight = False
                self._warn(str(error))
                return

    def _event_delivered(self, number: int, error: Any, _message: Any) -> None:
        self._outcomes.append((number, None if error is None else str(error)))

    def _take_outcomes(self) -> None:
        while self._outcomes:
            number, error = self._outcomes.popleft()
            self.journal.completed(number, acknowledged=error is None)
            self._audit_down = error is not None
            if error is not None:
                self._warn(error)

    def _warn(self, problem: str) -> None:
        if monotonic() - self._warned_at >= WARNING_APART_SECONDS:
            self._warned_at = monotonic()
            log.warning(
                "monitoring events of %s are not accepted by topic %r: %s. Records are sent, but "
                "stay unaudited until it accepts them; %d events wait",
                self._audit.application,
                self._audit.topic,
                problem,
                self.journal.unacknowledged,
            )

    def _finish(self, deadline: float) -> bool:
        """The last event, sent and sent again until it is acknowledged or time is up."""
        self._publish(heartbeat=False, final=True)
        while self.journal.unacknowledged and monotonic() < deadline:
            self.handle.flush(SLICE_SECONDS)
            self._take_outcomes()
            if self.journal.due():
                sleep(RETRY_SECONDS)
                self._send_due()
        if self.journal.unacknowledged:
            self._warn("closed before they were acknowledged")
        return not self.journal.unacknowledged


def _answer(reply: SimpleQueue[bool], deadline: float) -> bool:
    try:
        return reply.get(timeout=max(0.0, deadline - monotonic()))
    except Empty:
        return False
