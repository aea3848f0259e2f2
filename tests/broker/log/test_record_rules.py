"""What a batch of a client is refused for, rule by rule, and at the edge of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock_broker.config import LogConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.record_rules import (
    LIGHT_BYTES,
    LIGHT_OUTPUT_BYTES,
    LIGHT_RECORDS,
    RECORD_ERRORS_MAX,
    RecordsRefusedError,
    latest_timestamp_ms,
    look_inside,
)
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import DECOMPRESSED_BYTES_MAX, Codec, TooLargeError, compress
from penstock_broker.wire.records import HEADER_BYTES, RecordBatch

NOW_MS = 1_700_000_000_000
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def batch_of(
    records: Sequence[NewRecord], codec: Codec = Codec.NONE, **options: Any
) -> RecordBatch:
    """A batch as it is in a request: with other bytes before and after it."""
    data = build_batch(records, codec=codec, **options)
    return RecordBatch(memoryview(bytearray(b"\xff" * 9 + data + b"\xff" * 9)), 9)


def timed(*times_ms: int, codec: Codec = Codec.NONE, **options: Any) -> RecordBatch:
    return batch_of([NewRecord(b"k", b"v", time) for time in times_ms], codec, **options)


def opaque(codec: Codec, payload: bytes) -> RecordBatch:
    """A batch of one record whose compressed bytes are these."""
    return timed(NOW_MS).with_payload(codec, payload)


def refusal(batch: RecordBatch, config: LogConfig | None = None, *args: int) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        look_inside(batch, config or LogConfig(), NOW_MS, *args)
    return caught.value


def named(error: KafkaError) -> list[tuple[int, str]]:
    assert isinstance(error, RecordsRefusedError)
    assert str(error) == "One or more records have been rejected."
    return error.records


# -- what the event loop takes upon itself


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_records_are_for_a_thread(more: int) -> None:
    batch = batch_of([NewRecord(None, None, NOW_MS)] * (LIGHT_RECORDS + more))
    assert look_inside(batch, LogConfig(), NOW_MS) is batch
    if more:
        with pytest.raises(TooLargeError):
            look_inside(batch, LogConfig(), NOW_MS, LIGHT_OUTPUT_BYTES)
    else:
        assert look_inside(batch, LogConfig(), NOW_MS, LIGHT_OUTPUT_BYTES) is batch


@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
@pytest.mark.parametrize("more", [0, 1])
def test_so_many_compressed_bytes_are_for_a_thread(codec: Codec, more: int) -> None:
    batch = opaque(codec, b"\xfe" * (LIGHT_BYTES - HEADER_BYTES + more))
    assert refusal(batch).code == ErrorCode.INVALID_RECORD
    if more:
        with pytest.raises(TooLargeError):
            look_inside(batch, LogConfig(), NOW_MS, LIGHT_OUTPUT_BYTES)
    else:
        assert refusal(batch, None, LIGHT_OUTPUT_BYTES).code == ErrorCode.INVALID_RECORD


def test_recompressing_much_is_for_a_thread() -> None:
    batch = batch_of([NewRecord(None, b"v" * LIGHT_BYTES, NOW_MS)])
    assert look_inside(batch, LogConfig(), NOW_MS, LIGHT_OUTPUT_BYTES) is batch
    config = LogConfig(compression_type="zstd")
    with pytest.raises(TooLargeError):
        look_inside(batch, config, NOW_MS, LIGHT_OUTPUT_BYTES)
    assert look_inside(batch, config, NOW_MS).codec is Codec.ZSTD


@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
def test_what_clients_send_by_default_is_opened_at_once(codec: Codec) -> None:
    """16 KiB of records, as much as batch.size."""
    batch = batch_of([NewRecord(None, b"v" * 1_000, NOW_MS)] * 16, codec)
    assert look_inside(batch, LogConfig(), NOW_MS, LIGHT_OUTPUT_BYTES) is batch


@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
def test_much_output_is_for_a_thread(codec: Codec) -> None:
    batch = batch_of([NewRecord(None, b"v" * LIGHT_OUTPUT_BYTES, NOW_MS)], codec)
    with pytest.raises(TooLargeError):
        look_inside(batch, LogConfig(), NOW_MS, LIGHT_OUTPUT_BYTES)
    assert look_inside(batch, LogConfig(), NOW_MS) is batch


# -- compressed records


@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
def test_what_is_compressed_is_stored_as_it_came(codec: Codec) -> None:
    batch = timed(NOW_MS, NOW_MS, codec=codec)
    assert look_inside(batch, LogConfig(), NOW_MS) is batch


@pytest.mark.parametrize("codec", COMPRESSED, ids=str)
def test_what_cannot_be_opened_says_so(codec: Codec) -> None:
    error = refusal(opaque(codec, b"\xfe" * 40))
    assert error.code == ErrorCode.INVALID_RECORD
    assert str(error).startswith("The records cannot be read: ")


def test_what_opens_to_too_much_says_how_much() -> None:
    bomb = opaque(Codec.SNAPPY, compress(Codec.SNAPPY, b"\2" * (DECOMPRESSED_BYTES_MAX + 1)))
    error = refusal(bomb)
    assert error.code == ErrorCode.INVALID_RECORD
    assert str(DECOMPRESSED_BYTES_MAX) in str(error)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=str)
@pytest.mark.parametrize("first", [0, 1, 3])
def test_a_bomb_is_known_by_its_first_byte(codec: Codec, first: int) -> None:
    """The first length of a record is neither 0 nor odd, which is negative."""
    bomb = compress(codec, bytes([first]) + b"\2" * DECOMPRESSED_BYTES_MAX)
    error = refusal(opaque(codec, bomb))
    assert error.code == ErrorCode.INVALID_RECORD
    assert named(error) == [(0, "Its length is not valid.")]


# -- records that are wrong


@pytest.mark.parametrize("codec", [Codec.NONE, *COMPRESSED], ids=str)
def test_the_record_that_is_wrong_is_named(codec: Codec) -> None:
    plain = bytearray(build_batch([NewRecord(None, b"abc", NOW_MS)] * 20))
    size = (len(plain) - HEADER_BYTES) // 20
    plain[HEADER_BYTES + 7 * size + 3] = 0  # the offset delta of record 7
    payload = compress(codec, bytes(plain[HEADER_BYTES:]))
    error = refusal(RecordBatch(memoryview(plain)).with_payload(codec, payload))
    assert error.code == ErrorCode.INVALID_RECORD
    assert named(error) == [(7, "Its offset does not follow.")]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4], ids=str)
def test_compacted_topics_want_keys(codec: Codec) -> None:
    keys = [b"a", None, b"", b"b", None]
    batch = batch_of([NewRecord(key, b"value", NOW_MS) for key in keys], codec)
    assert look_inside(batch, LogConfig(), NOW_MS) is batch
    error = refusal(batch, LogConfig(cleanup_policy=("delete", "compact")))
    assert error.code == ErrorCode.INVALID_RECORD
    problem = "Compacted topic cannot accept message without key."
    assert named(error) == [(1, problem), (4, problem)]


def test_an_answer_names_so_many_records() -> None:
    """Of those without a key, and of those that are too late."""
    for key, config in ((None, LogConfig(cleanup_policy=("compact",))), (b"k", LogConfig())):
        late = [NewRecord(key, None, NOW_MS + 10**10)] * (RECORD_ERRORS_MAX + 1)
        assert len(named(refusal(batch_of(late), config))) == RECORD_ERRORS_MAX == 1_000


# -- timestamps


def test_producers_do_not_stamp_as_the_broker_does() -> None:
    batch = timed(NOW_MS)
    batch.stamp_log_append_time(NOW_MS)
    error = refusal(batch)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert named(error) == [(0, "Producers may not set the type to LogAppendTime.")]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4], ids=str)
def test_timestamps_have_bounds(codec: Codec) -> None:
    """Both ends belong to what is accepted; a record without a timestamp is neither."""
    config = LogConfig(message_timestamp_before_max_ms=200, message_timestamp_after_max_ms=100)
    first, last = NOW_MS - 200, NOW_MS + 100
    batch = timed(first, -1, last, codec=codec)
    assert look_inside(batch, config, NOW_MS) is batch
    error = refusal(timed(first - 1, first, last, last + 1, codec=codec, base_offset=50), config)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert named(error) == [
        (place, f"Timestamp {time} of message with offset {50 + place} is out of range. "
         f"The timestamp should be within [{first}, {last}].")
        for place, time in ((0, first - 1), (3, last + 1))
    ]  # fmt: skip


def test_only_the_future_has_a_bound_unless_the_past_is_given_one() -> None:
    assert look_inside(timed(0, -1, 5), LogConfig(), NOW_MS)
    late = NOW_MS + LogConfig().message_timestamp_after_max_ms
    assert look_inside(timed(late), LogConfig(), NOW_MS)
    assert [place for place, _ in named(refusal(timed(0, late + 1)))] == [1]


def test_the_past_may_have_a_bound_alone() -> None:
    config = LogConfig(message_timestamp_before_max_ms=200)
    error = refusal(timed(NOW_MS, NOW_MS - 200, NOW_MS - 201), config)
    assert [place for place, _ in named(error)] == [2]


def test_a_header_is_believed_that_claims_less() -> None:
    """Else the records of every batch were to be read."""
    latest_ms = NOW_MS + LogConfig().message_timestamp_after_max_ms
    for claimed_ms in (NOW_MS, latest_ms):
        batch = timed(latest_ms + 1)
        batch.max_timestamp = claimed_ms
        assert look_inside(batch, LogConfig(), NOW_MS) is batch


def test_a_topic_that_stamps_lets_every_time_pass() -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1)
    assert look_inside(timed(5, NOW_MS + 10**12), config, NOW_MS)


def test_a_header_that_claims_the_future_is_refused() -> None:
    """Lookups and retention believe it."""
    batch = timed(NOW_MS)
    batch.max_timestamp = NOW_MS + 10**12
    error = refusal(batch)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert named(error) == [(0, f"The batch's largest timestamp is {NOW_MS + 10**12}.")]


@pytest.mark.parametrize(
    ("config", "latest"),
    [
        (LogConfig(message_timestamp_after_max_ms=70), NOW_MS + 70),
        (LogConfig(message_timestamp_before_max_ms=70), -2),
        (LogConfig(message_timestamp_type="LogAppendTime"), -2),
    ],
    ids=["future", "past", "stamped"],
)
def test_the_latest_time_that_needs_no_look(config: LogConfig, latest: int) -> None:
    assert latest_timestamp_ms(config, NOW_MS) == latest


# -- recompressing, and sizes


@pytest.mark.parametrize("target", [Codec.NONE, *COMPRESSED], ids=str)
@pytest.mark.parametrize("codec", [Codec.NONE, *COMPRESSED], ids=str)
def test_a_topic_may_recompress(codec: Codec, target: Codec) -> None:
    name = "uncompressed" if target is Codec.NONE else target.name.lower()
    records = [NewRecord(b"key %d" % n, b"value %d " % n * 20, NOW_MS + n) for n in range(100)]
    batch = batch_of(records, codec)
    found = look_inside(batch, LogConfig(compression_type=name), NOW_MS)
    assert (found is batch) == (codec is target)
    assert found.codec is target
    assert found.crc_is_valid()
    assert list(found.records()) == list(batch.records())


@pytest.mark.parametrize(("target", "high"), [("gzip", 9), ("zstd", 19)])
def test_recompressing_takes_the_effort_asked_for(target: str, high: int) -> None:
    """KIP-390."""
    value = b" ".join(b"%x" % (n * n) for n in range(9_000))
    batch = batch_of([NewRecord(None, value, NOW_MS)])

    def compressed(level: int) -> bytes:
        settings: dict[str, Any] = {f"compression_{target}_level": level}
        config = LogConfig(compression_type=target, **settings)
        return bytes(look_inside(batch, config, NOW_MS).view[HEADER_BYTES:])

    payload = bytes(batch.view[HEADER_BYTES:])
    for level in (1, high):
        assert compressed(level) == compress(Codec[target.upper()], payload, level)
    assert len(compressed(high)) < len(compressed(1))


def test_the_size_counts_after_recompressing() -> None:
    """Pitfall 19: and a batch of the largest size is accepted."""
    batch = batch_of([NewRecord(None, b"x" * 20_000, NOW_MS)], Codec.ZSTD)
    plain = len(build_batch([NewRecord(None, b"x" * 20_000, NOW_MS)]))
    config = LogConfig(compression_type="uncompressed", max_message_bytes=plain)
    assert look_inside(batch, config, NOW_MS).size == plain
    smaller = LogConfig(compression_type="uncompressed", max_message_bytes=plain - 1)
    error = refusal(batch, smaller)
    assert error.code == ErrorCode.MESSAGE_TOO_LARGE
    assert f"has {plain} bytes as none" in str(error)


def test_a_batch_fits_a_segment() -> None:
    batch = timed(NOW_MS)
    assert look_inside(batch, LogConfig(segment_bytes=batch.size), NOW_MS) is batch
    error = refusal(batch, LogConfig(segment_bytes=batch.size - 1))
    assert error.code == ErrorCode.RECORD_LIST_TOO_LARGE
    size = batch.size
    assert str(error) == f"The record batch has {size} bytes, a segment {size - 1}."
