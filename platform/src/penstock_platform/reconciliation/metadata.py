"""What a person reads of the books in Dagster's pages: findings as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from penstock_platform.reconciliation.model.books import EquationResult, Finding
from penstock_platform.reconciliation.model.recovery import (
    SENTENCE_KEY,
    SOURCE_KEY,
    rerun_sentence,
)
from penstock_platform.topics.metadata import table

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

RANGES_IN_SENTENCE_MAX = 3
RERUN = (SOURCE_KEY, SENTENCE_KEY)  # shown as one sentence


def findings_table(findings: Sequence[Finding]) -> dg.TableMetadataValue:
    """Every range of every finding, one row each; without the columns that hold nothing."""
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
    empty = {n for n in ("incarnation", "detail") if not any(row[n] for row in rows)}
    return table(rows, dg.TableSchema([c for c in FINDING_SCHEMA.columns if c.name not in empty]))


def equation_metadata(result: EquationResult) -> dict[str, Any]:
    """Expected, found, state, and the ranges that do not come out. Never a ratio.

    Details that are zero are left out: Dagster sorts a check's keys, plots each number, and would
    show them first.
    """
    details = {key: value for key, value in result.detail.items() if value and key not in RERUN}
    metadata: dict[str, Any] = {
        "state": str(result.state),
        "expected": result.expected,
        "found": result.found,
        **{f"detail/{key}": value for key, value in details.items()},
    }
    if rerun_sentence(result):
        metadata["rerun"] = rerun_sentence(result)
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
