"""When to let the small requests of a busy connection collect before they are read.

A producer with small batches and many requests in flight sends them one by one, every ten
microseconds. A broker that is quicker than that reads, writes, answers and waits for each of them
alone: 25 µs of system calls for a request that costs 2.4, and as many wakes of the client, which
then sends fewer. So a connection that has just sent ``NAP_REQUESTS`` of them within a millisecond
is not read from for the next one (:class:`Pace`). Clients that wait for answers before they send
more do not come to that rate; should one do, its first nap shows that nothing collects meanwhile,
and the next one is far off.
"""

from __future__ import annotations

NAP_SECONDS = 0.001
"""The least that the event loop can wait."""
NAP_REQUESTS = 24
"""Requests within :data:`NAP_SECONDS` after which a connection naps; half as many make a nap worth
its while."""
NAPS_SKIPPED_MAX = 1 << 14


class Pace:
    """Whether one connection should nap."""

    __slots__ = ("_began", "_napped", "_requests", "_skip", "_skips")

    def __init__(self) -> None:
        self._began = 0.0
        self._requests = 0
        self._napped = False
        self._skip = 0
        self._skips = 1

    def wants_nap(self, requests: int, now: float) -> bool:
        """So many requests have just been handled; ``now`` in seconds."""
        if self._napped:
            self._napped = False
            if requests >= NAP_REQUESTS // 2:
                self._skips = 1
            else:
                self._skips = min(8 * self._skips, NAPS_SKIPPED_MAX)
                self._skip = self._skips
        if now - self._began > NAP_SECONDS:
            self._began, self._requests = now, 0
        self._requests += requests
        if self._requests < NAP_REQUESTS:
            return False
        self._began = now
        self._requests = 0
        if self._skip:
            self._skip -= 1
            return False
        self._napped = True
        return True
