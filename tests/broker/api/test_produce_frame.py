"""The fast case of decoding Produce: byte for byte what the codec would have read and written."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.api.produce_frame import OneBatch, answer_one, read_one
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock_broker.wire.schema import decode, encode

versions = st.integers(3, 9)
names = st.text(min_size=1, max_size=40)
_TRANSACTIONAL_AT, _TRANSACTIONAL = 22, 0x10
records = st.one_of(st.binary(min_size=1, max_size=300), st.just(b"y" * 20_000))


def is_the_codecs(data: bytes) -> bool:
    """Too short to be a batch, or one of a transaction."""
    return len(data) <= _TRANSACTIONAL_AT or bool(data[_TRANSACTIONAL_AT] & _TRANSACTIONAL)


def request(
    name: str, partitions: list[tuple[int, bytes]], acks: int, transaction: str | None = None
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transaction,
        acks=acks,
        timeout_ms=1_234,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=index, records=memoryview(data))
                    for index, data in partitions
                ],
            )
        ],
    )


@given(versions, names, st.integers(0, 2**31 - 1), records, st.sampled_from([-1, 0, 1]))
def test_it_reads_what_the_codec_reads(
    version: int, name: str, index: int, data: bytes, acks: int
) -> None:
    frame = memoryview(bytearray(b"head" + encode(request(name, [(index, data)], acks), version)))
    found = read_one(frame, 4, version)
    if is_the_codecs(data):
        assert found is None
    elif len(name.encode()) < 127:
        assert found == OneBatch(acks, 1_234, name, index, memoryview(data))
        assert not found.records.readonly, "offsets are written into it"
    else:
        assert found is None or found.topic == name


VERSIONS = range(3, 10)
BATCH = bytes(range(1, 22)) + b"\0" * 40
"""As long as a header; the attributes are 0."""


def frame_of(version: int, data: bytes = BATCH, name: str = "orders") -> bytearray:
    return bytearray(b"head" + encode(request(name, [(7, data)], -1), version))


def read(version: int, frame: bytes | bytearray) -> OneBatch | None:
    return read_one(memoryview(bytearray(frame)), 4, version)


def overlong(frame: bytearray, digits: int) -> bytearray:
    """The frame with the length of its records in more digits than it takes."""
    at = frame.index(BATCH) - 1
    size = frame[at]
    assert size == len(BATCH) + 1 < 128
    return frame[:at] + bytes([size | 0x80, *[0x80] * (digits - 2), 0]) + frame[at + 1 :]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [61, 126, 127, 128, 16_382, 16_383, 16_384, 70_000, 2_100_000])
def test_records_of_any_size_are_read(version: int, size: int) -> None:
    data = BATCH.ljust(size, b"y")
    expected = OneBatch(-1, 1_234, "orders", 7, memoryview(data))
    assert read(version, frame_of(version, data)) == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 2, 125, 126, 127, 128, 129, 200])
def test_names_of_any_size_are_read_or_the_codecs(version: int, size: int) -> None:
    found = read(version, frame_of(version, name="n" * size))
    if version >= 9 and not 0 < size < 127:
        assert found is None
    else:
        assert found == OneBatch(-1, 1_234, "n" * size, 7, memoryview(BATCH))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_of_a_transaction_is_the_codecs(version: int) -> None:
    for attributes in (0x10, 0xFF):
        data = bytearray(BATCH)
        data[_TRANSACTIONAL_AT] = attributes
        assert read(version, frame_of(version, bytes(data))) is None
    data = bytearray(b"\xff" * 61)
    data[_TRANSACTIONAL_AT] ^= _TRANSACTIONAL
    assert read(version, frame_of(version, bytes(data))) is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_that_are_not_exactly_so_are_the_codecs(version: int) -> None:
    good = frame_of(version)
    assert read(version, good) is not None
    for other in (good + b"\0", good[:-1], good[:-2], frame_of(version, b"")):
        assert read(version, other) is None
    one = request("orders", [(7, BATCH)], -1)
    for several in (
        request("orders", [(7, BATCH), (8, BATCH)], -1),
        request("orders", [], -1),
        ProduceRequest(acks=-1, timeout_ms=1_234, topic_data=2 * one.topic_data),
        ProduceRequest(acks=-1, timeout_ms=1_234, topic_data=[]),
        request("orders", [(7, BATCH)], -1, "t"),
        request("orders", [(7, BATCH)], -1, ""),
    ):
        assert read(version, b"head" + encode(several, version)) is None


def test_tagged_fields_and_long_numbers_are_the_codecs() -> None:
    good = frame_of(9)
    for at in (-1, -2, -3):
        tagged = bytearray(good)
        tagged[at] = 1
        assert read(9, tagged) is None
    assert [read(9, overlong(good, digits)) is not None for digits in (2, 5, 6)] == [
        True, True, False,
    ]  # fmt: skip
    null = bytearray(good)
    null[good.index(BATCH) - 1] = 0
    assert read(9, null) is None


@pytest.mark.parametrize("version", [3, 8])
@pytest.mark.parametrize("length", [-1, -2, 0, 60, 62])
def test_a_wrong_length_is_the_codecs(version: int, length: int) -> None:
    frame = frame_of(version)
    frame[frame.index(BATCH) - 4 : frame.index(BATCH)] = length.to_bytes(4, "big", signed=True)
    assert read(version, frame) is None


@pytest.mark.parametrize("version", [3, 8])
@pytest.mark.parametrize(("at", "value"), [(0, -2), (0, 0), (12, -1), (12, -2)])
def test_a_wrong_head_is_the_codecs(version: int, at: int, value: int) -> None:
    """The transactional id's length, and the topic's."""
    frame = frame_of(version)
    frame[4 + at : 6 + at] = value.to_bytes(2, "big", signed=True)
    assert read(version, frame) is None


def test_a_name_of_a_negative_length_is_the_codecs() -> None:
    """The count of topics is where that of partitions would be."""
    frame = struct.pack(">hhiihhi", -1, 1, 9, 1, -6, 5, len(BATCH)) + BATCH
    assert read(3, b"head" + frame) is None


def test_a_name_whose_length_continues_in_another_byte_is_the_codecs() -> None:
    good = frame_of(9, name="n" * 126)
    at = good.index(127)
    assert read(9, good[:at] + b"\x80\0" + good[at + 1 :]) is None


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_wrong_number_of_topics_or_partitions_is_the_codecs(number: int) -> None:
    good = frame_of(9)
    name = good.index(b"orders")
    for at in (name - 2, name + len("orders")):
        assert good[at] == 2
        assert read(9, good[:at] + bytes([number]) + good[at + 1 :]) is None


def test_what_else_a_request_has() -> None:
    found = OneBatch(1, 0, "orders", 7, memoryview(BATCH))
    assert found.transactional_id is None
    assert found.topic_data == request("orders", [(7, BATCH)], 1).topic_data


@given(versions, names, records)
def test_other_shapes_go_the_long_way(version: int, name: str, data: bytes) -> None:
    two = request(name, [(0, data), (1, data)], 1)
    transactional = request(name, [(0, data)], 1, "tx")
    for other in (two, transactional):
        assert read_one(memoryview(bytearray(encode(other, version))), 0, version) is None


@given(versions, st.binary(max_size=200))
def test_noise_never_raises(version: int, noise: bytes) -> None:
    read_one(memoryview(bytearray(noise)), 0, version)


@given(versions, names, st.data())
def test_broken_requests_are_the_codecs_business(
    version: int, name: str, chance: st.DataObject
) -> None:
    """Whatever it takes, the codec takes in the same way."""
    whole = bytearray(encode(request(name, [(3, b"records" * 5)], 1), version))
    at = chance.draw(st.integers(0, len(whole) - 1))
    whole[at] = chance.draw(st.integers(0, 255))
    found = read_one(memoryview(whole), 0, version)
    if found is not None:
        message, _ = decode(ProduceRequest, version, memoryview(whole))
        (topic,) = message.topic_data
        (data,) = topic.partition_data
        assert message.transactional_id is None
        assert found == (
            message.acks,
            message.timeout_ms,
            topic.name,
            data.index,
            data.records,
        )


@given(
    versions,
    names.filter(lambda name: len(name.encode()) < 127),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(0, 2**63 - 1),
)
def test_it_answers_what_the_codec_answers(
    version: int, name: str, index: int, offset: int, time: int, start: int
) -> None:
    expected = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                partition_responses=[
                    PartitionProduceResponse(
                        index=index,
                        base_offset=offset,
                        log_append_time_ms=time,
                        log_start_offset=start,
                    )
                ],
            )
        ]
    )
    short = OneBatch(1, 0, name, index, memoryview(b""))
    assert answer_one(short, version, offset, time, start) == encode(expected, version)
