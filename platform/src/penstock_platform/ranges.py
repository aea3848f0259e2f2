"""Half-open offset ranges: the vocabulary in which Penstock counts.

Windows are compared as ``Spans``, sorted arrays of range ends, so that a window of a billion
offsets takes no more memory than its gaps; the answers are ``OffsetRange``, so that a person can
read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Spans:
    """Half-open spans of integers as parallel arrays, sorted, neither touching nor overlapping."""

    start: Offsets
    end: Offsets

    @classmethod
    def none(cls) -> Spans:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def of(cls, spans: Iterable[tuple[int, int]]) -> Spans:
        rows = sorted({(start, end) for start, end in spans if end > start})
        return cls.merge(
            np.fromiter((r[0] for r in rows), np.int64, len(rows)),
            np.fromiter((r[1] for r in rows), np.int64, len(rows)),
        )

    @classmethod
    def of_values(cls, values: Offsets) -> Spans:
        """Of integers in any order, repeated or not."""
        found = np.sort(values)
        if not found.size:
            return cls.none()
        breaks = np.flatnonzero(np.diff(found) > 1) + 1
        first = np.concatenate(([0], breaks))
        last = np.concatenate((breaks, [found.size])) - 1
        return cls(found[first], found[last] + 1)

    @classmethod
    def merge(cls, start: Offsets, end: Offsets) -> Spans:
        """Spans that are sorted by start, and may touch or overlap. None of them is empty."""
        if not start.size:
            return cls(start, end)
        reach = np.maximum.accumulate(end)
        opens = np.concatenate(([True], start[1:] > reach[:-1]))
        closes = np.concatenate((opens[1:], [True]))
        return cls(start[opens], reach[closes])

    @classmethod
    def at_depth(cls, parts: Sequence[Spans], depth: int) -> Spans:
        """The integers that at least ``depth`` of the parts hold."""
        start = np.concatenate([part.start for part in parts] or [np.empty(0, np.int64)])
        end = np.concatenate([part.end for part in parts] or [np.empty(0, np.int64)])
        place, held = _steps(start, end)
        return cls._where(place, held >= depth)

    def __bool__(self) -> bool:
        return bool(self.start.size)

    @property
    def count(self) -> int:
        """How many integers they hold."""
        return int((self.end - self.start).sum())

    def minus(self, other: Spans) -> Spans:
        """The integers that ``other`` does not hold."""
        if not (self and other):
            return self
        place, mine, theirs = self._beside(other)
        return self._where(place, (mine > 0) & (theirs == 0))

    def both(self, other: Spans) -> Spans:
        """The integers that ``other`` holds as well."""
        if not (self and other):
            return Spans.none()
        place, mine, theirs = self._beside(other)
        return self._where(place, (mine > 0) & (theirs > 0))

    def clipped(self, first: int, end: int) -> Spans:
        """Their parts within ``first <= n < end``."""
        inside = (self.end > first) & (self.start < end)
        return Spans(np.maximum(self.start[inside], first), np.minimum(self.end[inside], end))

    def hold(self, values: Offsets) -> NDArray[np.bool_]:
        """Which of the values lie in a span."""
        if not self.start.size:
            return np.zeros(values.size, dtype=bool)
        at = np.searchsorted(self.start, values, side="right") - 1
        mask: NDArray[np.bool_] = (at >= 0) & (values < self.end[at])
        return mask

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.start.tolist(), self.end.tolist(), strict=True))

    def ranges(self, partition: int) -> tuple[OffsetRange, ...]:
        return tuple(OffsetRange(partition, start, end) for start, end in self.pairs())

    def _beside(self, other: Spans) -> tuple[Offsets, Offsets, Offsets]:
        """Where either begins or ends, and how many spans of each hold what follows there."""
        mine, theirs = _steps(self.start, self.end), _steps(other.start, other.end)
        place = np.union1d(mine[0], theirs[0])
        return place, _held_at(place, *mine), _held_at(place, *theirs)

    @classmethod
    def _where(cls, place: Offsets, chosen: NDArray[np.bool_]) -> Spans:
        """The spans from each chosen place to the next one. The last place only ends one."""
        at = np.flatnonzero(chosen[:-1])
        return cls.merge(place[at], place[at + 1])


def _steps(start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
    """The places where spans in any order begin or end, each once and sorted, and how many of the
    spans hold what follows."""
    place, where = np.unique(np.concatenate((start, end)), return_inverse=True)
    change = np.zeros(place.size, np.int64)
    np.add.at(change, where, np.concatenate((np.ones_like(start), -np.ones_like(end))))
    return place, np.cumsum(change)


def _held_at(place: Offsets, steps: Offsets, held: Offsets) -> Offsets:
    at = np.searchsorted(steps, place, side="right")
    found: Offsets = np.concatenate(([0], held))[at]
    return found


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
    return Spans.of_values(np.asarray(offsets, dtype=np.int64)).ranges(partition)


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
