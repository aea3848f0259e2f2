"""Builds record batches: for internal topics, control records and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from penstock_broker.wire.compression import Codec, compress
from penstock_broker.wire.records import (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
)


class NewRecord(NamedTuple):
    """A record to be written; `timestamp` in ms."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]] = ()


def write_varint(value: int) -> bytes:
    """Encode a zigzag varint of up to 64 bits."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return write_varint(-1) if data is None else write_varint(len(data)) + data


def _record(record: NewRecord, timestamp_delta: int, offset_delta: int) -> bytes:
    parts = [
        b"\0",
        write_varint(timestamp_delta),
        write_varint(offset_delta),
        _sized(record.key),
        _sized(record.value),
        write_varint(len(record.headers)),
    ]
    for key, value in record.headers:
        parts += (_sized(key.encode()), _sized(value))
    body = b"".join(parts)
    return write_varint(len(body)) + body


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    partition_leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """One batch with consecutive offsets, writable so that it can be patched.

    An empty batch (as compaction leaves it) has a last offset delta of 0.
    """
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    body = compress(
        codec,
        b"".join(
            _record(record, record.timestamp - base_timestamp, delta)
            for delta, record in enumerate(records)
        ),
    )
    attributes = int(codec)
    attributes |= TRANSACTIONAL_FLAG if transactional else 0
    attributes |= CONTROL_FLAG if control else 0
    batch = bytearray(HEADER_BYTES) + body
    fields = (
        attributes,
        max(len(records) - 1, 0),
        base_timestamp,
        max((record.timestamp for record in records), default=NO_TIMESTAMP),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    length = len(batch) - LENGTH_END
    HEADER.pack_into(batch, 0, base_offset, length, partition_leader_epoch, MAGIC, 0, *fields)
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(batch)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return batch
