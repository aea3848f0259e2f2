"""The event loop as the rest of the broker sees it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from penstock_broker.clock import Clock, Timer


class LoopTimers:
    """``clock.Timers`` on asyncio: deadlines are given on the broker's clock, waited for on the
    loop's, which may have another zero."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._context = contextvars.Context()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        delay = max(0.0, when - self._clock.monotonic())
        return self._loop.call_later(delay, callback, context=self._context)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback, context=self._context)
