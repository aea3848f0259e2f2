"""What Produce finds inside the batches of clients, over a raw connection."""

from __future__ import annotations

import time

import pytest
from api_requests import BASE_MS, create, fetch, offsets, produce, records, topic_id_of
from crc32c import crc32c

from penstock_broker.errors import ErrorCode
from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock_broker.wire.records import RecordBatch, iter_batches

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
ALL = [Codec.NONE, *COMPRESSED]


def named(codecs: list[Codec]) -> list[str]:
    return [codec.name for codec in codecs]


def with_payload(batch: bytearray, codec: Codec, payload: bytes) -> bytearray:
    """The batch with other bytes for its records, and a right CRC."""
    return bytearray(RecordBatch(memoryview(batch)).with_payload(codec, payload).view)


def stored(client: RawClient, topic: str) -> list[RecordBatch]:
    data = fetch(client, topic, 0, partition_max_bytes=64 << 20, max_bytes=64 << 20).records
    return list(iter_batches(memoryview(bytearray(data or b""))))


def stored_nothing(client: RawClient, topic: str) -> bool:
    return offsets(client, topic, -1)[0].offset == 0


@pytest.mark.parametrize("codec", ALL, ids=named(ALL))
def test_pitfall_17_batches_are_stored_as_they_were_sent(
    raw: RawClient, topic: str, codec: Codec
) -> None:
    """Pitfall 17: offset and epoch are written in place, the rest stays, CRC included."""
    create(raw, topic)
    sent = records(*(b"value %d" % n for n in range(300)), codec=codec)
    for number in range(3):
        assert produce(raw, topic, sent).base_offset == 300 * number
    for number, batch in enumerate(stored(raw, topic)):
        assert batch.base_offset == 300 * number
        assert bytes(batch.view[16:]) == bytes(sent[16:])
        assert batch.crc_is_valid()


@pytest.mark.parametrize("codec", COMPRESSED, ids=named(COMPRESSED))
def test_garbage_with_a_right_crc_is_not_stored(raw: RawClient, topic: str, codec: Codec) -> None:
    """Pitfall 18: what the CRC cannot see, and every consumer would stumble over."""
    create(raw, topic)
    sent = records(b"one", b"two", codec=codec)
    whole = compress(codec, bytes(build_batch([NewRecord(None, b"x", BASE_MS)])[61:]))
    for payload in (
        b"",
        b"garbage" * 20,
        whole[: len(whole) // 2],
        whole,  # one record, not two
        whole + b"more",
        compress(codec, b""),
        compress(codec, b"\0" * 100),
    ):
        answer = produce(raw, topic, with_payload(sent, codec, payload))
        assert answer.error_code == ErrorCode.INVALID_RECORD, payload
        assert answer.base_offset == -1
    assert stored_nothing(raw, topic)


def test_pitfall_18_a_wrong_crc_is_corrupt(raw: RawClient, topic: str) -> None:
    """Pitfall 18: checked before anything is stored."""
    create(raw, topic)
    sent = records(b"value")
    sent[-3] ^= 1
    assert produce(raw, topic, sent).error_code == ErrorCode.CORRUPT_MESSAGE
    assert stored_nothing(raw, topic)


@pytest.mark.parametrize("codec", COMPRESSED, ids=named(COMPRESSED))
def test_bombs_are_refused_and_delay_no_other_client(
    broker: BrokerProcess, raw: RawClient, topic: str, codec: Codec
) -> None:
    create(raw, topic, max_message_bytes="20000000")
    bomb = compress(codec, bytes(DECOMPRESSED_BYTES_MAX + 1))
    batch = with_payload(records(b"x"), codec, bomb)
    data = PartitionProduceData(index=0, records=memoryview(batch))
    partition = TopicProduceData(name=topic, partition_data=[data])
    raw.send(ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[partition]), 9)
    with RawClient(broker.host, broker.port) as other:
        for _ in range(50):
            topic_id_of(other, topic)
    _, answer = raw.receive()
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
    assert stored_nothing(raw, topic)


@pytest.mark.parametrize("codec", ALL, ids=named(ALL))
def test_the_record_that_is_wrong_is_named(raw: RawClient, topic: str, codec: Codec) -> None:
    """Pitfall 22: v8 and later have a place for it (KIP-467)."""
    create(raw, topic)
    plain = bytearray(records(*(b"abc" for _ in range(20))))
    size = (len(plain) - 61) // 20
    plain[61 + 7 * size + 3] = 0  # the offset delta of record 7
    body = bytes(plain[61:])
    batch = with_payload(plain, codec, compress(codec, body))
    answer = produce(raw, topic, batch, version=8)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [e.batch_index for e in answer.record_errors] == [7]
    assert produce(raw, topic, batch, version=7).error_code == ErrorCode.INVALID_RECORD
    assert stored_nothing(raw, topic)


@pytest.mark.parametrize("codec", ALL, ids=named(ALL))
def test_compacted_topics_want_keys(raw: RawClient, topic: str, codec: Codec) -> None:
    """Pitfall 22: each record without a key is named, and its batch refused whole."""
    create(raw, topic, cleanup_policy="compact")
    keys = [b"a", None, b"", b"b", None]
    mixed = [NewRecord(key, b"value", BASE_MS) for key in keys]
    answer = produce(raw, topic, build_batch(mixed, codec=codec))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [e.batch_index for e in answer.record_errors] == [1, 4]
    assert stored_nothing(raw, topic)
    keyed = [NewRecord(b"k", value, BASE_MS) for value in (b"value", None)]
    assert produce(raw, topic, build_batch(keyed, codec=codec)).error_code == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4], ids=["NONE", "LZ4"])
