"""The log that a sweep would shorten: its partitions, and which window its records belong to.

Where a partition was truncated, a window begins below the end of the one before it. The log's
records there are the later window's, so an earlier one reaches only up to where a later one begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_platform.windows.model.window import Window


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """One partition's log now: its offsets, and what it takes on its broker's disk."""

    start: int
    end: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes of the volume that holds the log."""

    total_bytes: int
    free_bytes: int


def bytes_from(window: Window, logs: Mapping[int, PartitionLog]) -> int:
    """Bytes of the log from the window's first offsets on, to the log's end: what deleting all
    windows before it would leave. Shared out by offsets within each partition."""
    starts = {p.p: p.start for p in window.partitions}
    total = 0
    for number, log in logs.items():
        length = log.end - log.start
        first = min(max(starts.get(number, log.start), log.start), log.end)
        total += log.size_bytes * (log.end - first) // length if length > 0 else 0
    return total


def new_leaders(newest: Window, epochs: Mapping[int, int]) -> list[int]:
    """Partitions whose leader changed since the newest window was frozen, by the broker's epochs
    (-1: it reports none). Their logs may have been cut and have grown again over offsets that were
    frozen before; the next freeze finds that out, and until then nothing there may be deleted."""
    known = {p.p: p.leader_epoch for p in newest.partitions}
    return sorted(
        p
        for p, epoch in epochs.items()
        if p in known and epoch >= 0 and known[p] >= 0 and epoch != known[p]
    )


def ends_in_log(windows: Sequence[Window], later_starts: Mapping[int, int]) -> list[dict[int, int]]:
    """Per window and partition the offset before which the log's records are the window's, or an
    earlier one's: its own end, or less where a later window begins below that."""
    least = dict(later_starts)
    ends: list[dict[int, int]] = []
    for window in reversed(windows):
        ends.append({p.p: min(p.end, least.get(p.p, p.end)) for p in window.partitions})
        for p in window.partitions:
            least[p.p] = min(p.start, least.get(p.p, p.start))
    return ends[::-1]
