"""Bytes from someone who means harm: only DecodeError comes out, and memory stays small."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire_oracle import CASE_IDS, CASES
from wire_strategies import sample

from penstock_broker.wire.apis import APIS, UnsupportedVersionError, decode_request
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.fields import Struct
from penstock_broker.wire.header import RequestHeader, decode_request_header, encode_request_header
from penstock_broker.wire.messages.delete_groups import DeleteGroupsRequest
from penstock_broker.wire.messages.metadata import MetadataRequest
from penstock_broker.wire.messages.produce import ProduceRequest
from penstock_broker.wire.primitives import ELEMENTS_MAX, read_uvarint, write_uvarint
from penstock_broker.wire.schema import decode, encode

EVIL = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x80\x00\x00\x00",
    b"\x07\xff\xff\xff",
    b"\xff",
    b"\xc3\x28",
)


def attempt(cls: type[Struct], version: int, data: bytes) -> Any:
    """The message, or None when it was refused; any other exception fails the test."""
    try:
        return decode(cls, version, memoryview(data))[0]
    except DecodeError:
        return None


@pytest.mark.parametrize(("cls", "version"), CASES, ids=CASE_IDS)
def test_cut_short_anywhere(cls: type[Struct], version: int) -> None:
    data = encode(sample(cls, version, elements=1), version)
    for size in range(len(data)):
        assert attempt(cls, version, data[:size]) is None


@pytest.mark.parametrize(("cls", "version"), CASES, ids=CASE_IDS)
def test_evil_bytes_anywhere(cls: type[Struct], version: int) -> None:
    data = encode(sample(cls, version, elements=1), version)
    for position in range(len(data)):
        for evil in EVIL:
            attempt(cls, version, data[:position] + evil + data[position + len(evil) :])


@settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(CASES), st.binary(max_size=200))
def test_any_bytes(case: tuple[type[Struct], int], data: bytes) -> None:
    attempt(*case, data)


@settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.integers(-2, 62), st.integers(-1, 13), st.binary(max_size=60))
def test_any_frame(key: int, version: int, rest: bytes) -> None:
    frame = struct.pack(">hhi", key, version, 1) + rest
    try:
        header, request = decode_request(memoryview(frame))
    except DecodeError:
        return
    except UnsupportedVersionError as refused:
        assert key not in APIS or version not in APIS[key].versions
        assert refused.header.correlation_id == 1
        return
    assert type(request) is APIS[header.api_key].request


HUGE = [
    (ProduceRequest, 9, b"\0\xff\xff\0\0\x0b\xb8" + b"\xff\xff\xff\xff\x0f"),
    (ProduceRequest, 8, b"\xff\xff\xff\xff\0\0\x0b\xb8" + b"\x7f\xff\xff\xff"),
    (ProduceRequest, 9, b"\0\xff\xff\0\0\x0b\xb8\x02\x02a\x02\0\0\0\0\xff\xff\xff\xff\x0f"),
    (MetadataRequest, 12, b"\xff\xff\xff\xff\x0f"),
    (MetadataRequest, 4, b"\x7f\xff\xff\xff"),
    (DeleteGroupsRequest, 2, b"\x80\x80\x80\x80\x08"),
]


@pytest.mark.parametrize(("cls", "version", "data"), HUGE)
def test_huge_lengths_cost_nothing(cls: type[Struct], version: int, data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(cls, version, memoryview(data))  # compiles the decoder, which is not free
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(cls, version, memoryview(data))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_small_elements_cannot_fill_memory() -> None:
    """A megabyte of one-byte strings would become objects of fifty times its size."""
    count = ELEMENTS_MAX + 1
    data = write_uvarint(count + 1) + b"\x01" * count + b"\0"
    with pytest.raises(DecodeError, match="array too long"):
        decode(DeleteGroupsRequest, 2, memoryview(data))
    count = ELEMENTS_MAX
    data = write_uvarint(count + 1) + b"\x01" * count + b"\0"
    request, _ = decode(DeleteGroupsRequest, 2, memoryview(data))
    assert len(request.groups_names) == count


def test_tagged_fields_count_as_elements() -> None:
    count = ELEMENTS_MAX + 1
    data = b"\x01" + write_uvarint(count) + b"\x09\x00" * count
    with pytest.raises(DecodeError, match="tagged"):
        decode(DeleteGroupsRequest, 2, memoryview(data))


@pytest.mark.parametrize(
    "raw", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 10]
)
def test_varints_overflow(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(raw, 0)


@given(st.integers(0, 2**32 - 1))
def test_varints_round_trip(value: int) -> None:
    raw = write_uvarint(value)
    assert read_uvarint(raw + b"\xff", 0) == (value, len(raw))


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "Ключ"])
def test_request_header_round_trip_and_cuts(client_id: str | None) -> None:
    header = RequestHeader(3, 12, 77, client_id)
    raw = encode_request_header(header, flexible=False)
    assert decode_request_header(memoryview(raw)) == (header, len(raw))
    for size in range(len(raw)):
        with pytest.raises(DecodeError):
            decode_request_header(memoryview(raw[:size]))


@pytest.mark.parametrize("size", [b"\xff\xfe", b"\x80\x00", b"\x7f\xff"])
def test_bad_client_ids(size: bytes) -> None:
    raw = struct.pack(">hhi", 3, 1, 5) + size + b"abc"
    with pytest.raises(DecodeError):
        decode_request_header(memoryview(raw))


def test_client_id_must_be_utf8() -> None:
    raw = struct.pack(">hhih", 3, 1, 5, 2) + b"\xc3\x28"
    with pytest.raises(DecodeError):
        decode_request_header(memoryview(raw))
