"""What a person reads of windows in Dagster's pages: exact offset ranges, counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from penstock_platform.topics.metadata import table
from penstock_platform.windows.model.window import Window


def ranges_table(windows: Sequence[Window]) -> dg.TableMetadataValue:
    """The windows' exact offset ranges, one row a partition and window."""
    rows = (
        {
            "partition": p.p,
            "start": p.start,
            "end": p.end,
            "records": p.end - p.start,
            "log_start": p.log_start,
            "high_watermark": p.high_watermark,
        }
        for window in windows
        for p in window.partitions
    )
    return table(rows, RANGE_SCHEMA)


RANGE_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("partition", "int", "Partition of the topic"),
        dg.TableColumn("start", "int", "First offset of the window"),
        dg.TableColumn("end", "int", "First offset after the window"),
        dg.TableColumn("records", "int", "Offsets in the range"),
        dg.TableColumn("log_start", "int", "The log's first offset when the window was frozen"),
        dg.TableColumn("high_watermark", "int", "The log's end when the window was frozen"),
    ]
)


def window_metadata(window: Window, uri: str = "") -> dict[str, Any]:
    """Which window this is, and exactly which offsets it holds."""
    metadata: dict[str, Any] = {
        "window": window.name,
        "records": window.record_count,
        "kafka/offset_ranges": ranges_table([window]),
        "closed_at": window.closed_at,
        "frozen_at": window.frozen_at,
        "window_id": window.window_id,
        "window_sha256": window.sha256,
        "kafka/cluster_id": window.cluster_id,
        "kafka/topic_id": window.topic_id,
    }
    if uri:
        metadata["kafka/manifest_uri"] = uri
    return metadata


def tick_metadata(windows: Sequence[Window], uris: Sequence[str]) -> dict[str, Any]:
    """The windows of one partition key: the only one as it is, several by their sums and ends."""
    first, last = windows[0], windows[-1]
    if len(windows) == 1:
        return window_metadata(first, uris[0])
    return {
        **window_metadata(last, uris[-1]),
        "window": last.window,
        "windows": ", ".join(window.window_id for window in windows),
        "records": sum(window.record_count for window in windows),
        "kafka/offset_ranges": ranges_table(windows),
    }
