"""Half-open offset ranges: the vocabulary in which Penstock counts."""

from __future__ import annotations

from dataclasses import dataclass


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

    def __str__(self) -> str:
        return f"partition {self.partition} offsets {self.start}-{self.end - 1}"
