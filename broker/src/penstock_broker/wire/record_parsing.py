"""The records of a batch, decompressed: the position of each, and its parts.

    record: length varint, attributes i8, timestamp delta varlong, offset delta varint,
            key length varint, key, value length varint, value, header count varint, headers

Varints are zigzag; -1 is the length of null. This is what reads records that are in a log. Those
of clients are checked before by ``record_walk.py``, which knows what most records look like.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.primitives import read_uvarint_rest

Headers = list[tuple[str, bytes | None]]


class ParsedRecord(NamedTuple):
    """Where a record and its parts lie in the payload; times and offsets count from the batch's."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key_at: int
    """-1 where the key is null; it ends at ``value_at``."""
    value_at: int
    """Where the value's length begins."""


def parse_records(  # noqa: PLR0912 (one loop, made for speed: a compaction reads every record)
    payload: bytes | bytearray, count: int, position: int = 0, stop: int | None = None
) -> Iterator[ParsedRecord]:
    """The ``count`` records that fill ``payload[position:stop]``; value and headers are not looked
    at (:func:`value_and_headers`). DecodeError when they do not add up."""
    if stop is None:
        stop = len(payload)
    make = ParsedRecord._make
    try:
        for _ in range(count):
            start = position
            byte = payload[position]
            position += 1
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, position = _varint_rest(payload, position, byte)
            end = position + length
            position += 1  # attributes, unused
            byte = payload[position]
            position += 1
            if byte < 0x80:
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
            else:
                timestamp_delta, position = _varint_rest(payload, position, byte, 64)
            byte = payload[position]
            position += 1
            if byte < 0x80:
                offset_delta = (byte >> 1) ^ -(byte & 1)
            else:
                offset_delta, position = _varint_rest(payload, position, byte)
            byte = payload[position]
            position += 1
            if byte < 0x80:
                size = (byte >> 1) ^ -(byte & 1)
            else:
                size, position = _varint_rest(payload, position, byte)
            key_at = -1
            if size >= 0:
                key_at = position
                position += size
            if length < 1 or position >= end or end > stop:
                raise DecodeError("a record does not fit")
            yield make((start, end, timestamp_delta, offset_delta, key_at, position))
            position = end
    except IndexError as cause:
        raise DecodeError("a record is truncated") from cause
    if position != stop:
        raise DecodeError("bytes after the last record")


def key_of(payload: bytes, record: ParsedRecord) -> bytes | None:
    """The key of a record."""
    return None if record.key_at < 0 else payload[record.key_at : record.value_at]


def has_value(payload: bytes, record: ParsedRecord) -> bool:
    """Whether the value is there: the sign of a zigzag varint is the lowest bit of its first
    byte."""
    return not payload[record.value_at] & 1


def value_and_headers(payload: bytes, record: ParsedRecord) -> tuple[bytes | None, Headers]:
    """The rest of a record. DecodeError when it does not end where the record does."""
    try:
        value, position = _nullable_bytes(payload, record.value_at, record.end)
        return value, _headers(payload, position, record.end)
    except IndexError as cause:
        raise DecodeError("a record is truncated") from cause


def _headers(payload: bytes, position: int, end: int) -> Headers:
    count, position = _varint(payload, position)
    if not 0 <= count <= end - position:
        raise DecodeError("more record headers than bytes")
    headers = []
    for _ in range(count):
        key, position = _nullable_bytes(payload, position, end)
        if key is None:
            raise DecodeError("record header without a key")
        value, position = _nullable_bytes(payload, position, end)
        try:
            headers.append((key.decode(), value))
        except UnicodeDecodeError as cause:
            raise DecodeError("record header key is not UTF-8") from cause
    if position != end:
        raise DecodeError("record of the wrong length")
    return headers


def _nullable_bytes(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = _varint(payload, position)
    if size < 0:
        return None, position
    if size > end - position:
        raise DecodeError("record runs past its end")
    return payload[position : position + size], position + size


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    byte = payload[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _varint_rest(payload, position + 1, byte)


def _varint_rest(
    payload: bytes | bytearray, position: int, first: int, bits_max: int = 32
) -> tuple[int, int]:
    value, position = read_uvarint_rest(payload, position, first, bits_max)
    return (value >> 1) ^ -(value & 1), position
