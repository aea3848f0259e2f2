"""Half-open ranges of whole numbers, as sorted lists of ``(first, end)`` pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Ranges = list[tuple[int, int]]


def ranges_of(numbers: Sequence[int]) -> Ranges:
    """The ranges of sorted, distinct numbers; fast where they are mostly consecutive.

    Gallops: doubles the step while numbers and positions grow together, then halves it.
    """
    found: Ranges = []
    count = len(numbers)
    position = 0
    while position < count:
        base = numbers[position] - position
        last, step = position, 1
        while last + step < count and numbers[last + step] - (last + step) == base:
            last += step
            step *= 2
        while step > 1:
            step //= 2
            if last + step < count and numbers[last + step] - (last + step) == base:
                last += step
        found.append((numbers[position], numbers[last] + 1))
        position = last + 1
    return found


def merge(*lists: Iterable[tuple[int, int]]) -> Ranges:
    """The union, touching ranges joined."""
    merged: Ranges = []
    for first, end in sorted(one for ranges in lists for one in ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def gaps(ranges: Iterable[tuple[int, int]], end: int) -> Ranges:
    """What sorted, disjoint ranges leave out of ``0 <= number < end``."""
    found: Ranges = []
    position = 0
    for first, stop in ranges:
        if first > position:
            found.append((position, min(first, end)))
        position = max(position, stop)
    if position < end:
        found.append((position, end))
    return found


def total(ranges: Iterable[tuple[int, int]]) -> int:
    """How many numbers the ranges hold."""
    return sum(end - first for first, end in ranges)
