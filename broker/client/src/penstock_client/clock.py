"""The clocks of the client: the one module that asks the operating system for the time."""

from __future__ import annotations

from time import monotonic, sleep, time_ns

__all__ = ["monotonic", "now_ms", "sleep", "time_ns"]


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time_ns() // 1_000_000
