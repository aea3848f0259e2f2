"""Looking at a large window's records: claims by their sums, and what remains one by one.

Where producers work as they should, every claim but the newest is confirmed by its sums, and hardly
a record comes back from where the data is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from penstock_platform.ranges import OffsetRange, Offsets, Spans, subtract
from penstock_platform.reconciliation.model.claims import Producer, StoredRecords
from penstock_platform.reconciliation.model.confirmed import (
    ClaimSums,
    ClaimTable,
    Confirmed,
    confirm,
    confirmable,
)
from penstock_platform.windows.model.window import Window

# So many records are looked at one by one: 36 bytes each, and as much again while they are sorted.
REMAINING_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class Remaining:
    """Stored records that no confirmed claim has, by partition: those with an audit header, the
    offsets of those without, and offsets of more than ``REMAINING_MAX`` that were not read."""

    records: Mapping[int, StoredRecords] = field(default_factory=dict)
    unstamped: Mapping[int, Spans] = field(default_factory=dict)
    unread: Mapping[int, Spans] = field(default_factory=dict)


class ClaimReader(Protocol):
    """Computes where the data is; ``windows`` are those to look in, of one topic."""

    def sums(self, windows: Sequence[Window], claims: ClaimTable) -> ClaimSums:
        """What is stored at the offsets of each claim."""

    def remaining(self, windows: Sequence[Window], ranges: Sequence[OffsetRange]) -> Remaining:
        """The records at these offsets."""

    def with_sequences(
        self,
        windows: Sequence[Window],
        ranges: Sequence[OffsetRange],
        incarnation: Offsets,
        sequence: Offsets,
    ) -> Mapping[int, StoredRecords]:
        """The records at these offsets that have one of the sequences, given as parallel arrays."""


def look_at(
    reader: ClaimReader,
    windows: Sequence[Window],
    wanted: Sequence[OffsetRange],
    producers: Mapping[int, Producer],
) -> tuple[Mapping[int, StoredRecords], Confirmed]:
    """What equation 2 needs of the last of these windows: the records that have to be looked at,
    and what is confirmed of the others. ``wanted``: its offsets and those of the windows before
    that claims need."""
    claims = confirmable(windows[-1], producers)
    confirmed = confirm(claims, reader.sums(windows, claims))
    left = confirmed.remaining(wanted)
    found = reader.remaining(windows, left)
    again = _acknowledged(found.records, producers)
    records = dict(found.records)
    if len(again):
        elsewhere = subtract(wanted, left)
        originals = reader.with_sequences(windows, elsewhere, again.incarnation, again.sequence)
        for p, more in originals.items():
            records[p] = StoredRecords.joined([records.get(p, StoredRecords.none()), more])
    return records, replace(confirmed, unstamped=found.unstamped, unread=found.unread)


def _acknowledged(
    records: Mapping[int, StoredRecords], producers: Mapping[int, Producer]
) -> StoredRecords:
    """The records whose sequences were acknowledged: a confirmed claim may have them too."""
    parts = [StoredRecords.none()]
    for found in records.values():
        for incarnation in np.unique(found.incarnation):
            producer = producers.get(int(incarnation))
            if producer is not None:
                own = found.take(found.incarnation == incarnation)
                parts.append(own.take(producer.sequences.hold(own.sequence)))
    return StoredRecords.joined(parts)
