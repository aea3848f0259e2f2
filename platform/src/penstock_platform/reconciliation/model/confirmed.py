"""Claims that hold, found from sums alone: their records need not be looked at one by one.

A claim is confirmed where as many records lie at its offsets as it has, all of its producer, and
their digests add up to its own. What remains of a large window, the records that no confirmed claim
has, is judged record by record (``model/evidence.py``), with the same outcome as if every record
were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock_platform.ranges import OffsetRange, Offsets, Spans, by_partition
from penstock_platform.reconciliation.model.claims import Claims, Digests, Producer
from penstock_platform.windows.model.window import Window


@dataclass(frozen=True, slots=True)
class ClaimTable:
    """Claims as parallel arrays, sorted by partition and start, no two of them overlapping.
    ``window_start``: where the window begins in their partition."""

    partition: Offsets
    start: Offsets
    end: Offsets
    incarnation: Offsets
    digest: Digests
    window_start: Offsets

    def __len__(self) -> int:
        return int(self.start.size)

    @property
    def records(self) -> Offsets:
        """How many each claim has."""
        count: Offsets = self.end - self.start
        return count

    @classmethod
    def of_ranges(cls, ranges: Sequence[OffsetRange]) -> ClaimTable:
        """Ranges as claims without a producer."""
        columns = ([getattr(r, name) for r in ranges] for name in ("partition", "start", "end"))
        partition, start, end = (np.array(column, np.int64) for column in columns)
        zeros = np.zeros(partition.size, np.int64)
        return cls(partition, start, end, zeros, zeros.view(np.uint64), zeros)

    def pieces(self, bits: int) -> Offsets:
        """In how many pieces each claim falls when it is cut at multiples of 2^``bits``."""
        count: Offsets = ((self.end - 1) >> bits) - (self.start >> bits) + 1
        return count

    def take(self, chosen: NDArray[np.bool_] | slice) -> ClaimTable:
        return ClaimTable(
            self.partition[chosen],
            self.start[chosen],
            self.end[chosen],
            self.incarnation[chosen],
            self.digest[chosen],
            self.window_start[chosen],
        )


@dataclass(frozen=True, slots=True)
class ClaimSums:
    """What is stored at the offsets of each claim of a table, as arrays parallel to it.

    ``rows`` counts all rows, ``own`` those of the claim's incarnation; ``digest`` is the sum of the
    latter's. ``first`` and ``last`` are the least and the greatest of their sequences from the
    window's start on; -1 without any.
    """

    rows: Offsets
    own: Offsets
    digest: Digests
    first: Offsets
    last: Offsets

    @classmethod
    def none(cls, size: int) -> ClaimSums:
        zeros = np.zeros(size, np.int64)
        return cls(zeros, zeros.copy(), np.zeros(size, np.uint64), zeros - 1, zeros - 1)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What is known of a window's records beside those that are looked at one by one.

    ``claims``: confirmed ones, by incarnation and partition. ``sequences``: the least and the
    greatest sequence of their records in the window, by incarnation. ``unstamped``: the offsets of
    records without audit header, by partition. ``unread``: offsets of records that no confirmed
    claim has, and that are too many to be looked at.
    """

    claims: Mapping[tuple[int, int], Claims] = field(default_factory=dict)
    sequences: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    unstamped: Mapping[int, Spans] = field(default_factory=dict)
    unread: Mapping[int, Spans] = field(default_factory=dict)

    def of(self, incarnation: int, partition: int) -> Claims:
        return self.claims.get((incarnation, partition), Claims.none())

    def offsets(self, partition: int) -> Spans:
        """The offsets of all confirmed claims in a partition."""
        spans = [c.merged() for (_, p), c in self.claims.items() if p == partition]
        return Spans.at_depth(spans, 1)

    def every(self, partition: int) -> tuple[Spans, ...]:
        """All offsets of a partition that are known to hold a record."""
        others = (self.unstamped, self.unread)
        return (self.offsets(partition), *(o[partition] for o in others if partition in o))

    def remaining(self, wanted: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
        """The offsets that no confirmed claim has."""
        left: list[OffsetRange] = []
        for p, ranges in by_partition(wanted).items():
            left += Spans.of((r.start, r.end) for r in ranges).minus(self.offsets(p)).ranges(p)
        return tuple(left)


NOTHING_CONFIRMED = Confirmed()


def confirmable(window: Window, producers: Mapping[int, Producer]) -> ClaimTable:
    """The claims that may be judged by their sums alone: those that end in the window, overlap no
    other, and are of a producer that has acknowledged no sequence twice."""
    parts: list[tuple[NDArray[np.int64] | Digests, ...]] = []
    for r in window.ranges:
        columns = [
            (claims, np.full(len(claims), i, np.int64), np.full(len(claims), _honest(producer)))
            for i, producer in producers.items()
            if (claims := producer.claims.get(r.partition)) is not None
        ]
        if not columns:
            continue
        start, end, digest = (
            np.concatenate([getattr(claims, name) for claims, *_ in columns])
            for name in ("start", "end", "digest")
        )
        incarnation = np.concatenate([owner for _, owner, _ in columns])
        honest = np.concatenate([whole for *_, whole in columns])
        order = np.lexsort((end, start))
        apart = _apart(start[order], end[order])
        chosen = order[apart & honest[order] & (end[order] > r.start) & (end[order] <= r.end)]
        size = chosen.size
        parts.append(
            (
                np.full(size, r.partition, np.int64),
                start[chosen],
                end[chosen],
                incarnation[chosen],
                digest[chosen],
                np.full(size, r.start, np.int64),
            )
        )
    if not parts:
        nothing = np.empty(0, np.int64)
        return ClaimTable(nothing, nothing, nothing, nothing, np.empty(0, np.uint64), nothing)
    return ClaimTable(*(np.concatenate([part[n] for part in parts]) for n in range(6)))


def confirm(table: ClaimTable, sums: ClaimSums) -> Confirmed:
    """The claims of the table that hold."""
    whole = (sums.rows == table.records) & (sums.own == table.records)
    held = whole & (sums.digest == table.digest)
    claims: dict[tuple[int, int], Claims] = {}
    sequences: dict[int, tuple[int, int]] = {}
    for incarnation, partition, mine in _groups(table, held):
        claims[incarnation, partition] = Claims(
            table.start[mine], table.end[mine], table.digest[mine]
        )
        seen = mine[sums.first[mine] >= 0]
        if seen.size:
            first, last = sequences.get(incarnation, (2**63, -1))
            sequences[incarnation] = (
                min(first, int(sums.first[seen].min())),
                max(last, int(sums.last[seen].max())),
            )
    return Confirmed(claims, sequences)


def _groups(
    table: ClaimTable, held: NDArray[np.bool_]
) -> Iterator[tuple[int, int, NDArray[np.intp]]]:
    """The held claims of each incarnation and partition, by their places in the table."""
    places = np.flatnonzero(held)
    order = places[np.lexsort((table.partition[places], table.incarnation[places]))]
    incarnation, partition = table.incarnation[order], table.partition[order]
    changes = (np.diff(incarnation) != 0) | (np.diff(partition) != 0)
    for mine in np.split(order, np.flatnonzero(changes) + 1):
        if mine.size:
            yield int(table.incarnation[mine[0]]), int(table.partition[mine[0]]), np.sort(mine)


def _honest(producer: Producer) -> bool:
    """Whether its claims have as many records as it acknowledged sequences, each counted once."""
    claimed = sum(int((c.end - c.start).sum()) for c in producer.claims.values())
    return claimed == producer.sequences.count


def _apart(start: Offsets, end: Offsets) -> NDArray[np.bool_]:
    """Which of these ranges, sorted by start, share no offset with another."""
    apart = np.ones(start.size, bool)
    apart[1:] &= start[1:] >= np.maximum.accumulate(end)[:-1]
    apart[:-1] &= start[1:] >= end[:-1]
    return apart
