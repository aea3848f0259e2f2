"""How far a consumer group is behind in one partition: in messages, and in exact seconds.

Seconds are the age of the oldest record that the group has not consumed, not an estimate from
rates: what a consumer would read next has that age.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from penstock_platform.kafka.model import CommittedOffset, LogBounds


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition as a group has consumed it.

    ``committed`` is None where the group has committed nothing, ``log`` where the topic is gone.
    ``unread_ms`` is the timestamp of the first unread record, None where it is not known;
    ``all_read`` says that there is no record to read, whatever the offsets are: what is left are
    markers of transactions.
    """

    topic: str
    partition: int
    committed: CommittedOffset | None
    log: LogBounds | None
    owner: str = ""
    unread_ms: int | None = None
    all_read: bool = False

    @property
    def position(self) -> int | None:
        """Where the group reads next: what it committed, within the log."""
        if self.committed is None or self.log is None:
            return None
        return within(self.committed.offset, self.log)

    @property
    def messages(self) -> int | None:
        """Offsets that the group can still read; None without a committed offset."""
        if self.position is None or self.log is None:
            return None
        return self.log.end - self.position

    def seconds(self, now: datetime) -> float | None:
        """The age of the first unread record, 0 where there is none, None where not known. A record
        from the future (its producer's clock is wrong) is 0 s old."""
        if self.messages == 0 or self.all_read:
            return 0.0
        if self.unread_ms is None:
            return None
        return round(max(0.0, now.timestamp() - self.unread_ms / 1000), 1)

    @property
    def outside(self) -> str:
        """What is wrong with a committed offset that is not in the log; empty where it is."""
        if self.committed is None:
            return ""
        if self.log is None:
            return "the partition does not exist"
        if self.committed.offset < self.log.start:
            return f"{self.log.start - self.committed.offset:,} unread offsets are deleted"
        if self.committed.offset > self.log.end:
            return f"{self.committed.offset - self.log.end:,} offsets beyond the log's end"
        return ""


def within(offset: int, log: LogBounds) -> int:
    """The offset, or the end of the log that is nearest to it."""
    return min(max(offset, log.start), log.end)


def total(lags: Iterable[PartitionLag]) -> int | None:
    """All messages together; None where no partition has a committed offset."""
    known = [lag.messages for lag in lags if lag.messages is not None]
    return sum(known) if known else None
