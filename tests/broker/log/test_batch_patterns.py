"""A batch that is taken for like an accepted one is one that the rules accept, unchanged."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock_broker.config import LogConfig
from penstock_broker.errors import KafkaError
from penstock_broker.log.record_rules import latest_timestamp_ms, look_inside
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.batch_pattern import BatchPattern, pattern_of
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import (
    ATTRIBUTES_AT,
    CRC_AT,
    RecordBatch,
    validate_batch,
)

NOW_MS = 1_700_000_000_000
BEFORE, AFTER = b"before", b"\0\0\0"
KEYS = st.none() | st.binary(max_size=80)
VALUES = st.none() | st.binary(max_size=300)
COUNTS = st.sampled_from([1, 2, 3, 50, 64])


def framed(batch: bytes | bytearray, *, is_right: bool = True) -> bytearray:
    """The bytes of a batch among others, with a CRC that ``is_right``."""
    data = bytearray(batch)
    if is_right:
        struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[ATTRIBUTES_AT:])))
    return bytearray(b"frame" + BEFORE + data + AFTER + b"next")


AT = len(b"frame" + BEFORE)


def accept(data: bytearray, size: int, config: LogConfig) -> RecordBatch:
    """What the rules say of a batch. KafkaError."""
    view = memoryview(data)
    limit = config.max_message_bytes
    batch = validate_batch(view, AT, AT + size, max_message_bytes=limit)
    return look_inside(batch, config, NOW_MS)


def learned(batch: bytes | bytearray, config: LogConfig | None = None) -> BatchPattern | None:
    accepted = accept(framed(batch), len(batch), config or LogConfig())
    return pattern_of(accepted, BEFORE, AFTER)


def timestamp_of(pattern: BatchPattern, data: bytearray) -> int | None:
    return pattern.timestamp_of(memoryview(data), data, AT)


@given(KEYS, VALUES, COUNTS, st.data())
def test_batches_that_differ_in_keys_values_and_times_are_alike(
    key: bytes | None, value: bytes | None, count: int, data: st.DataObject
) -> None:
    pattern = learned(build_batch([NewRecord(key, value, 5)] * count))
    assert pattern is not None
    time_ms = data.draw(st.integers(-1, 2**63 - 1 - 63))
    delta_max = 0 if count == 1 else 63
    records = [
        NewRecord(
            key and data.draw(st.binary(min_size=len(key), max_size=len(key))),
            value and data.draw(st.binary(min_size=len(value), max_size=len(value))),
            time_ms + (data.draw(st.integers(0, delta_max)) if number else 0),
        )
        for number in range(count)
    ]
    batch = build_batch(records)
    assert timestamp_of(pattern, framed(batch)) == max(record.timestamp for record in records)
    assert pattern.size == len(batch)
    assert pattern.last_offset_delta == count - 1


@given(KEYS, VALUES, COUNTS, st.data(), st.booleans(), st.booleans())
def test_what_is_like_an_accepted_batch_is_accepted(
    key: bytes | None,
    value: bytes | None,
    count: int,
    data: st.DataObject,
    is_compact: bool,
    is_right: bool,
) -> None:
    """Bytes are changed anywhere: in the header, the structure of the records, and around it."""
    policy = ("compact",) if is_compact and key is not None else ("delete",)
    config = LogConfig(cleanup_policy=policy)
    original = build_batch([NewRecord(key, value, 5)] * count)
    pattern = learned(original, config)
    assert pattern is not None
    changed = bytearray(original)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    frame = framed(changed, is_right=is_right)
    found = timestamp_of(pattern, frame)
    assume(found is not None and found <= latest_timestamp_ms(config, NOW_MS))
    batch = accept(frame, len(changed), config)
    assert batch.max_timestamp == found
    assert bytes(batch.view) == bytes(frame[AT : AT + len(changed)])


@pytest.mark.parametrize("at", range(-len(BEFORE), 101 + len(AFTER)))
def test_no_other_byte_may_differ(at: int) -> None:
    """Every byte but those of timestamps, key and value; what follows the batch as well."""
    original = build_batch([NewRecord(b"key", b"value" * 6, 5)])
    pattern = learned(original)
    assert pattern is not None
    frame = framed(original)
    assert timestamp_of(pattern, frame) == 5
    assert len(original) == 101
    frame[AT + at] ^= 1
    crc = crc32c(bytes(frame[AT + ATTRIBUTES_AT : AT + len(original)]))
    struct.pack_into(">I", frame, AT + CRC_AT, crc)
    times, key, value = range(27, 43), range(66, 69), range(70, 100)
    may_differ = at in times or at in key or at in value or at in range(CRC_AT, ATTRIBUTES_AT)
    assert (timestamp_of(pattern, frame) is not None) == may_differ


@pytest.mark.parametrize("at", range(61 + 3 * 40))
def test_no_other_byte_of_several_records_may_differ(at: int) -> None:
    """Every byte but those of timestamps, keys and values; the times may need one byte only."""
    original = build_batch([NewRecord(b"key", b"value" * 6, 5)] * 3)
    pattern = learned(original)
    assert pattern is not None
    frame = framed(original)
    assert timestamp_of(pattern, frame) == 5
    assert len(original) == 61 + 3 * 40
    in_record = (at - 61) % 40 if at >= 61 else -1
    for bit in (1, 0x80):
        changed = bytearray(frame)
        changed[AT + at] ^= bit
        crc = crc32c(bytes(changed[AT + ATTRIBUTES_AT : AT + len(original)]))
        struct.pack_into(">I", changed, AT + CRC_AT, crc)
        may_differ = (
            at in range(CRC_AT, ATTRIBUTES_AT)
            or at in range(27, 43)
            or in_record in range(5, 8)
            or in_record in range(9, 39)
            or in_record == 1  # attributes, of which none are defined
            or (in_record == 2 and bit == 1)
        )
        assert (timestamp_of(pattern, changed) is not None) == may_differ, (at, bit)


def test_a_wrong_crc_is_not_alike() -> None:
    original = build_batch([NewRecord(b"key", b"value", 5)])
    pattern = learned(original)
    assert pattern is not None
    frame = framed(original)
    frame[AT + len(original) - 3] ^= 1
    assert timestamp_of(pattern, frame) is None


@pytest.mark.parametrize(
    "options",
    [
        {"codec": Codec.LZ4},
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0},
    ],
    ids=["compressed", "of a producer", "of the first producer"],
)
def test_what_is_to_be_looked_at_each_time_has_no_pattern(options: dict[str, Any]) -> None:
    assert learned(build_batch([NewRecord(None, b"v" * 50, 5)], **options)) is None
    other = [NewRecord(None, b"v", 5), NewRecord(None, b"other", 5)]
    assert learned(build_batch(other)) is None
    late = [NewRecord(None, b"v", 5), NewRecord(None, b"v", 5_000)]
    assert learned(build_batch(late)) is None
    assert learned(build_batch([NewRecord(None, b"v", 5)] * 65)) is None
    assert learned(build_batch([NewRecord(None, b"v", 5, [("h", b"1")])])) is None
    assert learned(build_batch([NewRecord(None, b"v", 5, [("h", b"1")])] * 2)) is None


def test_the_latest_time_is_where_the_rules_begin_to_refuse() -> None:
    config = LogConfig(message_timestamp_after_max_ms=1_000)
    latest_ms = latest_timestamp_ms(config, NOW_MS)
    for time_ms, is_accepted in [(latest_ms, True), (latest_ms + 1, False)]:
        batch = build_batch([NewRecord(None, b"v", time_ms)])
        if is_accepted:
            accept(framed(batch), len(batch), config)
        else:
            with pytest.raises(KafkaError):
                accept(framed(batch), len(batch), config)
    for other in (
        LogConfig(message_timestamp_before_max_ms=10**12),
        LogConfig(message_timestamp_type="LogAppendTime"),
    ):
        assert latest_timestamp_ms(other, NOW_MS) < -1, "each is to be looked at"
