"""Window objects for tests, with only what a test is about spelled out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from penstock_platform.clock import to_iso
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.cluster import CLUSTER_ID
from penstock_platform.topics.model.cron import window_key
from penstock_platform.windows.model.window import PreviousWindow, Window, WindowPartition


def make_window(
    ranges: Mapping[int, tuple[int, int]],
    *,
    topic: str = "orders",
    topic_id: str = "topic-in-memory-000001",
    sequence: int = 0,
    opens: datetime = EPOCH,
    length: timedelta = timedelta(minutes=1),
    previous: Window | None = None,
    high_watermarks: Mapping[int, int] | None = None,
) -> Window:
    """A window of these ``{partition: (start, end)}``; after ``previous``, its successor."""
    if previous is not None:
        sequence, opens = previous.sequence + 1, opens + length * (previous.sequence + 1)
        topic, topic_id = previous.topic, previous.topic_id
    ends = high_watermarks or {}
    return Window(
        cluster_id=CLUSTER_ID,
        topic=topic,
        topic_id=topic_id,
        sequence=sequence,
        window=window_key(opens),
        opened_at=to_iso(opens),
        closed_at=to_iso(opens + length),
        frozen_at=to_iso(opens + length + timedelta(seconds=1)),
        partitions=tuple(
            WindowPartition(p, start, end, 0, ends.get(p, end), 0)
            for p, (start, end) in sorted(ranges.items())
        ),
        previous=PreviousWindow(previous.sequence, previous.sha256) if previous else None,
        code_version="test",
    )
