"""When the active segment of a log is full."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from penstock_broker.config import LogConfig
from penstock_broker.config.table import INT64_MAX
from penstock_broker.log.segment import Segment

_RELATIVE_OFFSET_MAX = 2**31 - 1
_ENTRY_BYTES = 8
"""Of an offset index; there is at most one for each batch."""


class Space(NamedTuple):
    """What a segment takes for certain; beyond it :func:`must_roll` is to be asked."""

    size: int
    """Bytes."""
    batches: int
    last_offset: int
    timestamp: int
    """The largest, in ms."""


NO_SPACE: Final = Space(0, 0, -1, -1)


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


def space_in(segment: Segment, config: LogConfig) -> Space:
    """What :func:`must_roll` will let into a segment after a batch that it has just let in, without
    being asked each time."""
    if segment.size == 0:
        return NO_SPACE  # the first batch says what time it is
    entries = (config.segment_index_bytes - segment.offset_index.size_bytes) // _ENTRY_BYTES
    latest = INT64_MAX
    if segment.first_timestamp >= 0:
        latest = segment.first_timestamp + config.longest_segment_ms - config.segment_jitter_ms
    return Space(
        config.segment_bytes - segment.size,
        max(1, entries),
        segment.base_offset + _RELATIVE_OFFSET_MAX,
        latest,
    )


def _jitter_ms(segment: Segment, jitter_ms: int) -> int:
    """A share of segment.jitter.ms that differs from log to log and stays for a segment."""
    return zlib.crc32(str(segment.path).encode()) % jitter_ms if jitter_ms else 0
