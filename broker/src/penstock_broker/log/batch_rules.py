"""What a topic's settings allow a batch to be."""

from __future__ import annotations

from penstock_broker.config import LogConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import NO_TIMESTAMP, RecordBatch


def check_batch(batch: RecordBatch, size: int, config: LogConfig, now_ms: int) -> int:
    """Hold a batch of ``size`` bytes against the settings; the LogAppendTime that it got, or -1.

    KafkaError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP.
    """
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {size} bytes, the topic's maximum is "
            f"{config.max_message_bytes}.",
        )
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The record batch has {size} bytes, a segment {config.segment_bytes}.",
        )
    if config.message_timestamp_type == "LogAppendTime":
        batch.stamp_log_append_time(now_ms)
        return now_ms
    ahead = batch.max_timestamp - now_ms
    if ahead > config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"A record's timestamp is {ahead} ms ahead of the broker's clock; the topic allows "
            f"{config.message_timestamp_after_max_ms}.",
        )
    if batch.base_timestamp < now_ms - config.message_timestamp_before_max_ms:
        _check_not_too_old(batch, now_ms - config.message_timestamp_before_max_ms)
    return NO_TIMESTAMP


def _check_not_too_old(batch: RecordBatch, oldest_ms: int) -> None:
    """Look at each record, now that the first one may be too old."""
    try:
        timestamps = [timestamp for _, timestamp in batch.timestamps()]
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    for timestamp in timestamps:
        if timestamp != NO_TIMESTAMP and timestamp < oldest_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"A record's timestamp {timestamp} is older than the topic allows.",
            )
