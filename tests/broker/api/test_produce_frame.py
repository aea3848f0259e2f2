"""The fast case of decoding Produce: byte for byte what the codec would have read and written."""

from __future__ import annotations

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
