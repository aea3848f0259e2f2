"""The host's time, which a test can move by any amount: for brokers that serve real clients.

``SimClock`` does not move between steps, so real clients cannot use it; this one runs with the
host's and is moved by jumps. :meth:`ShiftedClock.advance` is a machine that has slept: all that
fell due meanwhile is late and happens at once (sessions end, transactions time out, retention
runs). :meth:`ShiftedClock.jump` sets the calendar; durations do not change.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
from collections.abc import Callable
from itertools import count

from penstock_broker.clock import Clock, SystemClock


class ShiftedClock:
    """A :class:`~penstock_broker.clock.Clock`. Any thread may read and move it."""

    def __init__(self) -> None:
        self._host = SystemClock()
        self._calendar_ms = 0
        self._steady = 0.0
        self._timers: list[ShiftedTimers] = []

    def now_ms(self) -> int:
        return self._host.now_ms() + self._calendar_ms

    def monotonic(self) -> float:
        return self._host.monotonic() + self._steady

    def jump(self, milliseconds: int) -> None:
        """Move the calendar alone; back, if negative."""
        self._calendar_ms += milliseconds

    def advance(self, seconds: float) -> None:
        """Let time pass, on the calendar and for everything that waits."""
        if seconds < 0:
            raise ValueError("time does not go back; jump() sets the calendar")
        self._calendar_ms += round(seconds * 1000)
        self._steady += seconds
        for timers in self._timers:
            timers.time_has_passed()

    def timers(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> ShiftedTimers:
        """Timers on this clock; what a broker takes as ``make_timers``."""
        made = ShiftedTimers(loop, self)
        self._timers.append(made)
        return made


class ShiftedTimer:
    """A callback that will run, unless cancelled."""

    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ShiftedTimers:
    """``clock.Timers`` of an event loop, looked at again whenever the clock is moved."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: ShiftedClock) -> None:
        self._loop = loop
        self._clock = clock
        self._order = count()
        self._waiting: list[tuple[float, int, ShiftedTimer]] = []
        self._next: asyncio.TimerHandle | None = None
        self._context = contextvars.Context()

    def call_at(self, when: float, callback: Callable[[], None]) -> ShiftedTimer:
        timer = ShiftedTimer(callback)
        heapq.heappush(self._waiting, (when, next(self._order), timer))
        if self._waiting[0][2] is timer:
            self._schedule()
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback, context=self._context)

    def time_has_passed(self) -> None:
        """Run what is due by now; from any thread."""
        with contextlib.suppress(RuntimeError):  # its loop has ended: that broker is stopped
            self._loop.call_soon_threadsafe(self._run, context=self._context)

    def _run(self) -> None:
        # Only what is due now: a job that waits again is not run twice for one jump.
        now = self._clock.monotonic()
        due: list[ShiftedTimer] = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heapq.heappop(self._waiting)[2])
        for timer in due:
            if not timer.cancelled:
                timer.callback()
        self._schedule()

    def _schedule(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        while self._waiting and self._waiting[0][2].cancelled:
            heapq.heappop(self._waiting)
        if self._waiting:
            delay = max(0.0, self._waiting[0][0] - self._clock.monotonic())
            self._next = self._loop.call_later(delay, self._run, context=self._context)
