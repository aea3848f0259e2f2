"""What a topic's settings allow a batch to be, from outside.

Its timestamps are looked at in ``record_rules.py``, where compressed records are open anyway.
"""

from __future__ import annotations

from penstock_broker.config import LogConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.records import NO_TIMESTAMP, RecordBatch


def check_batch(batch: RecordBatch, size: int, config: LogConfig, now_ms: int) -> int:
    """Hold a batch of ``size`` bytes against the settings; the LogAppendTime that it got, or -1.

    KafkaError: MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE.
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
    return NO_TIMESTAMP
