"""Record batches, format v2 (KIP-98): read, checked, patched in place, iterated.

    0  base_offset             i64   \\
    8  batch_length            i32    |  bytes from 12 on
   12  partition_leader_epoch  i32    |  not covered by the CRC: the broker assigns these
   16  magic                   i8    /   2
   17  crc                     u32      CRC-32C of everything from 21 on
   21  attributes              i16      0-2 codec, 3 log append time, 4 transactional, 5 control,
                                        6 delete horizon
   23  last_offset_delta       i32
   27  base_timestamp          i64      ms
   35  max_timestamp           i64      ms
   43  producer_id             i64      -1: none
   51  producer_epoch          i16
   53  base_sequence           i32
   57  records_count           i32
   61  records                          compressed as one block when the codec says so

A batch is a view into the buffer it was read from. Nothing here copies records except when asked
for the single record. Malformed bytes raise DecodeError; what a client did wrong with a
well-formed request raises KafkaError with the code that Apache Kafka answers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.compression import DECOMPRESSED_BYTES_MAX, Codec, decompress
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.primitives import Buffer
from penstock_broker.wire.record_parsing import key_of, parse_records, value_and_headers

HEADER_BYTES: Final = 61
LENGTH_END: Final = 12
"""Base offset and length: what `batch_length` does not count."""

MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CODEC_MAX: Final = int(Codec.ZSTD)
_BASE_OFFSET: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
PLACE: Final = struct.Struct(">qii")
"""Base offset, length, leader epoch: what the broker writes into the bytes of a batch. The CRC does
not cover them."""
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
BASE_TIMESTAMP_AT: Final = 27
_MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43


class Record(NamedTuple):
    """One record, copied out of its batch. `timestamp` in ms, headers in their order."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class BatchHeader:
    """The first 61 bytes of a batch; enough to walk a log."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "records_count",
    )

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Read the header at `position`; DecodeError when the 61 bytes are not all there."""
        try:
            (
                self.base_offset,
                self.batch_length,
                self.partition_leader_epoch,
                self.magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.records_count,
            ) = HEADER.unpack_from(buffer, position)
        except struct.error as cause:
            raise DecodeError("batch header is truncated") from cause

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> Codec:
        try:
            return Codec(self.attributes & CODEC_MASK)
        except ValueError as cause:
            raise DecodeError(f"unknown compression {self.attributes & CODEC_MASK}") from cause

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(offsets {self.base_offset}-{self.last_offset}, "
            f"{self.batch_length + LENGTH_END} bytes, producer {self.producer_id}/"
            f"{self.producer_epoch}/{self.base_sequence}, epoch {self.partition_leader_epoch})"
        )


