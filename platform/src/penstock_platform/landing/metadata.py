"""What a person reads of a landing in Dagster's pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock_platform.topics.metadata import column_schema

if TYPE_CHECKING:
    from penstock_platform.lake.tables import Lake
    from penstock_platform.reconciliation.model.receipts import Receipt


def landing_metadata(receipts: Sequence[Receipt], lake: Lake) -> dict[str, Any]:
    """What one run put into a table, by its receipts (one a window, at least one), and the table
    as a catalogue wants it."""
    receipt = receipts[-1]
    rows = sum(r.rows for r in receipts)
    seconds = sum(r.seconds for r in receipts)
    counts: Counter[str] = Counter()
    for r in receipts:
        counts.update(r.counts)
    return {
        "rows": rows,
        "bytes": sum(r.size_bytes for r in receipts),
        "digest": ", ".join(str(r.digest) for r in receipts),
        "snapshot_id": str(receipt.snapshot_id),
        "attempt_id": receipt.attempt_id,
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds, 1) if seconds > 0 else 0.0,
        **counts,
        "dagster/partition_row_count": rows,
        "dagster/row_count": lake.row_count(receipt.table),
        "dagster/uri": lake.location(receipt.table),
        "dagster/table_name": receipt.table,
        "dagster/column_schema": column_schema(lake.columns(receipt.table)),
    }
