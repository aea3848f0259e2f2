"""Finding records by their time, in a list of segments.

Producers' timestamps go up and down, so the answer is the first *record*, in offset order, that
is not older than the time asked for; it may lie in the middle of a compressed batch whose other
records are older (KAFKA-16342).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock_broker.log.scan import ScannedBatch
from penstock_broker.log.segment import Segment
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import NO_TIMESTAMP, RecordBatch


class TimestampOffset(NamedTuple):
    """A record by its time, and the leader epoch of its batch."""

    offset: int
    timestamp: int
    leader_epoch: int


def read_batch(segment: Segment, batch: ScannedBatch) -> RecordBatch:
    """A whole batch that a scan has found."""
    return RecordBatch(memoryview(segment.file.read(batch.position, batch.size)))


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, start_offset: int, limit_offset: int
) -> TimestampOffset | None:
    """The first record in [start, limit) with at least this timestamp.

    A batch whose records cannot be read, because its compressed part is garbage, answers with its
    base offset: a consumer that begins there misses nothing.
    """
    for segment in segments:
        if segment.timestamp_max < timestamp:
            continue
        for batch in segment.batches_for_timestamp(timestamp):
            if batch.last_offset < start_offset:
                continue
            if batch.base_offset >= limit_offset:
                return None
            found = _in_batch(segment, batch, timestamp, start_offset)
            if found is not None:
                return found if found.offset < limit_offset else None
    return None


def _in_batch(
    segment: Segment, batch: ScannedBatch, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    try:
        for offset, record_timestamp in read_batch(segment, batch).timestamps():
            if record_timestamp >= timestamp and offset >= start_offset:
                return TimestampOffset(offset, record_timestamp, batch.leader_epoch)
    except DecodeError:
        offset = max(batch.base_offset, start_offset)
        return TimestampOffset(offset, batch.max_timestamp, batch.leader_epoch)
    return None


def latest_timestamp(segments: Sequence[Segment], start_offset: int) -> int:
    """The largest timestamp of records from ``start_offset`` on; -1 where there are none."""
    latest = NO_TIMESTAMP
    for segment in segments:
        if segment.base_offset >= start_offset:
            latest = max(latest, segment.timestamp_max)
            continue
        for batch in segment.batches():
            if batch.base_offset >= start_offset:
                latest = max(latest, batch.max_timestamp)
            elif batch.last_offset >= start_offset:
                stamps = read_batch(segment, batch).timestamps()
                latest = max(latest, *(t for offset, t in stamps if offset >= start_offset))
    return latest