def test_records_out_of_time_are_named(raw: RawClient, topic: str, codec: Codec) -> None:
    create(raw, topic, message_timestamp_before_max_ms="100000")
    now = int(time.time() * 1000)
    times = [now, now - 500_000, now, now + 10_000_000, -1]
    answer = produce(raw, topic, records(*(b"x" for _ in times), times=times, codec=codec))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [e.batch_index for e in answer.record_errors] == [1, 3]
    assert stored_nothing(raw, topic)
    assert produce(raw, topic, records(b"x", times=[now], codec=codec)).error_code == 0


def test_producers_do_not_stamp_as_the_broker_does(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    batch = records(b"x")
    RecordBatch(memoryview(batch)).stamp_log_append_time(BASE_MS)
    assert produce(raw, topic, batch).error_code == ErrorCode.INVALID_TIMESTAMP


def test_pitfall_22_one_bad_partition_is_its_own_matter(raw: RawClient, topic: str) -> None:
    """Pitfall 22: the others of the request are stored."""
    create(raw, topic, partitions=3)
    good, bad = bytes(records(b"x")), records(b"x")
    bad[-1] ^= 1
    parts = [
        PartitionProduceData(index=index, records=memoryview(batch))
        for index, batch in ((0, good), (1, bytes(bad)), (2, good), (9, good))
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=parts)]
    )
    answers = raw.ask(request, 9).responses[0].partition_responses
    assert [a.error_code for a in answers] == [
        0,
        ErrorCode.CORRUPT_MESSAGE,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_zstd_needs_a_version_that_knows_it(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    batch = records(b"x", codec=Codec.ZSTD)
    assert produce(raw, topic, batch, version=6).error_code == (
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )
    assert produce(raw, topic, batch, version=7).error_code == 0


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_message_formats_are_invalid(raw: RawClient, topic: str, magic: int) -> None:
    create(raw, topic)
    batch = records(b"x")
    batch[16] = magic
    assert produce(raw, topic, batch).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY, Codec.ZSTD], ids=str)
def test_a_topic_may_recompress(raw: RawClient, topic: str, codec: Codec, target: str) -> None:
    create(raw, topic, compression_type=target)
    values = [b"value %d " % n * 20 for n in range(100)]
    assert produce(raw, topic, records(*values, codec=codec)).error_code == 0
    (batch,) = stored(raw, topic)
    assert batch.codec.name == {"uncompressed": "NONE"}.get(target, target.upper())
    assert batch.crc_is_valid()
    assert [record.value for record in batch.records()] == values
    assert batch.max_timestamp == BASE_MS


@pytest.mark.parametrize(("target", "low", "high"), [("gzip", "1", "9"), ("zstd", "1", "19")])
def test_recompressing_takes_the_effort_asked_for(
    raw: RawClient, topic: str, target: str, low: str, high: str
) -> None:
    """KIP-390."""
    value = b" ".join(b"%x" % (n * n) for n in range(9_000))
    sizes = []
    for level in (low, high):
        name = f"{topic}-{level}"
        create(raw, name, compression_type=target, **{f"compression_{target}_level": level})
        assert produce(raw, name, records(value)).error_code == 0
        (batch,) = stored(raw, name)
        assert [record.value for record in batch.records()] == [value]
        sizes.append(batch.size_bytes)
    assert sizes[1] < sizes[0]


def test_pitfall_19_the_size_counts_after_recompressing(raw: RawClient, topic: str) -> None:
    """Pitfall 19: max.message.bytes is checked again, and the error is one that makes Java
    split its batch."""
    create(raw, topic, compression_type="uncompressed", max_message_bytes="10000")
    small = records(b"x" * 20_000, codec=Codec.ZSTD)
    assert len(small) < 1_000
    assert produce(raw, topic, small).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert stored_nothing(raw, topic)
    assert produce(raw, topic, records(b"x" * 9_000, codec=Codec.ZSTD)).error_code == 0


def test_pitfall_19_the_size_is_that_of_the_compressed_batch(raw: RawClient, topic: str) -> None:
    """Pitfall 19: and the topic's own maximum counts."""
    create(raw, topic, max_message_bytes="1000")
    assert produce(raw, topic, records(b"x" * 2_000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(raw, topic, records(b"x" * 2_000, codec=Codec.GZIP)).error_code == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_heavy_batches_keep_their_place(raw: RawClient, topic: str, acks: int) -> None:
    """Light requests sent behind one that is opened in a thread wait for it."""
    create(raw, topic, partitions=1)
    heavy = records(*(b"v" * 100 for _ in range(20_000)), codec=Codec.LZ4)
    light = records(b"light")
    sent = []
    for batch in (light, heavy, light, light, heavy, light):
        data = PartitionProduceData(index=0, records=memoryview(batch))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        sent.append(raw.send(request, 9))
    answers = [raw.receive() for _ in sent]
    assert [correlation for correlation, _ in answers] == sent
    found = [a.responses[0].partition_responses[0] for _, a in answers]
    assert [p.error_code for p in found] == [0] * 6
    assert [p.base_offset for p in found] == [0, 1, 20_001, 20_002, 20_003, 40_003]


def test_the_crc_of_a_rebuilt_batch() -> None:
    batch = RecordBatch(memoryview(records(b"x"))).with_payload(Codec.NONE, b"other")
    assert batch.crc == crc32c(batch.view[21:])
    assert batch.batch_length == len(batch.view) - 12
