"""Reading a list of segments: where the bytes of a fetch lie."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from penstock_broker.log.segment import Segment
from penstock_broker.log.slice import EMPTY_SLICE, FileSlice, LogSlice


def read_segments(
    segments: Sequence[Segment],
    bases: Sequence[int],
    offset: int,
    max_bytes: int,
    *,
    limit: int,
    end_offset: int,
    min_one_batch: bool,
) -> LogSlice:
    """The bytes from the batch that holds ``offset`` on, below ``limit``, where a batch begins.

    ``bases`` are the base offsets of ``segments``, which end at ``end_offset``. An offset that
    compaction has removed is read from the next one that is there; empty where none is. OSError,
    BadBatchError.
    """
    number = bisect_right(bases, offset) - 1
    found = segments[number].locate(offset)
    while found is None:
        # Past the last batch of this segment, as at a hole that compaction left.
        number += 1
        if number == len(segments):
            return EMPTY_SLICE
        found = segments[number].locate(offset)
    position, batch_size, base_offset = found
    if base_offset >= limit:
        return EMPTY_SLICE
    if batch_size > max_bytes:
        if not min_one_batch:
            return EMPTY_SLICE
        max_bytes = batch_size
    segment = segments[number]
    available = _size_below(segment, limit, end_offset) - position
    size = min(max_bytes, available)
    part = FileSlice(segment.file, position, size)
    if size == max_bytes or number + 1 == len(segments):
        return LogSlice((part,), size, base_offset)
    parts = [part]
    for segment in segments[number + 1 :]:
        more = min(max_bytes - size, _size_below(segment, limit, end_offset))
        if more <= 0:
            break
        parts.append(FileSlice(segment.file, 0, more))
        size += more
    return LogSlice(tuple(parts), size, base_offset)


def _size_below(segment: Segment, limit: int, end_offset: int) -> int:
    """Bytes of a segment that lie below offset ``limit``, where a batch begins."""
    if limit >= end_offset:
        return segment.size
    if limit <= segment.base_offset:
        return 0
    found = segment.locate(limit)
    return segment.size if found is None else found[0]
