"""From frames to ``api/produce_repeat.py``: many produce requests at once."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from penstock_broker.api.context import CloseConnectionError
from penstock_broker.server.connection import Connection
from penstock_broker.server.pace import NAP_REQUEST_BYTES_MAX, NAP_SECONDS
from penstock_broker.server.request_metrics import RequestClock, RequestMetrics
from penstock_broker.server.throttling import Throttling
from penstock_broker.wire.framing import FrameReader


class RepeatDispatcher:
    """What the dispatcher has for requests that need no route."""

    __slots__ = ("_clock", "_metrics_of", "_throttling")

    def __init__(
        self,
        clock: RequestClock,
        throttling: Throttling,
        metrics_of: Callable[[int], RequestMetrics],
    ) -> None:
        """``metrics_of`` gives those of a version of Produce."""
        self._clock = clock
        self._throttling = throttling
        self._metrics_of = metrics_of

    def dispatch(self, frames: FrameReader, connection: Connection) -> bool:
        """Handle what is at hand of produce requests that repeat earlier ones; False for none.

        Not when an answer is owed before theirs, or when a quota has to be paid for each.
        """
        repeats = connection.repeats
        if (
            repeats is None
            or connection.must_queue()
            or connection.quota is not None
            or connection.quota_generation != self._throttling.generation
        ):
            return False
        self._clock.begin(self._metrics_of(repeats.version), 0)
        before = frames.buffered
        try:
            answers = repeats.take(frames)
        except CloseConnectionError as error:
            connection.abort(str(error))
            return True
        if answers is None:
            return False
        self._clock.add(repeats.handled)
        if answers:
            connection.send((answers,))
        is_small = before - frames.buffered <= repeats.handled * NAP_REQUEST_BYTES_MAX
        if (
            is_small
            and not frames.is_full
            and connection.pace.wants_nap(repeats.handled, perf_counter())
        ):
            connection.mute(NAP_SECONDS)
        return True
