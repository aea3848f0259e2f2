"""A token bucket that may go into debt: how long a client has to be quiet after what it did.

What a request moves is known only when it has been moved, so it is charged afterwards, whole, and
the answer says how long it takes to pay for it (KIP-219). A bucket holds at most ``burst`` tokens,
is filled at ``rate`` a second, and is never asked beforehand. Kafka measures a rate over eleven
windows of a second instead; a client that obeys gets the same mean from both, from this one
without the jumps at the windows' ends.

No clock and no I/O: every method takes ``now`` in seconds of any steady clock. What holds, and is
tested: a client that waits as long as asked has, after any time T, taken at most
``burst + rate x T`` and one request more.
"""

from __future__ import annotations

WAIT_SECONDS_MAX = 3_600.0
"""The longest wait, whatever the debt: clients take milliseconds in an int32."""


class TokenBucket:
    """``rate`` in units a second; ``burst`` in units, full at first."""

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take ``amount``, which may be more than there is; the seconds until the debt is paid."""
        self._fill(now)
        self._tokens -= amount
        return self.wait(now)

    def wait(self, now: float) -> float:
        """The seconds until the debt is paid; 0 when there is none."""
        self._fill(now)
        if self._tokens >= 0:
            return 0.0
        if self.rate <= 0:
            return WAIT_SECONDS_MAX
        return min(-self._tokens / self.rate, WAIT_SECONDS_MAX)

    def give_back(self, amount: float) -> None:
        """Undo a :meth:`take` of something that did not happen after all."""
        self._tokens = min(self.burst, self._tokens + amount)

    def is_full(self, now: float) -> bool:
        """Whether it is as good as new: nothing is lost by evicting it."""
        self._fill(now)
        return self._tokens >= self.burst

    def change(self, rate: float, burst: float, now: float) -> None:
        """Another quota from now on; the debt stays, in units."""
        self._fill(now)
        self.rate = rate
        self.burst = burst
        self._tokens = min(self._tokens, burst)

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
            self._at = now
