"""The produce request that nearly all are: one topic, one partition, no transaction.

librdkafka sends one request per partition, and with small batches a broker does little else than
read such frames. This is the fast case of decoding them, and of encoding the answer: two
``unpack`` calls for the one, a ``pack`` for the other, without the messages' objects. There is no
rule about batches here. Whatever is not exactly of this shape gives None and is the codec's, also
everything that is malformed, so that one place says what is wrong with it. docs/PERFORMANCE.md
has the microseconds.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from penstock_broker.wire.messages.produce import PartitionProduceData, TopicProduceData
from penstock_broker.wire.records import ATTRIBUTES_AT, TRANSACTIONAL_FLAG

_HEAD = struct.Struct(">hhiih")  # transactional id (null), acks, timeout, topics, name length
_MIDDLE = struct.Struct(">iii")  # partitions, index, records length
_HEAD_FLEXIBLE = struct.Struct(">BhiBB")
_MIDDLE_FLEXIBLE = struct.Struct(">Bi")

_ONE = b"\0\0\0\1"
_ANSWER = struct.Struct(">qqi")  # to v4: offset, time, throttle
_ANSWER_START = struct.Struct(">qqqi")  # v5-v7: with the log's start
_ANSWER_ERRORS = struct.Struct(">qqqihi")  # v8: with no record errors and no message
_ANSWER_FLEXIBLE = struct.Struct(">qqqBBBBiB")
_TRANSACTIONAL_AT = ATTRIBUTES_AT + 1


class OneBatch(NamedTuple):
    """A request for one partition; what else a ``ProduceRequest`` has, it has as well."""

    acks: int
    timeout_ms: int
    topic: str
    partition: int
    records: memoryview

    @property
    def transactional_id(self) -> None:
        """None: such a request goes to the codec."""
        return None

    @property
    def topic_data(self) -> list[TopicProduceData]:
        """The batch as the codec gives it."""
        data = PartitionProduceData(index=self.partition, records=self.records)
        return [TopicProduceData(name=self.topic, partition_data=[data])]


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
    if frame[records + _TRANSACTIONAL_AT] & TRANSACTIONAL_FLAG:
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
    while True:  # wire.primitives.read_uvarint, written out: a call costs as much
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
    if frame[records + _TRANSACTIONAL_AT] & TRANSACTIONAL_FLAG:
        return None
    name = str(frame[start:end], "utf-8")
    return OneBatch(acks, timeout_ms, name, index, frame[records:stop])


@lru_cache(maxsize=1_024)
def _head(topic: str, index: int, is_flexible: bool) -> bytes:
    """An answer up to its error code, 0."""
    name = topic.encode()
    place = struct.pack(">ih", index, 0)
    if is_flexible:
        return b"\2" + bytes((len(name) + 1,)) + name + b"\2" + place
    return _ONE + len(name).to_bytes(2, "big") + name + _ONE + place


def answer_head(request: OneBatch, version: int) -> bytes:
    """The body of an answer without an error, up to the offset."""
    return _head(request.topic, request.partition, version >= 9)


def answer_one(
    request: OneBatch, version: int, base_offset: int, append_time_ms: int, start_offset: int
) -> bytes:
    """The body of the answer to a successful append."""
    head = answer_head(request, version)
    if version >= 9:
        return head + _ANSWER_FLEXIBLE.pack(
            base_offset, append_time_ms, start_offset, 1, 0, 0, 0, 0, 0
        )
    if version >= 8:
        return head + _ANSWER_ERRORS.pack(base_offset, append_time_ms, start_offset, 0, -1, 0)
    if version >= 5:
        return head + _ANSWER_START.pack(base_offset, append_time_ms, start_offset, 0)
    return head + _ANSWER.pack(base_offset, append_time_ms, 0)
