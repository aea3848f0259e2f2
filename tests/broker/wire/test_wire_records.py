"""Record batches: ours read by others, others' read by ours, and everything that can be wrong."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.batch_builder import NewRecord, build_batch, write_varint
from penstock_broker.wire.compression import Codec, compress, decompress
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.record_parsing import (
    has_value,
    key_of,
    parse_records,
    value_and_headers,
)
from penstock_broker.wire.records import (
    HEADER_BYTES,
    PLACE,
    BatchHeader,
    RecordBatch,
    iter_batches,
    validate_batches,
)

QUICK = settings(
    max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
NULLABLE = st.one_of(st.none(), st.binary(max_size=40), st.just(b"z" * 3000))
HEADERS = st.lists(
    st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3
)
RECORDS = st.lists(
    st.builds(
        NewRecord,
        key=NULLABLE,
        value=NULLABLE,
        timestamp=st.integers(0, 2**42),
        headers=HEADERS,
    ),
    min_size=1,
    max_size=6,
)


def some_records(count: int = 10) -> list[NewRecord]:
    return [
        NewRecord(b"key-%d" % n if n % 2 else None, b"v" * (n * 20), 1000 + 7 * n)
        for n in range(count)
    ]


def plain(records: Any) -> list[tuple[Any, ...]]:
    return [(r.timestamp, r.key, r.value, list(r.headers)) for r in records]


def batch_of(data: bytearray | bytes) -> RecordBatch:
    return RecordBatch(memoryview(bytearray(data)))


@QUICK
@given(RECORDS, st.sampled_from(list(Codec)), st.integers(0, 2**40))
def test_ours_read_by_ours_and_aiokafka(
    records: list[NewRecord], codec: Codec, base_offset: int
) -> None:
    raw = build_batch(
        records, base_offset=base_offset, codec=codec, producer_id=9, producer_epoch=2,
        base_sequence=5,
    )  # fmt: skip
    batch = batch_of(raw)
    assert batch.crc_is_valid()
    assert batch.codec is codec
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 2, 5)
    read = list(batch.records())
    assert plain(read) == plain(records)
    assert [r.offset for r in read] == list(range(base_offset, batch.next_offset))
    assert batch.max_timestamp == max(r.timestamp for r in records)
    theirs = AiokafkaBatch(bytes(raw))
    assert theirs.validate_crc()
    assert plain(theirs) == plain(records)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_ours_read_by_kafka_python_and_the_reverse(codec: Codec) -> None:
    records = some_records()
    theirs = MemoryRecords(bytes(build_batch(records, codec=codec))).next_batch()
    assert theirs.validate_crc()
    assert plain(theirs) == plain(records)

    builder = MemoryRecordsBuilder(magic=2, compression_type=int(codec), batch_size=1 << 20)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, [("h", b"1")])
    builder.close()
    (batch,) = validate_batches(memoryview(bytearray(builder.buffer())), max_message_bytes=1 << 20)
    assert [(r.key, r.value, r.headers) for r in batch.records()] == [
        (r.key, r.value, [("h", b"1")]) for r in records
    ]


@QUICK
@given(RECORDS, st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_records_are_parsed_as_kafka_python_parses_them(
    records: list[NewRecord], codec: Codec
) -> None:
    raw = build_batch(records, codec=codec)
    batch = batch_of(raw)
    theirs = list(MemoryRecords(bytes(raw)).next_batch())
    assert plain(batch.records()) == plain(theirs) == plain(records)
    assert [time for _, time in batch.timestamps()] == [r.timestamp for r in theirs]
    payload = decompress(codec, batch.view[HEADER_BYTES:])
    parsed = list(parse_records(payload, batch.records_count))
    assert [key_of(payload, each) for each in parsed] == [r.key for r in theirs]
    assert [value_and_headers(payload, each) for each in parsed] == [
        (r.value, list(r.headers)) for r in theirs
    ]
    assert [has_value(payload, each) for each in parsed] == [r.value is not None for r in theirs]
    assert [each.offset_delta for each in parsed] == [r.offset for r in theirs]
    assert payload == b"".join(payload[each.start : each.end] for each in parsed)
    shifted = list(parse_records(b"??" + payload + b"?", len(parsed), 2, 2 + len(payload)))
    assert [each.start - 2 for each in shifted] == [each.start for each in parsed]


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafkas_read_by_ours(codec: Codec) -> None:
    builder = AiokafkaBuilder(
        magic=2, compression_type=int(codec), is_transactional=0, producer_id=3,
        producer_epoch=0, base_sequence=0, batch_size=1 << 20,
    )  # fmt: skip
    records = some_records()
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp, record.key, record.value, [("h", None)])
    (batch,) = validate_batches(memoryview(bytearray(builder.build())), max_message_bytes=1 << 20)
    assert batch.last_sequence == 9
    assert plain(batch.records()) == [(*row[:3], [("h", None)]) for row in plain(records)]


def test_patching_leaves_the_crc_alone() -> None:
    batch = batch_of(build_batch(some_records()))
    PLACE.pack_into(batch.view, 0, 2**40, batch.batch_length, 17)
    assert batch.crc_is_valid()
    again = RecordBatch(batch.view)
    assert (again.base_offset, again.partition_leader_epoch) == (2**40, 17)
    assert [r.offset for r in again.records()][-1] == 2**40 + 9 == again.last_offset


def test_log_append_time_is_every_records_time() -> None:
    batch = batch_of(build_batch(some_records()))
    batch.stamp_log_append_time(5_000)
    again = RecordBatch(batch.view)
    assert again.crc_is_valid()
    assert again.is_log_append_time
    assert {r.timestamp for r in again.records()} == {5_000}
    assert again.first_at_or_after(5_000) == (0, 5_000)
    assert AiokafkaBatch(bytes(batch.view)).validate_crc()


@pytest.mark.parametrize("codec", list(Codec))
def test_search_by_time_inside_a_batch(codec: Codec) -> None:
    """The first in offset order, though times go up and down."""
    times = [50, 10, 70, 70, 20]
    raw = build_batch([NewRecord(None, b"", t) for t in times], codec=codec, base_offset=100)
    batch = batch_of(raw)
    assert batch.first_at_or_after(0) == (100, 50)
    assert batch.first_at_or_after(51) == (102, 70)
    assert batch.first_at_or_after(71) is None
    assert batch.offset_of_max_timestamp() == 102


def test_sequences_wrap() -> None:
    batch = batch_of(build_batch(some_records(3), producer_id=1, base_sequence=2**31 - 2))
    assert batch.last_sequence == 0
    assert batch_of(build_batch(some_records(3))).last_sequence == -1


def test_iterating_leaves_out_a_torn_tail() -> None:
    raw = bytes(build_batch(some_records()) + build_batch(some_records(), base_offset=10))
    half = len(raw) // 2
    for size in range(len(raw) + 1):
        found = [b.base_offset for b in iter_batches(memoryview(raw[:size]))]
        assert found == [0, 10][: size // half]


def rejected(raw: bytes, code: ErrorCode, **options: Any) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_batches(
            memoryview(bytearray(raw)), max_message_bytes=options.pop("limit", 1 << 20), **options
        )
    assert caught.value.code is code


def altered(position: int, layout: str, value: int, **options: Any) -> bytes:
    """A batch with one header field changed and a CRC that agrees."""
    raw = build_batch(some_records(), **options)
    struct.pack_into(layout, raw, position, value)
    batch = RecordBatch(memoryview(raw))
    stamped = batch.attributes
    batch.stamp_log_append_time(batch.max_timestamp)
    struct.pack_into(">h", raw, 21, stamped)
    from crc32c import crc32c  # noqa: PLC0415

    struct.pack_into(">I", raw, 17, crc32c(memoryview(raw)[21:]))
    return bytes(raw)


def test_every_flipped_bit_is_noticed() -> None:
    raw = build_batch(some_records(2))
    for position in [*range(8, 12), *range(16, len(raw))]:
        for bit in range(8):
            raw[position] ^= 1 << bit
            with pytest.raises(KafkaError):
                validate_batches(memoryview(raw), max_message_bytes=1 << 20)
            raw[position] ^= 1 << bit


def test_every_cut_is_noticed() -> None:
    raw = bytes(build_batch(some_records(2)))
    rejected(b"", ErrorCode.INVALID_RECORD)
    for size in range(1, len(raw)):
        rejected(raw[:size], ErrorCode.CORRUPT_MESSAGE)


def test_what_clients_may_not_send() -> None:
    good = bytes(build_batch(some_records()))
    rejected(good + good, ErrorCode.INVALID_RECORD)
    rejected(good, ErrorCode.MESSAGE_TOO_LARGE, limit=len(good) - 1)
    rejected(altered(16, ">b", 1), ErrorCode.INVALID_RECORD)
    rejected(altered(0, ">q", 5), ErrorCode.INVALID_RECORD)
    rejected(altered(57, ">i", 9), ErrorCode.INVALID_RECORD)
    rejected(altered(57, ">i", -1), ErrorCode.INVALID_RECORD)
    rejected(altered(23, ">i", 3), ErrorCode.INVALID_RECORD)
    rejected(altered(21, ">h", 0x20), ErrorCode.INVALID_RECORD)
    rejected(altered(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    rejected(altered(43, ">q", 7), ErrorCode.INVALID_RECORD)
    rejected(bytes(build_batch([])), ErrorCode.INVALID_RECORD)


def test_followers_take_what_leaders_send() -> None:
    raw = build_batch(some_records(), base_offset=50, control=True) + build_batch(
        some_records(), base_offset=60
    )
    batches = validate_batches(memoryview(raw), max_message_bytes=1 << 20, from_client=False)
    assert [batch.base_offset for batch in batches] == [50, 60]
    raw[70] ^= 1
    rejected(bytes(raw), ErrorCode.CORRUPT_MESSAGE, from_client=False)


def drain(raw: bytes | bytearray) -> None:
    """Read everything; DecodeError is fine, anything else fails the test."""
    try:
        batch = batch_of(raw)
        list(batch.records(1 << 20))
        list(batch.timestamps(1 << 20))
    except DecodeError:
        pass


@pytest.mark.parametrize("codec", list(Codec))
def test_broken_records_raise_decode_error_only(codec: Codec) -> None:
    """With the CRC unchecked, as a client could make it agree with anything."""
    raw = build_batch(
        [NewRecord(b"key", b"value" * 20, 1, [("h", b"1")]), NewRecord(None, None, 2)],
        codec=codec,
    )
    dice = random.Random(1)
    for position in range(HEADER_BYTES, len(raw)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            bad = bytearray(raw)
            bad[position] = value
            drain(bad)
        bad = raw[:position]
        struct.pack_into(">i", bad, 8, len(bad) - 12)
        drain(bad)
        bad = bytearray(raw)
        bad[position:] = dice.randbytes(len(raw) - position)
        drain(bad)


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 3, 2**31 - 1])
def test_a_wrong_count(count: int) -> None:
    raw = build_batch(some_records(2))
    struct.pack_into(">i", raw, 57, count)
    with pytest.raises(DecodeError):
        list(batch_of(raw).records())


@pytest.mark.parametrize(
    "body",
    [
        write_varint(2**40) + b"\0",
        write_varint(-5),
        b"\xff" * 12,
        write_varint(6) + b"\0\0\0" + write_varint(2**20) + b"\0\0",
        write_varint(7) + b"\0\0\0\x01\x01" + write_varint(2**30) + b"\0",
        write_varint(8) + b"\0\0\0\x01\x01\x02\x01\x01",
        write_varint(10) + b"\0\0\0\x01\x01\x02\x04\xc3\x28\x01",
        write_varint(15) + b"\0" + b"\xff" * 9 + b"\x7f" + b"\0\x01\x01\0",
    ],
)
def test_hostile_records(body: bytes) -> None:
    raw = build_batch([NewRecord(None, None, 0)])[:HEADER_BYTES] + body
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    with pytest.raises(DecodeError):
        list(batch_of(raw).records())


def gzip_bomb(size: int) -> bytes:
    return compress(Codec.GZIP, bytes(size))


def zstd_bomb(size: int) -> bytes:
    return bytes(cramjam.zstd.compress(bytes(size)))


def lz4_bomb(size: int) -> bytes:
    return compress(Codec.LZ4, bytes(size))


def snappy_bomb(size: int) -> bytes:
    return compress(Codec.SNAPPY, bytes(size))


BOMBS: list[tuple[Codec, Callable[[int], bytes]]] = [
    (Codec.GZIP, gzip_bomb),
    (Codec.ZSTD, zstd_bomb),
    (Codec.LZ4, lz4_bomb),
    (Codec.SNAPPY, snappy_bomb),
]


@pytest.mark.parametrize(("codec", "bomb"), BOMBS, ids=[c.name for c, _ in BOMBS])
def test_bombs_are_bounded(codec: Codec, bomb: Callable[[int], bytes]) -> None:
    data = bomb(50_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="more than 1000000"):
            decompress(codec, data, 1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
    assert decompress(codec, bomb(1_000_000), 1_000_000) == bytes(1_000_000)


def test_snappy_sizes_that_lie() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x10", b"\xff" * 10, b""):
        with pytest.raises(DecodeError):
            decompress(Codec.SNAPPY, claim + b"\0abc")
    framed = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for rest in (b"\0\0", b"\0\0\0\x09abc", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
        with pytest.raises(DecodeError):
            decompress(Codec.SNAPPY, framed + rest)


def test_a_snappy_size_beyond_its_best_ratio_is_not_believed() -> None:
    with pytest.raises(DecodeError, match="announced size"):
        decompress(Codec.SNAPPY, b"\x80\x80\x40" + b"\0" * 5)


def test_both_forms_of_snappy_are_read() -> None:
    data = random.Random(7).randbytes(50_000) + bytes(50_000)
    bare = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Codec.SNAPPY, bare) == data
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, data)) == data


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_codecs_round_trip_all_sizes(codec: Codec) -> None:
    dice = random.Random(3)
    for size in (0, 1, 100, 32_767, 32_768, 65_536, 65_537, 200_000):
        for data in (bytes(size), dice.randbytes(size)):
            assert decompress(codec, compress(codec, data)) == data


def test_gzip_cut_short() -> None:
    data = compress(Codec.GZIP, b"hello" * 100)
    with pytest.raises(DecodeError):
        decompress(Codec.GZIP, data[:-9])
    with pytest.raises(DecodeError):
        decompress(Codec.GZIP, zlib.compress(b"not gzip"))


def test_header_alone_is_enough_to_walk() -> None:
    raw = build_batch(some_records(), base_offset=30)
    header = BatchHeader(bytes(raw[:HEADER_BYTES]))
    assert (header.base_offset, header.next_offset, header.size_bytes) == (30, 40, len(raw))
    assert "offsets 30-39" in repr(header)
    with pytest.raises(DecodeError):
        BatchHeader(bytes(raw[: HEADER_BYTES - 1]))
