"""The pure parts of compaction: groups of segments, what waits, aborted records, parsing."""

from __future__ import annotations

import pytest

from penstock_broker.log.compaction import (
    Aborted,
    SealedSegment,
    TransactionTracker,
    cleanable_end,
    group_segments,
)
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch

pytestmark = pytest.mark.asyncio


async def test_neighbours_are_merged_while_they_fit() -> None:
    segments = [SealedSegment(n * 10, n * 10 + 10, 40, 8, 0) for n in range(5)]
    groups = group_segments(segments, segment_bytes=100, index_bytes=1000)
    assert [[s.base_offset for s in group] for group in groups] == [[0, 10], [20, 30], [40]]
    by_index = group_segments(segments, segment_bytes=1000, index_bytes=24)
    assert [len(group) for group in by_index] == [3, 2]
    far = [SealedSegment(0, 2**31 - 10, 1, 1, 0), SealedSegment(2**31 - 10, 2**31 + 1, 1, 1, 0)]
    assert len(group_segments(far, segment_bytes=1000, index_bytes=1000)) == 2


async def test_undecided_and_young_segments_wait() -> None:
    segments = [SealedSegment(n * 10, n * 10 + 10, 40, 8, n * 100) for n in range(5)]
    assert cleanable_end(segments, 0, stable_offset=35, now_ms=0, min_lag_ms=0) == 30
    assert cleanable_end(segments, 10, stable_offset=99, now_ms=250, min_lag_ms=100) == 20
    assert cleanable_end(segments, 50, stable_offset=99, now_ms=250, min_lag_ms=100) == 50


async def test_aborted_records_go_and_markers_follow() -> None:
    tracker = TransactionTracker([Aborted(7, 10, 20)])
    data = RecordBatch(memoryview(_batch(10, producer_id=7, transactional=True)))
    other = RecordBatch(memoryview(_batch(11, producer_id=8, transactional=True)))
    assert tracker.is_aborted(data)
    assert not tracker.is_aborted(other)
    abort = RecordBatch(memoryview(_marker(20, 7, 0)))
    commit = RecordBatch(memoryview(_marker(21, 8, 1)))
    assert not tracker.ends_nothing(abort), "a record of it was there"
    assert not tracker.ends_nothing(commit)
    assert tracker.ends_nothing(abort)
    assert tracker.ends_nothing(commit)
    assert not tracker.is_aborted(data), "the producer's next transaction"


def _batch(offset: int, **options: object) -> bytearray:
    return build_batch([NewRecord(b"k", b"v", 5)], base_offset=offset, **options)  # type: ignore[arg-type]


def _marker(offset: int, producer_id: int, kind: int) -> bytearray:
    key = b"\0\0" + kind.to_bytes(2, "big")
    return build_batch(
        [NewRecord(key, b"\0\0\0\0\0\0", 5)],
        base_offset=offset,
        producer_id=producer_id,
        transactional=True,
        control=True,
    )
