"""When the active segment of a log is full."""

from __future__ import annotations

import zlib

from penstock_broker.config import LogConfig
from penstock_broker.log.segment import Segment

_RELATIVE_OFFSET_MAX = 2**31 - 1


def must_roll(
    segment: Segment,
    config: LogConfig,
    size: int,
    last_offset: int,
    *,
    now_ms: int,
    timestamp: int | None = None,
) -> bool:
    """Whether a batch of this size needs a new segment.

    ``segment.ms`` is held against the records' own time, from the first batch of the segment
    to this one (``timestamp``; None: to the latest that is there), as Kafka does; against the
    broker's clock where the records have none.
    """
    if segment.size == 0:
        return False
    if (
        segment.size + size > config.segment_bytes
        or last_offset - segment.base_offset > _RELATIVE_OFFSET_MAX
        or segment.offset_index.size_bytes >= config.segment_index_bytes
    ):
        return True
    if segment.first_timestamp >= 0:
        latest = segment.timestamp_max if timestamp is None else timestamp
        age_ms = latest - segment.first_timestamp
    else:
        age_ms = now_ms - (segment.first_append_ms or now_ms)
    longest_ms = config.longest_segment_ms
    if age_ms <= longest_ms - config.segment_jitter_ms:
        return False
    return age_ms > longest_ms - _jitter_ms(segment, config.segment_jitter_ms)


def _jitter_ms(segment: Segment, jitter_ms: int) -> int:
    """A share of segment.jitter.ms that differs from log to log and stays for a segment."""
    return zlib.crc32(str(segment.path).encode()) % jitter_ms if jitter_ms else 0
