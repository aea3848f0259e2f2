"""What an alert about a window says: exact offsets, what became of them, and what to type.

``incident_states`` decides when an incident is alerted, again or resolved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock_platform.alerts.model.incident_states import Incident, Observation
from penstock_platform.clock import from_iso
from penstock_platform.ranges import OffsetRange, count, describe, merge
from penstock_platform.reconciliation.model.books import (
    GOOD_STATES,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.reconciliation.model.recovery import (
    SOURCE_KEY,
    SourceKind,
    rerun_helps,
    rerun_sentence,
)
from penstock_platform.windows.model.window import Window, rerun_command

RANGES_IN_ALERT_MAX = 100
# Findings whose records an alert lists as missing.
MISSING_KINDS = (
    *("missing", "unreadable", "vanished", "beyond_log_end"),
    *("retained_away", "log_truncated", "hole"),
)
_LACK = {"missing": "missing", "beyond_log_end": "lost at the log's end"} | {
    "retained_away": "deleted before they were landed",
    "vanished": "vanished from the table after they were proven; the log no longer has them",
    "unreadable": "in data files that cannot be read",
    "altered": "changed in the table after they were proven",
    "unjudged": "not judged",
    "log_truncated": "lost by the log",
    "duplicate": "duplicated",
    "outside": "landed in the wrong window",
    "corrupt": "in claims whose digest differs",
    "hole": "in unexplained holes",
    "unlanded": "not compared",
    "unclaimed": "without evidence",
    "incarnation_silent": "without evidence (producer stopped)",
    "unstamped": "from clients that are not audited",
    "lost_event": "lost with a producer's events",
    "undigested": "whose digest could not be judged",
    "evidence_lost": "unreadable events of producers",
}
_WHERE = {
    Equation.STORED_EQUALS_LANDED: " in the lake",
    Equation.PRODUCED_EQUALS_STORED: " in the log",
    Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED: " in silver",
}


def observe(
    cluster: str,
    window: Window,
    result: EquationResult,
    *,
    severity: str = "ERROR",
    owners: Sequence[str] = (),
    accept_unaudited: bool = False,
    manifest: str = "",
    links: Sequence[tuple[str, str]] = (),
    at: str = "",
) -> Observation:
    """One equation's outcome for one window, as an observation; ``at`` is when it was judged."""
    source = f"{window.topic}/{window.window_id}/{result.equation}"
    accepted = accept_unaudited and result.state is WindowState.UNAUDITED
    if accepted or result.state in GOOD_STATES:
        return Observation(source, at=at)
    if result.state is WindowState.PENDING:
        return Observation(source, pending=True)
    matters = [f for f in result.findings if f.state is not None]
    return Observation(
        source,
        Incident(
            dedup_key=_dedup_key(cluster, window, matters),
            summary=_summary(window, result, matters),
            severity=_severity(result.state, severity),
            source=f"{cluster}/{window.topic}",
            component=window.topic,
            group="audit",
            class_=str(result.equation),
            records=sum(f.count for f in matters),
            details=_details(window, result, matters, owners, manifest),
            links=tuple(links),
        ),
        at=at,
    )


def _dedup_key(cluster: str, window: Window, findings: Sequence[Finding]) -> str:
    """One incident a window; but a lost tail is one incident, however many idle windows see it."""
    if findings and all(f.kind == "beyond_log_end" for f in findings):
        first = min(r for f in findings for r in f.ranges)
        return f"audit:{cluster}:{window.topic}:log-end:{first.partition}-{first.start}"
    return f"audit:{cluster}:{window.topic}:{window.name}"


def _summary(window: Window, result: EquationResult, findings: Sequence[Finding]) -> str:
    opened, closed = from_iso(window.opened_at), from_iso(window.closed_at)
    span = f"{window.topic} {opened:%Y-%m-%d %H:%M}-{closed:%H:%M}"
    by_kind: dict[str, list[Finding]] = {}
    for finding in findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    parts = []
    for kind, found in by_kind.items():
        records = sum(f.count for f in found)
        ranges = merge(r for f in found for r in f.ranges)
        where = _WHERE[result.equation] if kind in ("missing", "duplicate") else ""
        places = f" ({describe(ranges, 3)})" if ranges else ""
        noun = "record" if records == 1 else "records"
        parts.append(f"{records:,} {noun} {_LACK.get(kind, kind)}{where}{places}")
    if result.detail.get(SOURCE_KEY) == SourceKind.NOTHING:
        parts.append(rerun_sentence(result))
    return f"{span}: {'; '.join(parts) or f'{result.equation} is {result.state}'}"


def _severity(state: WindowState, declared: str) -> str:
    if declared == "WARN" or state is WindowState.UNAUDITED:
        return "warning"
    return "error" if state is WindowState.UNPROVEN else "critical"


def _details(
    window: Window,
    result: EquationResult,
    findings: Sequence[Finding],
    owners: Sequence[str],
    manifest: str,
) -> dict[str, Any]:
    def spans(*kinds: str) -> list[list[int]]:
        found = merge(r for f in findings if f.kind in kinds for r in f.ranges)
        return [[r.partition, r.start, r.end] for r in found[:RANGES_IN_ALERT_MAX]]

    details: dict[str, Any] = {
        "state": str(result.state),
        "window": window.name,
        "window_id": window.window_id,
        "expected": result.expected,
        "found": result.found,
        "missing": spans(*MISSING_KINDS),
        "duplicates": spans("duplicate", "outside"),
        "corrupt": spans("corrupt", "altered"),
        "unaudited": spans("unclaimed", "incarnation_silent", "unstamped"),
        "incarnations": sorted({f.incarnation for f in findings if f.incarnation}),
        "owner": ", ".join(owners),
        "manifest": manifest,
        "show": f"penstock window show {window.topic} {window.name}",
    }
    details["rerun_from"] = rerun_sentence(result)
    if rerun_helps(result, findings):
        details["rerun"] = rerun_command(window.topic, window.window)
    left_out = count(_all(findings)) - sum(
        end - start
        for key in ("missing", "duplicates", "corrupt", "unaudited")
        for _, start, end in details[key]
    )
    if left_out > 0:
        details["records_not_listed"] = left_out
    return {key: value for key, value in details.items() if value not in ("", [])}


def _all(findings: Sequence[Finding]) -> list[OffsetRange]:
    return [r for f in findings for r in f.ranges]
