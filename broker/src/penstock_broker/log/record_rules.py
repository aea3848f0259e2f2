"""What is looked at inside the batches of clients, before they become part of a log.

A CRC says that a batch arrived as it was sent. That its records can be read is not checked yet, and
one that cannot stops every consumer of its partition permanently. So compressed records are opened
(:data:`~penstock_broker.wire.compression.DECOMPRESSED_BYTES_MAX` at most) and stored as they were
sent; all records are walked through (``wire/record_walk.py``); those of compacted topics need
keys, and their timestamps have bounds. As in Kafka's LogValidator, a batch with a bad record is
refused whole, and the answer names the records (KIP-467). Where Kafka would number records again
whose offsets do not follow, and correct a largest timestamp, they are refused, or believed.

``compression.type`` other than ``producer`` recompresses what came otherwise.

Most of it costs microseconds. What may cost more is for another thread: nothing here touches
anything but the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock_broker.config import LogConfig
from penstock_broker.config.table import INT64_MAX
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.compression import (
    DECOMPRESSED_BYTES_MAX,
    Codec,
    TooLargeError,
    compress,
    decompress,
    first_bytes,
)
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.record_walk import BadRecordError, check_records, have_keys
from penstock_broker.wire.records import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    RecordBatch,
)

LIGHT_BYTES = 64 << 10
"""Compressed bytes that are opened at once, if they become no more than"""
LIGHT_OUTPUT_BYTES = 1 << 20
"""so many: about 2 ms."""
LIGHT_RECORDS = 8_192
"""Records that are walked at once: 6 ms when no two are of one size."""
RECORD_ERRORS_MAX = 1_000
"""Records that an answer names."""

_TARGETS = {"uncompressed": Codec.NONE} | {codec.name.lower(): codec for codec in Codec}


class RecordsRefusedError(KafkaError):
    """Some records of a batch are not as they should be: (their place from 0, what is wrong)."""

    def __init__(self, code: ErrorCode, records: list[tuple[int, str]]) -> None:
        super().__init__(code, "One or more records have been rejected.")
        self.records = records


def look_inside(
    batch: RecordBatch, config: LogConfig, now_ms: int, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> RecordBatch:
    """Check the records of a batch that ``wire.records.validate_batch`` has passed.

    Gives the batch that is to be appended: the same, or one recompressed. KafkaError:
    INVALID_RECORD and INVALID_TIMESTAMP with the records (:class:`RecordsRefusedError`),
    INVALID_RECORD for what cannot be opened, MESSAGE_TOO_LARGE after recompressing,
    RECORD_LIST_TOO_LARGE for what no segment holds.
    :class:`TooLargeError` when ``bytes_max`` is not enough, but the broker's limit may be, or when
    it takes too long for the event loop: then it is for a thread, with the broker's limit.
    """
    target, attributes = _TARGETS.get(config.compression_type), batch.attributes
    codec, count = attributes & CODEC_MASK, batch.records_count
    if bytes_max < DECOMPRESSED_BYTES_MAX and (
        count > LIGHT_RECORDS or (batch.size > LIGHT_BYTES and (codec or target))
    ):
        raise TooLargeError("too much for the event loop")
    if attributes & LOG_APPEND_TIME_FLAG:
        raise RecordsRefusedError(
            ErrorCode.INVALID_TIMESTAMP, [(0, "Producers may not set the type to LogAppendTime.")]
        )
    payload: bytes | bytearray
    if codec:
        payload = _open(batch, bytes_max)
        begin, end = 0, len(payload)
    else:
        payload, begin, end = batch.bytes_of_records()
    try:
        check_records(payload, begin, end, count)
    except BadRecordError as bad:
        raise RecordsRefusedError(
            ErrorCode.INVALID_RECORD, [(bad.number, f"{bad.problem}.".capitalize())]
        ) from bad
    if "compact" in config.cleanup_policy:
        _check_keys(payload, begin, count)
    if config.message_timestamp_type == "CreateTime" and (
        batch.max_timestamp > now_ms + config.message_timestamp_after_max_ms
        or config.message_timestamp_before_max_ms != INT64_MAX
    ):
        _check_timestamps(batch, config, now_ms, batch.timestamps_in(payload, begin, end))
    if target is not None and target != codec:
        batch = _recompressed(batch, bytes(payload[begin:end]), target, config)
    if batch.size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The record batch has {batch.size} bytes, a segment {config.segment_bytes}.",
        )
    return batch


def latest_timestamp_ms(config: LogConfig, now_ms: int) -> int:
    """The largest timestamp, in ms, with which :func:`look_inside` passes a batch if it has passed
    one that differs from it in timestamps, keys and values alone; -2: it has to be asked."""
    if (
        config.message_timestamp_type != "CreateTime"
        or config.message_timestamp_before_max_ms != INT64_MAX
    ):
        return NO_TIMESTAMP - 1
    return now_ms + config.message_timestamp_after_max_ms


def _check_keys(payload: bytes | bytearray, begin: int, count: int) -> None:
    """Name the records of a compacted topic's batch that have no key."""
    refused = [
        (number, "Compacted topic cannot accept message without key.")
        for number, has_key in enumerate(have_keys(payload, begin, count))
        if not has_key
    ]
    if refused:
        raise RecordsRefusedError(ErrorCode.INVALID_RECORD, refused[:RECORD_ERRORS_MAX])


