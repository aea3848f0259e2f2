"""What the compiler does beyond today's messages: every kind, null structs, tags, headers."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_strategies import messages, sample

from penstock_broker.wire.apis import APIS, decode_request, encode_response
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.header import RequestHeader, encode_request_header
from penstock_broker.wire.messages.api_versions import ApiVersionsResponse
from penstock_broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from penstock_broker.wire.messages.join_group import JoinGroupResponse
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataResponseTopic
from penstock_broker.wire.primitives import write_uvarint
from penstock_broker.wire.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Struct,
    array,
    decode,
    encode,
    encode_parts,
    encoder,
    field,
)


class Inner(Struct):
    number: int = field(INT32)
    words: list[str] = array(STRING, default=())


class Everything(Struct, versions=range(4), flexible_from=2):
    flag: bool = field(BOOL)
    tiny: int = field(INT8)
    small: int = field(UINT16)
    large: int = field(UINT32)
    ratio: float = field(FLOAT64)
    identity: Any = field(UUID)
    identities: list[Any] = array(UUID)
    blobs: list[bytes] | None = array(BYTES, nullable_since=1)
    flags: list[bool] = array(BOOL)
    numbers: list[int] | None = array(INT64, nullable_since=0)
    cursor: Inner | None = field(Inner, nullable_since=0)
    plain: Inner = field(Inner)
    later: int = field(INT32, since=1, until=2, default=7)
    records: Any = field(RECORDS, nullable_since=0, default=None)
    named: str | None = field(STRING, since=2, nullable_since=2, tag=0, default=None)
    inner: Inner | None = field(Inner, since=2, tag=1, default=None)
    level: int = field(INT64, since=3, tag=5, default=-1)
    list_of: list[Inner] = array(Inner, since=2, tag=3, default=())


@settings(max_examples=80, deadline=None, database=None)
@given(st.data())
def test_every_kind_round_trips(data: st.DataObject) -> None:
    version = data.draw(st.integers(0, 3))
    message = data.draw(messages(Everything, version))
    raw = encode(message, version)
    assert decode(Everything, version, memoryview(raw + b"rest")) == (message, len(raw))


def test_known_bytes() -> None:
    message = sample(Everything, 3, elements=1)
    raw = encode(message, 3)
    assert raw.startswith(struct.pack(">?bHId", True, 2, 3, 4, 5.0))
    absent = sample(Everything, 3, elements=1)
    absent.cursor = None
    assert len(encode(absent, 3)) < len(raw)
    assert decode(Everything, 3, encode(absent, 3))[0].cursor is None


def test_truncation_of_every_kind() -> None:
    for version in range(4):
        raw = encode(sample(Everything, version), version)
        for size in range(len(raw)):
            with pytest.raises(DecodeError):
                decode(Everything, version, memoryview(raw[:size]))


def test_unknown_tags_are_skipped_everywhere() -> None:
    """A newer peer adds tags to the message, its topics and its header."""
    plain = encode(MetadataRequest(topics=[]), 9)
    assert plain[-1] == 0
    for tags in ([(9, b"future")], [(0, b""), (700, b"x" * 200)]):
        block = write_uvarint(len(tags)) + b"".join(
            write_uvarint(tag) + write_uvarint(len(value)) + value for tag, value in tags
        )
        request, position = decode(MetadataRequest, 9, memoryview(plain[:-1] + block))
        assert request == MetadataRequest(topics=[])
        assert position == len(plain) - 1 + len(block)
        head = encode_request_header(RequestHeader(3, 9, 5, "new"), flexible=False)
        assert decode_request(memoryview(head + block + plain))[1] == request


def test_many_unknown_tags() -> None:
    message = sample(Everything, 3)
    raw = encode(message, 3)
    message.named = message.inner = None
    message.level, message.list_of = -1, []
    bare = encode(message, 3)
    assert bare[-1] == 0
    block = write_uvarint(200) + b"".join(write_uvarint(50 + n) + b"\x01z" for n in range(200))
    assert decode(Everything, 3, memoryview(bare[:-1] + block))[0] == message
    assert len(raw) > len(bare)


def test_a_known_tag_of_the_wrong_size_is_refused() -> None:
    message = sample(Everything, 3)
    message.named = message.inner = None
    message.list_of = []
    raw = encode(message, 3)
    start = raw.rindex(b"\x05\x08")
    for size in (7, 9):
        bad = raw[: start + 1] + bytes([size]) + raw[start + 2 :] + b"\0\0"
        with pytest.raises(DecodeError):
            decode(Everything, 3, memoryview(bad))


def test_a_nested_struct_can_be_encoded_alone() -> None:
    topic = sample(MetadataResponseTopic, 12)
    assert decode(MetadataResponseTopic, 12, encode(topic, 12))[0] == topic


def test_null_is_an_empty_string_where_null_is_not_there_yet() -> None:
    old = encode(JoinGroupResponse(), 6)
    assert decode(JoinGroupResponse, 6, old)[0].protocol_name == ""
    assert decode(JoinGroupResponse, 7, encode(JoinGroupResponse(), 7))[0].protocol_name is None


def test_constructor_demands_what_has_no_default_and_shares_no_lists() -> None:
    with pytest.raises(TypeError):
        Inner()  # type: ignore[call-arg]
    one, two = Inner(number=1), Inner(number=1)
    one.words.append("mine")
    assert two.words == []
    assert one != two
    assert "words=['mine']" in repr(one)


def test_versions_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="no version 4"):
        encoder(Everything, 4)


class Slice:
    """Records that have a length and nothing else, as a part of a file has."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


