"""A watch on the event loop's turns: how long the longest took, and how many were slow.

A turn is the time between two waits for events, in which no other request is served. Every
turn is measured, by two readings of a clock around the wait; so a mixed load that leaves the
longest at a few milliseconds shows that nothing in it blocks the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

SLOW_TURN_SECONDS = 0.02
"""No well-formed request holds the loop for longer."""


class TurnWatch:
    """The turns of one loop since :meth:`watch`, or since :meth:`start_over`."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self.longest_seconds = 0.0
        self.slow = 0
        """Turns that took longer than ``SLOW_TURN_SECONDS``."""
        self.began_at = 0.0
        """When the current turn began, by its clock; 0 while the loop waits."""

    def start_over(self) -> None:
        """Discard what was measured."""
        self.longest_seconds, self.slow = 0.0, 0

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure from now on. Where the loop waits otherwise than asyncio's own, nothing is."""
        selector: Any = getattr(loop, "_selector", None)
        if selector is None:
            return
        select, clock = selector.select, self._clock

        def measured(timeout: float | None = None) -> Any:
            began = self.began_at
            if began:
                took = clock() - began
                self.longest_seconds = max(self.longest_seconds, took)
                if took > SLOW_TURN_SECONDS:
                    self.slow += 1
            self.began_at = 0.0
            events = select(timeout)
            self.began_at = clock()
            return events

        selector.select = measured
