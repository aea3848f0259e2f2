"""What retention deletes: a plan made from facts about segments, without touching any.

Kafka's rules. Whole segments go, oldest first, and only where all of the segment lies below the
high watermark. By time: a segment goes when its newest record is older than ``retention.ms``; by
records' own timestamps, so a segment whose producers claim to live in the future stays until that
has come. By size: segments go as long as what is left is still at least ``retention.bytes``. The
active segment goes too once it has expired, after a new one has been begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class Sized(Protocol):
    """What the plan asks of a segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...


class RetentionPlan(NamedTuple):
    """The oldest segments that go: first those by time, then those by size."""

    by_time: int
    by_size: int
    start_offset: int
    """Where the log begins then; its end where all go: a new segment is to be begun first."""


def plan_retention(
    segments: Sequence[Sized],
    *,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
    end_offset: int,
    high_watermark: int,
    newest_ms: Callable[[int], int],
) -> RetentionPlan:
    """Which segments go. The last one is the active one and ends at ``end_offset``.

    ``newest_ms(number)`` is the largest timestamp in a segment; it may cost a read, and is asked
    only of those that could go. Negative limits are none.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    may_go = sum(end <= high_watermark for end in ends)
    if may_go == len(segments) and segments[-1].size == 0:
        may_go -= 1
    by_time = by_size = 0
    if retention_ms >= 0:
        while by_time < may_go and now_ms - newest_ms(by_time) > retention_ms:
            by_time += 1
    if retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[by_time:]) - retention_bytes
        for segment in segments[by_time:may_go]:
            excess -= segment.size
            if excess < 0:
                break
            by_size += 1
    total = by_time + by_size
    return RetentionPlan(by_time, by_size, ends[total - 1] if total else segments[0].base_offset)
