"""The right to land a window: a lease that the landing run renews while it works.

Each run that lands a partition writes one line of its own, where all others and the sensor can read
it: since when it asks for the landing, and when it last said so. Among the lines that are renewed,
the one that asked first owns the landing. A run that has not renewed for ``LAPSE`` owns nothing any
more, whatever became of it, and a run that has ended owns nothing at once.

Exactly-once does not rest on this but on the table's commit (the fence in ``landing/bronze.py``).
The lease only keeps runs from interrupting each other's work, so two that ask in the same moment
and both see themselves first cost time, never rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

RENEW = timedelta(seconds=15)
# Six renewals are missed: the process is gone, or the machine was suspended.
LAPSE = timedelta(seconds=90)


class LeaseFormatError(ValueError):
    """A lease line that cannot be read: says what it holds."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One run's claim to a landing. Both times are aware, in UTC."""

    run_id: str
    asked_at: datetime
    renewed_at: datetime

    def to_text(self) -> str:
        """``<asked> <renewed>``, ISO 8601 with microseconds; the run's id is where it is kept."""
        return f"{self.asked_at.isoformat()} {self.renewed_at.isoformat()}"

    @classmethod
    def from_text(cls, run_id: str, text: str) -> Lease:
        """The reverse of ``to_text``. Raises LeaseFormatError."""
        try:
            asked, renewed = (datetime.fromisoformat(part) for part in text.split(" "))
        except ValueError as error:
            raise LeaseFormatError(f"run {run_id}: not a lease: {text!r}") from error
        if asked.tzinfo is None or renewed.tzinfo is None:
            raise LeaseFormatError(f"run {run_id}: a lease without time zone: {text!r}")
        return cls(run_id, asked, renewed)

    def alive(self, now: datetime) -> bool:
        """Whether it was renewed within ``LAPSE``."""
        return now - self.renewed_at < LAPSE

    def renewed(self, now: datetime) -> Lease:
        return replace(self, renewed_at=now)


def ask(run_id: str, known: Lease | None, now: datetime) -> Lease:
    """The line with which a run asks for a landing, or continues with one that it has.

    A run whose lease has lapsed asks again, behind those that asked meanwhile.
    """
    if known is not None and known.alive(now):
        return known.renewed(now)
    return Lease(run_id, now, now)


def owner(leases: Iterable[Lease], now: datetime) -> Lease | None:
    """The lease that owns the landing: of those alive the one that asked first."""
    alive = [lease for lease in leases if lease.alive(now)]
    return min(alive, key=lambda lease: (lease.asked_at, lease.run_id), default=None)
