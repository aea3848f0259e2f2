"""A clock that moves only when a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(2026, 11, 20, tzinfo=UTC)


class ManualClock:
    """``clock.Clock`` under the test's control; sleeping moves it at once."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds
