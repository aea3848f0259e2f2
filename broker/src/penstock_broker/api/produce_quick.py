"""The produce request that nearly all are: one topic, one partition, no transaction.

librdkafka sends one request per partition, and with small batches a broker does little else than
read such frames. Here the frame is read with two ``unpack`` calls and answered with one ``pack``,
without a message object on either side; it is the same append with the same rules. Whatever is not
exactly of this shape gives None and goes the long way, through the codec: also everything that is
malformed, so that there is one place that says what is wrong with it. docs/PERFORMANCE.md has the
microseconds.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_HEAD = struct.Struct(">hhiih")  # transactional id (null), acks, timeout, topics, name length
_MIDDLE = struct.Struct(">iii")  # partitions, index, records length
_HEAD_FLEXIBLE = struct.Struct(">BhiBB")
_MIDDLE_FLEXIBLE = struct.Struct(">Bi")

_ONE = b"\0\0\0\1"
_ANSWER = struct.Struct(">ihqqi")  # to v4: index, error, offset, time, throttle
_ANSWER_START = struct.Struct(">ihqqqi")  # v5-v7: with the log's start
_ANSWER_ERRORS = struct.Struct(">ihqqqihi")  # v8: with no record errors and no message
_ANSWER_FLEXIBLE = struct.Struct(">ihqqqBBBBiB")


class OneBatch(NamedTuple):
    """A request for one partition."""

    acks: int
    timeout_ms: int
    topic: str
    partition: int
    records: memoryview


def read_one(frame: memoryview, position: int, version: int) -> OneBatch | None:
    """The request, if it is of the common shape and well formed."""
    try:
        return _read_flexible(frame, position) if version >= 9 else _read(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def _read(frame: memoryview, position: int) -> OneBatch | None:
    transaction, acks, timeout_ms, topics, name_size = _HEAD.unpack_from(frame, position)
    start = position + 14
    end = start + name_size
    if transaction != -1 or topics != 1 or name_size < 0:
        return None
    partitions, index, size = _MIDDLE.unpack_from(frame, end)
    records = end + 12
    if partitions != 1 or size <= 0 or records + size != len(frame):
        return None
    name = str(frame[start:end], "utf-8")
    return OneBatch(acks, timeout_ms, name, index, frame[records:])


def _read_flexible(frame: memoryview, position: int) -> OneBatch | None:
    transaction, acks, timeout_ms, topics, name_size = _HEAD_FLEXIBLE.unpack_from(frame, position)
    if transaction or topics != 2 or not 1 < name_size < 128:
        return None
    start = position + 9
    end = start + name_size - 1
    partitions, index = _MIDDLE_FLEXIBLE.unpack_from(frame, end)
    records = end + 5
    size = shift = 0
    while True:
        byte = frame[records]
        records += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    stop = records + size - 1
    if partitions != 2 or size < 2 or shift > 28 or stop + 3 != len(frame):
        return None
    if frame[stop] or frame[stop + 1] or frame[stop + 2]:
        return None  # tagged fields
    name = str(frame[start:end], "utf-8")
    return OneBatch(acks, timeout_ms, name, index, frame[records:stop])


def answer_one(
    request: OneBatch, version: int, base_offset: int, append_time_ms: int, start_offset: int
) -> bytes:
    """The body of the answer to a successful append."""
    name = request.topic.encode()
    index = request.partition
    if version >= 9:
        tail = _ANSWER_FLEXIBLE.pack(
            index, 0, base_offset, append_time_ms, start_offset, 1, 0, 0, 0, 0, 0
        )
        return b"\2" + bytes((len(name) + 1,)) + name + b"\2" + tail
    if version >= 8:
        tail = _ANSWER_ERRORS.pack(index, 0, base_offset, append_time_ms, start_offset, 0, -1, 0)
    elif version >= 5:
        tail = _ANSWER_START.pack(index, 0, base_offset, append_time_ms, start_offset, 0)
    else:
        tail = _ANSWER.pack(index, 0, base_offset, append_time_ms, 0)
    return _ONE + len(name).to_bytes(2, "big") + name + _ONE + tail
