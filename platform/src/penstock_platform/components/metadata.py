"""What a person reads in Dagster's pages: tables of exact offsets, counts, sentences.

Numbers stay numbers, so that Dagster plots them; names are stable. Tables are bounded: beyond
``TABLE_ROWS_MAX`` rows the last one says how many were left out, and the archive has them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from penstock_platform.domain.books import EquationResult, Finding, WindowState
from penstock_platform.domain.windows import Window

if TYPE_CHECKING:
    from penstock_platform.domain.receipts import Receipt
    from penstock_platform.resources.lake import Lake

TABLE_ROWS_MAX = 200
RANGES_IN_SENTENCE_MAX = 3

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
FINDING_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("kind", "string", "What does not balance"),
        dg.TableColumn("partition", "int", "Partition of the topic"),
        dg.TableColumn("first", "int", "First offset concerned"),
        dg.TableColumn("last", "int", "Last offset concerned"),
        dg.TableColumn("records", "int", "Offsets concerned"),
        dg.TableColumn("incarnation", "string", "Producer instance, where it is known"),
        dg.TableColumn("detail", "string", "More about it"),
    ]
)


def table(
    rows: Iterable[Mapping[str, Any]], schema: dg.TableSchema, limit: int = TABLE_ROWS_MAX
) -> dg.TableMetadataValue:
    """A metadata table with every column of the schema in every row, bounded."""
    names = [column.name for column in schema.columns]
    given = list(rows)
    records = [dg.TableRecord({name: row.get(name) for name in names}) for row in given[:limit]]
    if len(given) > limit:
        left_out = f"… and {len(given) - limit} more rows; the archive holds all"
        texts = [c.name for c in schema.columns if c.type == "string"]
        last = texts[-1] if texts else names[0]
        records.append(dg.TableRecord(dict.fromkeys(names) | {last: left_out}))
    return dg.MetadataValue.table(records, schema)


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


def findings_table(findings: Sequence[Finding]) -> dg.TableMetadataValue:
    """Every range of every finding, one row each."""
    rows: list[dict[str, Any]] = []
    for finding in findings:
        common = {
            "kind": finding.kind,
            "incarnation": finding.incarnation or "",
            "detail": finding.detail,
        }
        if not finding.ranges:
            rows.append(common)
        for r in finding.ranges:
            span = {"partition": r.partition, "first": r.start, "last": r.end - 1}
            rows.append({**common, **span, "records": len(r)})
    return table(rows, FINDING_SCHEMA)


def window_metadata(window: Window, uri: str = "") -> dict[str, Any]:
    """Which window this is, and exactly which offsets it holds."""
    metadata: dict[str, Any] = {
        "window": window.name,
        "window_id": window.window_id,
        "window_sha256": window.sha256,
        "closed_at": window.closed_at,
        "frozen_at": window.frozen_at,
        "kafka/cluster_id": window.cluster_id,
        "kafka/topic_id": window.topic_id,
        "kafka/offset_ranges": ranges_table([window]),
        "records": window.record_count,
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


def column_schema(columns: Sequence[tuple[str, str]]) -> dg.TableSchema:
    return dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns])


def equation_metadata(result: EquationResult) -> dict[str, Any]:
    """Expected, found, state, and the ranges that do not come out. Never a ratio."""
    metadata: dict[str, Any] = {
        "state": str(result.state),
        "expected": result.expected,
        "found": result.found,
        **{f"detail/{key}": value for key, value in result.detail.items()},
    }
    if result.findings:
        metadata["findings"] = findings_table(result.findings)
    return metadata


def equation_sentence(result: EquationResult) -> str:
    """One line: `MISSING: 37 missing (partition 3 offsets 118204-118240); expected 120431, ...`."""
    figures = f"expected {result.expected:,}, found {result.found:,}"
    if not result.findings:
        return f"{result.state}: {figures}"
    parts = [finding_sentence(finding) for finding in result.findings[:RANGES_IN_SENTENCE_MAX]]
    more = len(result.findings) - len(parts)
    if more > 0:
        parts.append(f"and {more} more findings")
    return f"{result.state}: {'; '.join(parts)}; {figures}"


def finding_sentence(finding: Finding) -> str:
    """`37 missing (partition 3 offsets 118204-118240, and 2 more ranges)`."""
    shown = [str(r) for r in finding.ranges[:RANGES_IN_SENTENCE_MAX]]
    more = len(finding.ranges) - len(shown)
    if more > 0:
        shown.append(f"and {more} more ranges")
    places = ", ".join(shown) or finding.detail or "no offsets known"
    return f"{finding.count:,} {finding.kind.replace('_', ' ')} ({places})"


def state_rank(state: WindowState) -> str:
    """A mark for tables of windows: what is well, what is due, what is wrong."""
    if state in (WindowState.BALANCED, WindowState.ACCEPTED, WindowState.RETIRED):
        return "ok"
    if state in (WindowState.FROZEN, WindowState.LANDED, WindowState.PENDING):
        return "due"
    return "wrong"
