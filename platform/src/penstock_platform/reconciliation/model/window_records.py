"""A window's records as equation 2 looks at them: one by one, or as confirmed claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock_client.audit import OFFSET_MAX
from penstock_platform.ranges import OffsetRange, Offsets, Spans, ranges_of
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.reconciliation.model.confirmed import Confirmed
from penstock_platform.windows.model.window import Window


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """``records``: by partition those that are looked at one by one, and of those before the window
    the ones that claims need; in offset order. ``confirmed``: the others."""

    window: Window
    records: Mapping[int, StoredRecords]
    confirmed: Confirmed

    @classmethod
    def of(
        cls, window: Window, stored: Mapping[int, StoredRecords], confirmed: Confirmed
    ) -> WindowRecords:
        """Of records in any order, each offset once."""
        return cls(window, {p: found.in_order() for p, found in stored.items()}, confirmed)

    def partition(self, partition: int) -> StoredRecords:
        return self.records.get(partition, StoredRecords.none())

    def by_incarnation(self, partition: int) -> dict[int, StoredRecords]:
        """The stamped records of a partition by incarnation, each in offset order."""
        stamped = only_stamped(self.partition(partition))
        if not len(stamped):
            return {}
        order = np.argsort(stamped.incarnation, kind="stable")
        values, first = np.unique(stamped.incarnation[order], return_index=True)
        groups = np.split(order, first[1:])
        return {int(v): stamped.take(group) for v, group in zip(values, groups, strict=True)}

    def in_window(self) -> Iterator[tuple[OffsetRange, StoredRecords]]:
        """The records of each of the window's ranges."""
        for r in self.window.ranges:
            yield r, within(self.partition(r.partition), r)

    def unstamped(self) -> tuple[OffsetRange, ...]:
        """The window's offsets whose records have no audit header."""
        return (
            *self._clipped(self.confirmed.unstamped),
            *(
                found
                for r, records in self.in_window()
                for found in ranges_of(r.partition, records.offset[~_stamped(records)])
            ),
        )

    def unread(self) -> tuple[OffsetRange, ...]:
        """The window's offsets whose records are too many to be looked at."""
        return self._clipped(self.confirmed.unread)

    def count(self) -> int:
        """How many offsets of the window hold a record."""
        total = 0
        for r, records in self.in_window():
            known = [*self.confirmed.every(r.partition), Spans.of_values(records.offset)]
            total += Spans.at_depth(known, 1).clipped(r.start, r.end).count
        return total

    def sequences(self, incarnation: int) -> Offsets:
        """Sequences of an incarnation's records in the window: of those looked at all, of the
        confirmed ones the least and the greatest."""
        found = [np.array(self.confirmed.sequences.get(incarnation, ()), np.int64)]
        for _, records in self.in_window():
            found.append(records.sequence[records.incarnation == incarnation])
        return np.concatenate(found)

    def _clipped(self, spans: Mapping[int, Spans]) -> tuple[OffsetRange, ...]:
        return tuple(
            found
            for r in self.window.ranges
            if r.partition in spans
            for found in spans[r.partition].clipped(r.start, r.end).ranges(r.partition)
        )


def within(records: StoredRecords, r: OffsetRange) -> StoredRecords:
    """Those of a range; the records are in offset order."""
    low, high = np.searchsorted(records.offset, (r.start, r.end))
    if low == 0 and high == len(records):
        return records
    return records.take(np.arange(low, high))


def only_stamped(records: StoredRecords) -> StoredRecords:
    """Those with an audit header."""
    return records.take(_stamped(records))


def _stamped(records: StoredRecords) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = (
        (records.incarnation > 0) & (records.sequence >= 0) & (records.sequence < OFFSET_MAX)
    )
    return mask
