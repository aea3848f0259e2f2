"""TLS handshakes in line: each costs the event loop a millisecond or two of arithmetic.

So a few begin in one turn of the loop, whatever listener their clients came by, and no more than
:data:`HANDSHAKES_A_SECOND`: a thousand clients that reconnect at a time wait their turn, and
connected clients are served meanwhile. A connection that waits is not read from, and the time limit
of its handshake has not begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock_broker.clock import Timers
from penstock_broker.quotas.token_bucket import TokenBucket

HANDSHAKES_A_TURN = 4
HANDSHAKES_A_SECOND = 250.0
BURST = 50.0
"""Handshakes that may begin at once after a quiet time, turn after turn."""


class HandshakeLine:
    """Connections that wait for their TLS handshake. Owned by the event loop."""

    def __init__(self, timers: Timers, now: Callable[[], float]) -> None:
        self._timers = timers
        self._now = now
        self._bucket = TokenBucket(HANDSHAKES_A_SECOND, BURST, now())
        self._waiting: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, begin: Callable[[], None]) -> None:
        """Have ``begin`` called when it is its turn, always later than now."""
        if not self._waiting:
            self._timers.call_soon(self._turn)
        self._waiting.append(begin)

    def _turn(self) -> None:
        for _ in range(min(HANDSHAKES_A_TURN, len(self._waiting))):
            now = self._now()
            wait = self._bucket.wait(now)
            if wait > 0:
                self._timers.call_at(now + max(wait, 1 / HANDSHAKES_A_SECOND), self._turn)
                return
            self._bucket.take(1, now)
            self._waiting.popleft()()
        if self._waiting:
            self._timers.call_soon(self._turn)
