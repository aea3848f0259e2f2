"""Time that moves only when advanced, and runs what falls due on the way.

It simulates ``clock.SystemClock``, and an event loop's timers: background work of a test happens
inside :meth:`SimClock.advance`, in order, in the test's own thread.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

CALLBACKS_MAX = 1_000_000
"""More than this in one advance is a callback that reschedules itself without waiting."""


class SimTimer:
    """A callback that will run, unless cancelled."""

    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SimClock:
    """A :class:`~penstock_broker.clock.Clock` and :class:`~penstock_broker.clock.Timers`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(now_ms)
        self._monotonic = 0.0
        self._order = count()
        self._timers: list[tuple[float, int, SimTimer]] = []

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic(self) -> float:
        return self._monotonic

    def call_at(self, when: float, callback: Callable[[], None]) -> SimTimer:
        timer = SimTimer(when, callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_at(self._monotonic, callback)

    def jump(self, milliseconds: int) -> None:
        """Move the calendar alone, as a change of the host's clock does (back, if negative)."""
        self._now_ms += milliseconds

    def advance(self, milliseconds: float) -> None:
        """Let time pass, running what falls due, each at its own time."""
        end = self._monotonic + milliseconds / 1000
        for _ in range(CALLBACKS_MAX):
            if not self._timers or self._timers[0][0] > end:
                self._pass(end - self._monotonic)
                return
            when, _, timer = heapq.heappop(self._timers)
            self._pass(max(0.0, when - self._monotonic))
            if not timer.cancelled:
                timer.callback()
        raise RuntimeError("a callback reschedules itself without end")

    def run_ready(self) -> None:
        """Run what is due now."""
        self.advance(0)

    def _pass(self, seconds: float) -> None:
        self._monotonic += seconds
        self._now_ms += seconds * 1000
