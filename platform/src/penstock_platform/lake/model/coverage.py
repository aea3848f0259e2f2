"""Which offsets a window's rows have, as spans: what is proven of them without holding the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock_platform.ranges import OffsetRange, Offsets, Spans


@dataclass(frozen=True, slots=True)
class Coverage:
    """The offsets of rows by partition. ``once``: those that are there; ``again``: those of them
    that are there more than once. ``rows`` counts the rows.
    """

    once: Mapping[int, Spans]
    again: Mapping[int, Spans]
    rows: int

    @classmethod
    def none(cls) -> Coverage:
        return cls({}, {}, 0)

    @classmethod
    def of(cls, offsets: Mapping[int, Offsets]) -> Coverage:
        """Of offsets by partition, in any order, as often as they are there."""
        once: dict[int, Spans] = {}
        again: dict[int, Spans] = {}
        for partition, found in offsets.items():
            values = np.sort(found)
            once[partition] = Spans.of_values(values)
            again[partition] = Spans.of_values(values[1:][values[1:] == values[:-1]])
        return cls(_held(once), _held(again), sum(int(found.size) for found in offsets.values()))

    @classmethod
    def of_rows(cls, partition: NDArray[np.int32], offset: Offsets) -> Coverage:
        """Of parallel arrays in any order."""
        return cls.of({int(p): offset[partition == p] for p in np.unique(partition)})

    @classmethod
    def joined(cls, parts: Iterable[Coverage]) -> Coverage:
        """Of the rows of all the parts together."""
        whole = list(parts)
        partitions = sorted({p for part in whole for p in part.once})
        once: dict[int, Spans] = {}
        again: dict[int, Spans] = {}
        for p in partitions:
            held = [spans for c in whole for spans in (c.there(p), c.repeated(p))]
            once[p], again[p] = Spans.at_depth(held, 1), Spans.at_depth(held, 2)
        return cls(_held(once), _held(again), sum(part.rows for part in whole))

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset(self.once)

    def there(self, partition: int) -> Spans:
        return self.once.get(partition, Spans.none())

    def repeated(self, partition: int) -> Spans:
        return self.again.get(partition, Spans.none())

    def ranges(self) -> tuple[OffsetRange, ...]:
        """The offsets that are there, in order."""
        return tuple(r for p in sorted(self.once) for r in self.once[p].ranges(p))


def _held(found: Mapping[int, Spans]) -> dict[int, Spans]:
    return {partition: spans for partition, spans in sorted(found.items()) if spans}