def _open(batch: RecordBatch, bytes_max: int) -> bytes:
    if bytes_max >= DECOMPRESSED_BYTES_MAX:
        # Most bombs are the same byte over and over, and no record begins so: 64 MiB of it would
        # cost the other threads 40 ms.
        head = first_bytes(batch.codec, batch.view[HEADER_BYTES:])
        if head and (head[0] == 0 or head[0] & 1):
            raise RecordsRefusedError(ErrorCode.INVALID_RECORD, [(0, "Its length is not valid.")])
    try:
        return decompress(batch.codec, batch.view[HEADER_BYTES:], bytes_max)
    except TooLargeError as error:
        if bytes_max < DECOMPRESSED_BYTES_MAX:
            raise
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    except DecodeError as error:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"The records cannot be read: {error}"
        ) from error


def _check_timestamps(
    batch: RecordBatch, config: LogConfig, now_ms: int, timestamps: Iterator[tuple[int, int]]
) -> None:
    """Name the records that are too early or too late."""
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    refused = list(_out_of_range(timestamps, batch.base_offset, earliest_ms, latest_ms))
    if not refused and batch.max_timestamp > latest_ms:
        refused = [(0, f"The batch's largest timestamp is {batch.max_timestamp}.")]
    if refused:
        raise RecordsRefusedError(ErrorCode.INVALID_TIMESTAMP, refused[:RECORD_ERRORS_MAX])


def _out_of_range(
    timestamps: Iterator[tuple[int, int]], base_offset: int, earliest_ms: int, latest_ms: int
) -> Iterator[tuple[int, str]]:
    for offset, timestamp in timestamps:
        if timestamp != NO_TIMESTAMP and not earliest_ms <= timestamp <= latest_ms:
            yield (
                offset - base_offset,
                f"Timestamp {timestamp} of message with offset {offset} is out of range. The "
                f"timestamp should be within [{earliest_ms}, {latest_ms}].",
            )


def _recompressed(
    batch: RecordBatch, payload: bytes, target: Codec, config: LogConfig
) -> RecordBatch:
    levels = {Codec.GZIP: config.compression_gzip_level, Codec.ZSTD: config.compression_zstd_level}
    again = batch.with_payload(target, compress(target, payload, levels.get(target)))
    if len(again.view) > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {len(again.view)} bytes as {target.name.lower()}, the topic's "
            f"maximum is {config.max_message_bytes}.",
        )
    return again
