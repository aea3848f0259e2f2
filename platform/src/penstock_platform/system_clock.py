"""The machine's clock; the only module of the platform's resources that asks for the time."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The real ``clock.Clock``."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