@pytest.mark.parametrize("version", range(4, 13))
def test_records_stay_what_they_are(version: int) -> None:
    slices = [Slice(1000), Slice(0), Slice(70_000)]
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="flights",
                partitions=[
                    PartitionData(partition_index=index, high_watermark=5, records=records)
                    for index, records in enumerate([*slices, None])
                ],
            )
        ]
    )
    parts = encode_parts(response, version)
    assert [part for part in parts if isinstance(part, Slice)] == [slices[0], slices[2]]
    filled = b"".join(
        b"r" * len(part) if isinstance(part, Slice) else bytes(part) for part in parts
    )
    decoded, position = decode(FetchResponse, version, memoryview(filled))
    assert position == len(filled)
    sizes = [None if p.records is None else len(p.records) for p in decoded.responses[0].partitions]
    assert sizes == [1000, 0, 70_000, None]
    header = RequestHeader(1, version, 99, None)
    frame = encode_response(header, response, version)
    assert struct.unpack(">i", frame[0][:4])[0] == sum(len(part) for part in frame) - 4


def test_decoded_records_are_views_of_the_frame() -> None:
    api = APIS[0]
    raw = bytearray(encode(sample(api.request, 9), 9))
    request: Any = decode(api.request, 9, memoryview(raw))[0]
    records = request.topic_data[0].partition_data[0].records
    assert records.obj is raw
    records[0:1] = b"B"
    assert b"Bytes-" in raw


@pytest.mark.parametrize(
    ("key", "version", "tagged"), [(18, 0, False), (18, 3, False), (3, 8, False), (3, 9, True)]
)
def test_response_headers(key: int, version: int, tagged: bool) -> None:
    response = sample(APIS[key].response, version)
    (frame,) = encode_response(RequestHeader(key, version, 7, None), response, version)
    size, correlation_id = struct.unpack_from(">ii", frame)
    assert (size, correlation_id) == (len(frame) - 4, 7)
    body = frame[8:]
    if tagged:
        assert body[0] == 0
        body = body[1:]
    assert decode(APIS[key].response, version, body)[0] == response


def test_unknown_api_versions_version_is_answered_in_version_zero() -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=[])
    (frame,) = encode_response(RequestHeader(18, 99, 7, None), answer, 0)
    assert frame == b"\0\0\0\x0a" + b"\0\0\0\x07" + b"\0\x23" + b"\0\0\0\0"
