"""Time as a parameter: the only module of the broker that asks the machine what time it is.

Everything that needs time is handed a :class:`Clock`; tests hand in
``penstock_broker.testing.SimClock``, which moves only when advanced.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two readings of time: the calendar for what is stored, a steady one for durations."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch; may jump when the host's clock does."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...


class SystemClock:
    """The host's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class Timer(Protocol):
    """Something that will happen, unless it is cancelled."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Calls back later, in the thread that owns the broker's state."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call once the :meth:`Clock.monotonic` of the same machine has reached ``when``."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call after what is going on now, before anything else is read or awaited."""
        ...