class RecordBatch(BatchHeader):
    """A whole batch: the header and a view of all its bytes."""

    __slots__ = ("_data", "_position", "size", "view")

    size: int
    """Bytes of the whole batch, header included."""
    view: memoryview

    def __init__(self, buffer: memoryview, position: int = 0) -> None:
        """Read the batch at `position`; DecodeError when it is not all there.

        The first part is :meth:`BatchHeader.__init__`, written out: this is on the way of every
        record that is produced alone, where a call counts.
        """
        whole = buffer.obj  # a bytearray is read and patched in half the time of a view of it
        data = whole if type(whole) is bytearray and len(whole) == len(buffer) else buffer
        try:
            (
                self.base_offset,
                self.batch_length,
                self.partition_leader_epoch,
                self.magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.records_count,
            ) = HEADER.unpack_from(data, position)
        except struct.error as cause:
            raise DecodeError("batch header is truncated") from cause
        self.size = size = self.batch_length + LENGTH_END
        end = position + size
        if size < HEADER_BYTES or end > len(buffer):
            raise DecodeError(f"batch of length {self.batch_length} does not fit")
        self._data = data
        self._position = position
        self.view = buffer[position:end]

    def bytes_of_records(self) -> tuple[bytes | bytearray, int, int]:
        """What follows the header as something that is quick to index, with begin and end: not
        copied where the batch was read from a view of a whole bytearray."""
        data, position = self._data, self._position
        if type(data) is bytearray:
            return data, position + HEADER_BYTES, position + self.size
        payload = bytes(self.view[HEADER_BYTES:])
        return payload, 0, len(payload)

    def crc_is_valid(self) -> bool:
        return crc32c(self.view[ATTRIBUTES_AT:]) == self.crc

    def stamp_log_append_time(self, timestamp_ms: int) -> None:
        """Make `timestamp_ms` the time of all records; the CRC is computed again."""
        self.attributes |= LOG_APPEND_TIME_FLAG
        self.max_timestamp = timestamp_ms
        _ATTRIBUTES.pack_into(self.view, ATTRIBUTES_AT, self.attributes)
        _BASE_OFFSET.pack_into(self.view, _MAX_TIMESTAMP_AT, timestamp_ms)
        self.crc = crc32c(self.view[ATTRIBUTES_AT:])
        _CRC.pack_into(self.view, CRC_AT, self.crc)

    def with_payload(self, codec: Codec, payload: bytes) -> RecordBatch:
        """A batch like this one whose records, the same, are compressed otherwise."""
        data = bytearray(self.view[:HEADER_BYTES]) + payload
        _LENGTH.pack_into(data, _LENGTH_AT, len(data) - LENGTH_END)
        _ATTRIBUTES.pack_into(data, ATTRIBUTES_AT, self.attributes & ~CODEC_MASK | codec)
        view = memoryview(data)
        _CRC.pack_into(data, CRC_AT, crc32c(view[ATTRIBUTES_AT:]))
        return RecordBatch(view)

    def records(self, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Iterate over the records; DecodeError when content and header do not agree."""
        payload = self._payload(bytes_max)
        stamped = self.max_timestamp if self.is_log_append_time else None
        for record in parse_records(payload, self.records_count):
            value, headers = value_and_headers(payload, record)
            yield Record(
                self.base_offset + record.offset_delta,
                self.base_timestamp + record.timestamp_delta if stamped is None else stamped,
                key_of(payload, record),
                value,
                headers,
            )

    def timestamps(self, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[tuple[int, int]]:
        """Give (offset, timestamp) of each record, without looking at keys and values."""
        return self.timestamps_in(self._payload(bytes_max))

    def timestamps_in(
        self, payload: bytes | bytearray, position: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """The same of records that have been decompressed, and lie between these positions."""
        stamped = self.max_timestamp if self.is_log_append_time else None
        for record in parse_records(payload, self.records_count, position, stop):
            yield (
                self.base_offset + record.offset_delta,
                self.base_timestamp + record.timestamp_delta if stamped is None else stamped,
            )

    def first_at_or_after(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record, in offset order, not older than this."""
        if self.max_timestamp < timestamp_ms:
            return None
        return next((found for found in self.timestamps() if found[1] >= timestamp_ms), None)

    def offset_of_max_timestamp(self) -> int:
        """The first offset that carries the batch's largest timestamp."""
        best = max(self.timestamps(), key=lambda found: (found[1], -found[0]), default=None)
        return self.base_offset if best is None else best[0]

    def _payload(self, bytes_max: int) -> bytes:
        payload = self.view[HEADER_BYTES:]
        return decompress(self.codec, payload, bytes_max)


def iter_batches(buffer: memoryview) -> Iterator[RecordBatch]:
    """The whole batches of fetched bytes; a batch cut off at the end is left out.

    DecodeError for a length that no batch can have.
    """
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        length = BatchHeader(buffer, position).batch_length
        if length < HEADER_BYTES - LENGTH_END:
            raise DecodeError(f"batch of length {length}")
        if position + LENGTH_END + length > len(buffer):
            return
        yield RecordBatch(buffer, position)
        position += LENGTH_END + length


def validate_batches(
    records: memoryview | None, *, max_message_bytes: int, from_client: bool = True
) -> list[RecordBatch]:
    """Check what is to be appended, and give its batches.

    A leader takes exactly one batch per partition from a client, with base offset 0, no control
    records, and a count that agrees with its offsets; a follower takes what the leader sent.
    Compressed records are not opened. `max_message_bytes` bounds each batch as sent.

    Raises KafkaError: CORRUPT_MESSAGE (cut short, CRC), MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD for all else.
    """
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "There must be at least one record batch.")
    batches = []
    position = 0
    while position < len(records):
        batch = validate_batch(
            records, position, max_message_bytes=max_message_bytes, from_client=from_client
        )
        position += batch.size
        batches.append(batch)
    if from_client and len(batches) > 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, "There must be exactly one record batch.")
    return batches


def validate_batch(
    buffer: memoryview,
    begin: int,
    end: int | None = None,
    *,
    max_message_bytes: int,
    from_client: bool = True,
) -> RecordBatch:
    """The one batch that a client sends for a partition, from `begin` to `end` of a buffer, or as
    long as it says; see :func:`validate_batches`."""
    try:
        batch = RecordBatch(buffer, begin)
    except DecodeError as cause:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(cause)) from cause
    if end is not None and batch.size != end - begin:
        validate_batches(buffer[begin:end], max_message_bytes=max_message_bytes)  # says what it is
    if batch.magic != MAGIC:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"Record batches of magic {batch.magic} are not accepted."
        )
    if batch.size > max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {batch.size} bytes, the topic's maximum is {max_message_bytes}.",
        )
    if crc32c(batch.view[ATTRIBUTES_AT:]) != batch.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "The record batch fails its CRC.")
    if not from_client:
        return batch
    attributes, count = batch.attributes, batch.records_count
    if attributes & CODEC_MASK > _CODEC_MAX:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Unknown compression {attributes & CODEC_MASK}.",
        )
    if batch.base_offset != 0:
        problem = f"The base offset should be 0, it is {batch.base_offset}."
    elif count <= 0 or count != batch.last_offset_delta + 1:
        problem = f"{count} records do not agree with last offset {batch.last_offset_delta}."
    elif attributes & CONTROL_FLAG:
        problem = "Clients may not write control records."
    elif batch.producer_id > NO_PRODUCER_ID and batch.base_sequence < 0:
        problem = f"Producer {batch.producer_id} sent no sequence."
    else:
        return batch
    raise KafkaError(ErrorCode.INVALID_RECORD, problem)
