"""When to let the small requests of a busy connection collect before they are read.

A producer with small batches and many requests in flight sends them one by one, every ten
microseconds. A broker that is quicker than that reads, writes, answers and waits for each of them
alone: 25 µs of system calls for a request that costs 2.4, and as many wakes of the client, which
then sends fewer. So a connection that sends more than :data:`NAP_RATE` requests a second is not
read from for a millisecond at a time.

That is wrong for clients who wait for answers before they send more, and who can tell them apart
beforehand? So the rate with naps is held against the rate before them: where it is not nearly as
good, the connection does without naps, for longer each time.
"""

from __future__ import annotations

NAP_SECONDS = 0.001
"""The least that the event loop can wait."""
NAP_REQUEST_BYTES_MAX = 800
"""Larger requests would fill the buffer before the nap is over, and gain little."""
NAP_RATE = 24_000.0
"""Requests a second from which on a connection naps."""
WINDOW_REQUESTS = 64
"""Requests over which the rate is measured while there are no naps."""
GOOD = 0.7
"""The least share of the rate without naps that there must be with them."""
BAD_MAX = 4
"""A nap that is not good counts 2, one that is takes 1 back; at this there are none for a while:
the client's machine has other things to do as well."""
NAPS_IN_A_ROW = 1_000
"""Then the rate without is measured again."""
WINDOWS_SKIPPED_MAX = 1 << 14


class Pace:
    """Whether one connection should nap."""

    __slots__ = ("_bad", "_began", "_naps", "_rate", "_requests", "_skip", "_skips")

    def __init__(self) -> None:
        self._bad = 0
        self._began = 0.0
        self._requests = 0
        self._rate = 0.0  # without naps
        self._naps = 0  # in a row, the one being judged included
        self._skip = 0  # windows without naps before the next try
        self._skips = 1

    def wants_nap(self, requests: int, now: float) -> bool:
        """So many requests have just been handled; ``now`` in seconds."""
        self._requests += requests
        if self._requests < WINDOW_REQUESTS and now - self._began < NAP_SECONDS * 2:
            return False
        rate = self._requests / (now - self._began + 1e-9)
        self._began, self._requests = now, 0
        if self._naps:
            return self._nap_again(rate)
        self._rate = rate
        if rate < NAP_RATE:
            return False
        if self._skip:
            self._skip -= 1
            return False
        self._naps, self._bad = 1, 0
        return True

    def _nap_again(self, rate: float) -> bool:
        if rate < GOOD * self._rate:
            self._bad += 2
            if self._bad >= BAD_MAX:
                self._skips = min(4 * self._skips, WINDOWS_SKIPPED_MAX)
                self._skip, self._naps = self._skips, 0
                return False
        elif self._bad:
            self._bad -= 1
        else:
            self._skips = 1
        self._naps = (self._naps + 1) % NAPS_IN_A_ROW
        return self._naps > 0
