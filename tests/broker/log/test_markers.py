"""Transaction markers: Kafka's bytes, and control batches that are none."""

from __future__ import annotations

import struct

import pytest

from penstock_broker.log.markers import Marker, build_marker, read_marker
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch


def control(key: bytes | None, value: bytes | None) -> RecordBatch:
    return RecordBatch(memoryview(build_batch([NewRecord(key, value, 5)], control=True)))


KEY, VALUE = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 9)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_a_control_batch_of_its_producer(is_commit: bool) -> None:
    marker = Marker(is_commit, 9)
    batch = RecordBatch(memoryview(build_marker(7, 3, marker, 1_234)))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, -1)
    assert batch.is_control
    assert batch.is_transactional
    (record,) = batch.records()
    assert (record.key, record.value) == (struct.pack(">hh", 0, is_commit), VALUE)
    assert record.timestamp == 1_234
    assert read_marker(batch) == marker


def test_a_marker_may_say_more() -> None:
    assert read_marker(control(KEY + b"more", VALUE + b"more")) == Marker(True, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE),
        (KEY, None),
        (KEY[:-1], VALUE),
        (KEY, VALUE[:-1]),
        (struct.pack(">hh", 0, 2), VALUE),
        (struct.pack(">hh", 0, -1), VALUE),
        (struct.pack(">hh", 0, 5), VALUE),
    ],
)
def test_other_control_batches_are_no_markers(key: bytes | None, value: bytes | None) -> None:
    assert read_marker(control(key, value)) is None


def test_a_marker_that_compaction_has_emptied_says_nothing() -> None:
    assert read_marker(RecordBatch(memoryview(build_batch([], control=True)))) is None


def test_records_that_cannot_be_read_are_no_marker() -> None:
    data = build_batch([NewRecord(KEY, VALUE, 5)], control=True)
    data[61] = 0xFF  # the record's length
    assert read_marker(RecordBatch(memoryview(data))) is None
