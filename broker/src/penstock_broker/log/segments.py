"""The segments of a log, oldest first: begun, read, given up and replaced.

The last one is the active one, which is appended to. What the disk refuses is raised as OSError,
damage in the log as BadBatchError: the log decides what that means for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from penstock_broker.log.files import File
from penstock_broker.log.isolation import aborted_transactions, has_aborted
from penstock_broker.log.lookup import Lookup, TimestampOffset
from penstock_broker.log.open_transactions import AbortedTransaction
from penstock_broker.log.reading import read_segments
from penstock_broker.log.recovery import LogPlace, keep_snapshot
from penstock_broker.log.segment import Segment
from penstock_broker.log.slice import LogSlice
from penstock_broker.log.swap import put_in_place


class SegmentList:
    """The segments of a log, in the order of offsets. Owned by its log."""

    __slots__ = ("_bases", "_place", "_removals", "_segments", "active")

    def __init__(self, place: LogPlace, segments: Iterable[Segment]) -> None:
        self._place = place
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in self._segments]
        self._removals = 0  # how often some have gone
        self.active = self._segments[-1]
        """The last one."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def all(self) -> Sequence[Segment]:
        """All of them; the list changes with the log."""
        return self._segments

    @property
    def first_offset(self) -> int:
        """The least offset that can be in them."""
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        """Bytes of their batches."""
        return sum(segment.size for segment in self._segments)

    # -- reading -----------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, limit: int, end_offset: int, min_one_batch: bool
    ) -> LogSlice:
        """As :func:`.reading.read_segments`."""
        return read_segments(
            self._segments,
            self._bases,
            offset,
            max_bytes,
            limit=limit,
            end_offset=end_offset,
            min_one_batch=min_one_batch,
        )

    def has_aborted(self, first: int) -> bool:
        """As :func:`.isolation.has_aborted`."""
        return has_aborted(self._segments, self._bases, first)

    def aborted_transactions(self, first: int, upper: int) -> list[AbortedTransaction]:
        """As :func:`.isolation.aborted_transactions`."""
        return aborted_transactions(self._segments, self._bases, first, upper)

    def looking(
        self, begin: Callable[[Sequence[Segment], int], Lookup], start_offset: Callable[[], int]
    ) -> Lookup:
        """A lookup in the segments as they are, from the log's start on; started over where some of
        them go meanwhile, or the start moves."""
        while True:
            removals, start = self._removals, start_offset()
            lookup = begin(tuple(self._segments), start)
            try:
                while (removals, start) == (self._removals, start_offset()):
                    yield next(lookup)
            except StopIteration as end:
                found: TimestampOffset | None = end.value
                return found

    # -- changes -----------------------------------------------------------------------------

    def roll(
        self, end_offset: int, snapshot: bytes, recovery_point: int, index_interval_bytes: int
    ) -> Segment:
        """Close the active segment and begin the next one at ``end_offset``, with a snapshot of
        the producers below it.

        OSError: the active segment stays the last one, here and in the directory. The next one's
        file is made last, because an empty one that stayed would cut the log there.
        """
        place, last = self._place, self.active
        segment = Segment(place.files, place.directory, end_offset, index_interval_bytes)
        keep_snapshot(place, end_offset, snapshot, self._bases[self._number_of(recovery_point) :])
        last.save_indexes(end_offset)
        segment.create()
        last.seal()
        self._segments.append(segment)
        self._bases.append(end_offset)
        self.active = segment
        return segment

    def take_below(self, start_offset: int) -> list[Path]:
        """Take out the segments that lie wholly below the log's start; the files to be removed."""
        count = bisect_right(self._bases, start_offset) - 1
        if count <= 0:
            return []
        gone = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        self._removals += 1
        for segment in gone:
            segment.close_files()
        return [path for segment in gone for path in segment.paths]

    def replace(self, old: Sequence[Segment], swap: Path, cleaned: Path) -> list[Path] | None:
        """Replace closed segments by a finished one (see ``swap.py``); the files to be
        removed. None, and nothing done, where the old ones are not all there any more."""
        first = bisect_right(self._bases, old[0].base_offset) - 1
        if self._segments[first : first + len(old)] != list(old):
            return None
        new, gone = put_in_place(self._place.files, old, swap, cleaned)
        self._segments[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]
        self._removals += 1
        return gone

    def close_files(self) -> None:
        """Close their files; the log is offline, so that they are not opened again."""
        for segment in self._segments:
            segment.close_files()

    # -- the disk ----------------------------------------------------------------------------

    def to_sync(self, recovery_point: int) -> tuple[File, ...]:
        """The files with batches past the recovery point."""
        first = self._number_of(recovery_point)
        return tuple(file for segment in self._segments[first:] for file in segment.to_sync())

    def _number_of(self, offset: int) -> int:
        """Which segment holds an offset."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def close(self, end_offset: int, snapshot: bytes) -> None:
        """Write what makes the next start cheap, and close the files."""
        keep_snapshot(self._place, end_offset, snapshot, self._bases[-1:])
        for segment in self._segments:
            segment.close(end_offset)
