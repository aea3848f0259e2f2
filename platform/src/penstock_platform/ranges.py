"""Half-open offset ranges: the vocabulary in which Penstock counts.

Whole windows are compared as sorted NumPy arrays, so that five million offsets take a fraction of
a second; the answers are ranges, so that a person can read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets ``start <= offset < end`` of one partition.

    Raises ValueError for a negative partition or offset, or an end before the start.
    """

    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.partition < 0 or self.start < 0 or self.end < self.start:
            raise ValueError(f"not an offset range: {self.partition}:[{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        return self.end > self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end

    def __str__(self) -> str:
        if not self:
            return f"partition {self.partition} no offsets (at {self.start})"
        if len(self) == 1:
            return f"partition {self.partition} offset {self.start}"
        return f"partition {self.partition} offsets {self.start}-{self.end - 1}"


class Comparison(NamedTuple):
    """What differs between a range and the offsets found for it."""

    missing: tuple[OffsetRange, ...]
    duplicate: tuple[OffsetRange, ...]
    outside: tuple[OffsetRange, ...]


def merge(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The same offsets in sorted ranges that neither touch nor overlap nor are empty."""
    merged: list[OffsetRange] = []
    for r in sorted(r for r in ranges if r):
        last = merged[-1] if merged else None
        if last is not None and last.partition == r.partition and r.start <= last.end:
            merged[-1] = OffsetRange(r.partition, last.start, max(last.end, r.end))
        else:
            merged.append(r)
    return tuple(merged)


def intersect(a: Iterable[OffsetRange], b: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The offsets that are in both, merged."""
    left, right = merge(a), merge(b)
    common: list[OffsetRange] = []
    i = j = 0
    while i < len(left) and j < len(right):
        x, y = left[i], right[j]
        if x.partition == y.partition:
            start, end = max(x.start, y.start), min(x.end, y.end)
            if start < end:
                common.append(OffsetRange(x.partition, start, end))
        if (x.partition, x.end) <= (y.partition, y.end):
            i += 1
        else:
            j += 1
    return tuple(common)


def subtract(a: Iterable[OffsetRange], b: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The offsets of ``a`` that are not in ``b``, merged."""
    taken = merge(b)
    rest: list[OffsetRange] = []
    j = 0
    for r in merge(a):
        start = r.start
        while j < len(taken) and (taken[j].partition, taken[j].end) <= (r.partition, start):
            j += 1
        k = j
        while k < len(taken) and taken[k].partition == r.partition and taken[k].start < r.end:
            if taken[k].start > start:
                rest.append(OffsetRange(r.partition, start, taken[k].start))
            start = taken[k].end
            k += 1
        if start < r.end:
            rest.append(OffsetRange(r.partition, start, r.end))
    return tuple(rest)


def covers(whole: Iterable[OffsetRange], part: Iterable[OffsetRange]) -> bool:
    """Is every offset of ``part`` in ``whole``?"""
    return not subtract(part, whole)


def count(ranges: Iterable[OffsetRange]) -> int:
    """Offsets in all the ranges, those in two of them once."""
    return sum(len(r) for r in merge(ranges))


def ranges_of(partition: int, offsets: Sequence[int] | Offsets) -> tuple[OffsetRange, ...]:
    """The ranges of these offsets, in any order, repeated or not."""
    values = np.sort(np.asarray(offsets, dtype=np.int64))
    if not values.size:
        return ()
    breaks = np.flatnonzero(np.diff(values) > 1) + 1
    starts = values[np.concatenate(([0], breaks))]
    ends = values[np.concatenate((breaks - 1, [values.size - 1]))] + 1
    return tuple(OffsetRange(partition, int(s), int(e)) for s, e in zip(starts, ends, strict=True))


def missing_and_duplicates(expected: OffsetRange, offsets: Offsets) -> Comparison:
    """Compare a range with the offsets found for it, in any order and repeated or not.

    ``offsets`` is a one-dimensional integer array. Duplicates are named once, however often they
    are there. Offsets outside the range are listed apart; they are neither missing nor duplicate.
    """
    values = np.asarray(offsets, dtype=np.int64)
    if np.any(values[1:] < values[:-1]):
        values = np.sort(values)
    if values.size == len(expected) and np.array_equal(
        values, np.arange(expected.start, expected.end)
    ):
        return Comparison((), (), ())
    low, high = np.searchsorted(values, (expected.start, expected.end))
    outside = np.concatenate((values[:low], values[high:]))
    inside = values[low:high]
    duplicate = inside[1:][inside[1:] == inside[:-1]]
    return Comparison(
        missing=gaps(expected, inside),
        duplicate=ranges_of(expected.partition, duplicate),
        outside=ranges_of(expected.partition, outside),
    )


def gaps(expected: OffsetRange, offsets: Offsets) -> tuple[OffsetRange, ...]:
    """The ranges of ``expected`` that sorted ``offsets``, all within it, leave out."""
    if not expected:
        return ()
    fenced = np.concatenate(([expected.start - 1], offsets, [expected.end]))
    at = np.flatnonzero(np.diff(fenced) > 1)
    return tuple(
        OffsetRange(expected.partition, int(fenced[i]) + 1, int(fenced[i + 1])) for i in at
    )


def by_partition(ranges: Iterable[OffsetRange]) -> Mapping[int, tuple[OffsetRange, ...]]:
    """Merged ranges by their partition."""
    grouped: dict[int, list[OffsetRange]] = {}
    for r in merge(ranges):
        grouped.setdefault(r.partition, []).append(r)
    return {partition: tuple(found) for partition, found in grouped.items()}


def describe(ranges: Iterable[OffsetRange], most: int = 5) -> str:
    """The ranges in words, at most so many, then how many more there are."""
    merged = merge(ranges)
    shown = ", ".join(map(str, merged[:most]))
    more = len(merged) - most
    return f"{shown} and {more} more ranges" if more > 0 else shown or "none"
