"""Steady pacing: so many a second, spread evenly, whatever each one takes."""

from __future__ import annotations

from collections.abc import Callable

from penstock_client.clock import monotonic, sleep

# Sleeping is done in lots of this length: a sleep per record would be all that a fast one does.
LOT_SECONDS = 0.02
# A pacer that fell behind further than this does not catch up with a burst: it starts over.
BEHIND_SECONDS_MAX = 2.0


class Pacer:
    """Call ``wait()`` before each record; it sleeps so that the rate is kept.

    ``rate`` a second; None or 0 for as fast as possible. ``wait`` returns False, at once, as soon
    as ``stop`` says so.
    """

    def __init__(
        self,
        rate: float | None,
        *,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], object] = sleep,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._rate = rate or 0.0
        self._clock = clock
        self._pause = pause
        self._stop = stop
        self._started = clock()
        self._count = 0

    def wait(self) -> bool:
        """Return when the next record is due: True, or False to stop."""
        if self._stop():
            return False
        if self._rate > 0:
            ahead = self._started + self._count / self._rate - self._clock()
            if ahead > LOT_SECONDS:
                self._pause(ahead)
                if self._stop():
                    return False
            elif ahead < -BEHIND_SECONDS_MAX:
                self._started = self._clock()
                self._count = 0
        self._count += 1
        return True
