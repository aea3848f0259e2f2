"""Finding records by their time, in a list of segments.

Producers' timestamps go up and down, so the answer is the first *record*, in offset order, that
is not older than the time asked for; it may be in the middle of a compressed batch whose other
records are older (KAFKA-16342). The time index leads to it within a few batches, unless a record
below the log's start has a later time than all that follow: then all batches from the start on
are read.

Lookups are generators: each function that they give reads files and touches nothing else, so that
it may run in another thread; when it has, the lookup continues. :func:`run` does all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from penstock_broker.log.files import ColdReadError, File, not_waiting
from penstock_broker.log.index_file import IndexDamagedError
from penstock_broker.log.scan import BadBatchError, ScannedBatch, scan
from penstock_broker.log.segment import Segment
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import NO_TIMESTAMP, RecordBatch

_AT_ONCE_BYTES = 4 << 20
"""Of a segment, walked through by one function."""
_COLD_LOOKS_MAX = 4
_NO_LIMIT = 2**63 - 1


Looked = TypeVar("Looked")


class TimestampOffset(NamedTuple):
    """A record by its time, and the leader epoch of its batch."""

    offset: int
    timestamp: int
    leader_epoch: int


Lookup = Generator[Callable[[], None], None, TimestampOffset | None]


def run(lookup: Lookup) -> TimestampOffset | None:
    """Do a lookup here and now."""
    try:
        while True:
            next(lookup)()
    except StopIteration as end:
        found: TimestampOffset | None = end.value
        return found


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, start_offset: int, limit_offset: int
) -> Lookup:
    """The first record in [start, limit) with at least this timestamp.

    A batch whose records cannot be read, because its compressed part is garbage, answers with its
    base offset: a consumer that begins there misses nothing. OSError, BadBatchError.
    """
    for segment in segments:
        if segment.base_offset >= limit_offset:
            return None
        newest = yield from _newest(segment)
        if newest < timestamp:
            continue
        walk = yield from _walk(segment, timestamp, start_offset, limit_offset)
        if walk.is_over:
            return walk.found
    return None


def first_with_latest(segments: Sequence[Segment], start_offset: int) -> Lookup:
    """The first record from ``start_offset`` on with the largest timestamp (KIP-734); None where
    no record has any. OSError, BadBatchError."""
    later = NO_TIMESTAMP
    for segment in segments[1:]:
        later = max(later, (yield from _newest(segment)))
    first = segments[0]
    latest = yield from _newest(first)
    if latest > later and first.base_offset < start_offset:
        # That may be the time of a record below the start.
        walk = yield from _walk(first, latest, start_offset, _NO_LIMIT)
        if walk.found is not None:
            return walk.found
        latest = walk.newest
    latest = max(latest, later)
    if latest == NO_TIMESTAMP:
        return None
    return (yield from first_at_or_after(segments, latest, start_offset, _NO_LIMIT))


def _newest(segment: Segment) -> Generator[Callable[[], None], None, int]:
    """The largest timestamp of a segment."""
    return (yield from _without_waiting(lambda: segment.timestamp_max))


def _without_waiting(look: Callable[[], Looked]) -> Generator[Callable[[], None], None, Looked]:
    """Look at indexes; pages that are not in memory are read in another thread first."""
    for _ in range(_COLD_LOOKS_MAX):
        try:
            with not_waiting():
                return look()
        except ColdReadError as cold:
            yield partial(_prefetch, cold)
    return look()  # memory is so short that what is read is evicted at once


def _prefetch(cold: ColdReadError) -> None:
    with suppress(OSError):  # the next look reports what is wrong
        cold.prefetch()


def _walk(
    segment: Segment, timestamp: int, start_offset: int, limit_offset: int
) -> Generator[Callable[[], None], None, _Walk]:
    """Go through a segment, from where its index leads to, until there is an answer."""
    file, is_second_try = segment.file, False
    while True:
        place = yield from _without_waiting(
            lambda: segment.place_for_timestamp(timestamp, start_offset)
        )
        walk = _Walk(
            file,
            place,
            segment.size,
            timestamp=timestamp,
            start=start_offset,
            limit=limit_offset,
        )
        while not (walk.is_over or walk.is_at_end) and walk.error is None:
            yield walk
        if walk.error is None:
            return walk
        if is_second_try or isinstance(walk.error, OSError):
            raise walk.error
        is_second_try = True
        segment.rebuild_indexes(IndexDamagedError(str(walk.error)))


class _Walk:
    """A walk over the headers of a segment's batches; each call continues with a piece of it."""

    def __init__(
        self,
        file: File,
        place: tuple[int, int],
        end: int,
        *,
        timestamp: int,
        start: int,
        limit: int,
    ) -> None:
        self.found: TimestampOffset | None = None
        self.newest = NO_TIMESTAMP
        """The largest timestamp of the records from ``start`` on that have been passed."""
        self.is_over = False
        """Whether there is an answer, though it may be that there is none below ``limit``."""
        self.error: OSError | BadBatchError | None = None
        self._position, self._expected = place
        self.is_at_end = self._position >= end
        if self.is_at_end and self._expected >= 0:
            self.error = BadBatchError(self._position, f"no batch {self._expected}")
        self._file = file
        self._end = end
        self._timestamp = timestamp
        self._start = start
        self._limit = limit

    def __call__(self) -> None:
        try:
            self._continue(self._position + _AT_ONCE_BYTES)
        except (OSError, BadBatchError) as error:
            self.error = error

    def _continue(self, until: int) -> None:
        for batch in scan(self._file, self._position, self._end, 0):
            if self._expected not in (-1, batch.base_offset):
                raise BadBatchError(batch.position, f"no batch {self._expected}")
            self._expected = -1
            self._position = batch.position + batch.size
            if batch.last_offset >= self._start and self._look_at(batch):
                self.is_over = True
                return
            if self._position >= until:
                break
        self.is_at_end = self._position >= self._end

    def _look_at(self, batch: ScannedBatch) -> bool:
        """Whether the walk ends with this batch."""
        if batch.base_offset >= self._limit:
            return True
        if batch.max_timestamp >= self._timestamp:
            found = self._in_batch(batch)
            if found is not None:
                self.found = found if found.offset < self._limit else None
                return True
        elif batch.base_offset >= self._start:
            self.newest = max(self.newest, batch.max_timestamp)
        else:
            self._in_batch(batch)
        return False

    def _in_batch(self, batch: ScannedBatch) -> TimestampOffset | None:
        """The first record that is late enough; notes the times of those before."""
        data = self._file.read(batch.position, batch.size)
        try:
            for offset, time in RecordBatch(memoryview(data)).timestamps():
                if offset < self._start:
                    continue
                if time >= self._timestamp:
                    return TimestampOffset(offset, time, batch.leader_epoch)
                self.newest = max(self.newest, time)
        except DecodeError:
            self.newest = max(self.newest, batch.max_timestamp)
            if batch.max_timestamp >= self._timestamp:
                offset = max(batch.base_offset, self._start)
                return TimestampOffset(offset, batch.max_timestamp, batch.leader_epoch)
        return None
