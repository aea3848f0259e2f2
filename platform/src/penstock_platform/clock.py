"""Time as a parameter: code that needs a clock is given one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The time of day and a stopwatch. In tests it is ``testing.ManualClock``."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never runs backwards."""

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""


def to_iso(moment: datetime) -> str:
    """ISO 8601 in UTC with a final ``Z``; whole seconds, or milliseconds where there are any.

    Raises ValueError for a time without a zone: its meaning would depend on the machine.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; give UTC")
    spec = "milliseconds" if moment.microsecond else "seconds"
    return moment.astimezone(UTC).isoformat(timespec=spec).replace("+00:00", "Z")


def from_iso(text: str) -> datetime:
    """The reverse of ``to_iso``; raises ValueError for anything without a zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write UTC as a final Z")
    return moment.astimezone(UTC)
