"""One alert per incident: a state machine from observations to trigger and resolve.

An observation is one check of one window, or one run: its ``source`` names it for good. Sources
that fail for one reason share an incident. The incident is triggered when its first source turns
bad, told again only when it has grown, and resolved when its last source is good again. What is
neither good nor bad (PENDING) changes nothing.

::

                 bad: trigger                       bad, more records: trigger again
    (no incident) ───────────▶ OPEN {sources} ──────┐
          ▲                      │   ▲──────────────┘
          └──────────────────────┘
             last source good: resolve

Alerts have the field names of PagerDuty's Events API v2. Delivery is at least once: an alert may
be made again after a crash, with the same ``dedup_key``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from penstock_platform.domain.books import Equation, EquationResult, Finding, WindowState
from penstock_platform.domain.clock import from_iso, to_iso
from penstock_platform.domain.ranges import OffsetRange, count, merge, tell
from penstock_platform.domain.windows import Window

RANGES_IN_ALERT_MAX = 100
INCIDENTS_VERSION = 1
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
    "incarnation_silent": "without evidence (producer fell silent)",
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


@dataclass(frozen=True, slots=True)
class Incident:
    """What an alert says. ``records`` is how large the damage is, to notice when it grows."""

    dedup_key: str
    summary: str
    severity: str  # critical | error | warning | info
    source: str
    component: str
    group: str
    class_: str
    records: int = 0
    details: dict[str, Any] = field(default_factory=dict)
    links: tuple[tuple[str, str], ...] = ()  # (address, text)


@dataclass(frozen=True, slots=True)
class Observation:
    """``incident`` is None where all is well; ``pending`` where nothing can be said yet."""

    source: str
    incident: Incident | None = None
    pending: bool = False


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """An incident that was triggered and is not resolved."""

    incident: Incident
    sources: tuple[str, ...]
    opened_at: str
    told_records: int


@dataclass(frozen=True, slots=True)
class Incidents:
    """The open incidents by their key; a value, to be kept between calls."""

    open: dict[str, OpenIncident] = field(default_factory=dict)

    def to_text(self) -> str:
        """Canonical JSON, to be kept in a sensor's cursor."""
        raw = {"v": INCIDENTS_VERSION, "open": {k: asdict(o) for k, o in self.open.items()}}
        return json.dumps(raw, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str | None) -> Incidents:
        """The reverse of ``to_text``; nothing gives no incidents. Raises ValueError for others."""
        if not text:
            return cls()
        raw = json.loads(text)
        if raw.get("v") != INCIDENTS_VERSION:
            raise ValueError(f"incidents of version {raw.get('v')}: this code reads 1")
        return cls(
            {
                key: OpenIncident(
                    incident=Incident(
                        **{
                            **entry["incident"],
                            "links": tuple((a, t) for a, t in entry["incident"]["links"]),
                        }
                    ),
                    sources=tuple(entry["sources"]),
                    opened_at=entry["opened_at"],
                    told_records=entry["told_records"],
                )
                for key, entry in raw["open"].items()
            }
        )


def advance(
    incidents: Incidents, observations: Iterable[Observation], now: datetime
) -> tuple[Incidents, list[dict[str, Any]]]:
    """Take note of observations, in their order; the incidents then open, and alerts to send."""
    opened = dict(incidents.open)
    alerts: list[dict[str, Any]] = []
    for observation in observations:
        if observation.pending:
            continue
        wanted = observation.incident
        for key in [k for k, o in opened.items() if observation.source in o.sources]:
            if wanted is None or key != wanted.dedup_key:
                alerts += _withdraw(opened, key, observation.source, now)
        if wanted is not None:
            alerts += _note(opened, wanted, observation.source, now)
    return Incidents(opened), alerts


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
) -> Observation:
    """One equation's outcome for one window, as an observation."""
    source = f"{window.topic}/{window.window_id}/{result.equation}"
    fine = {WindowState.BALANCED, WindowState.ACCEPTED, WindowState.RETIRED}
    if accept_unaudited:
        fine.add(WindowState.UNAUDITED)
    if result.state in fine:
        return Observation(source)
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
    )


def failure(
    cluster: str,
    source: str,
    *,
    component: str,
    summary: str,
    group: str = "run",
    class_: str = "failure",
    severity: str = "error",
    details: Mapping[str, Any] | None = None,
    links: Sequence[tuple[str, str]] = (),
) -> Observation:
    """Anything else that failed and will be good again: a run, a sweep that holds, a service.

    ``source`` names it for good, without run ids, so that a retry is the same incident.
    """
    return Observation(
        source,
        Incident(
            dedup_key=f"{group}:{cluster}:{source}",
            summary=summary,
            severity=severity,
            source=f"{cluster}/{component}",
            component=component,
            group=group,
            class_=class_,
            details=dict(details or {}),
            links=tuple(links),
        ),
    )


def rerun_command(topic: str, window: str) -> str:
    """The command that lands a window again and judges it anew."""
    return f"penstock window rerun {topic} {window}"


def to_alert(incident: Incident, action: str, now: datetime, since: str = "") -> dict[str, Any]:
    """PagerDuty Events API v2: ``action`` is trigger or resolve."""
    summary = incident.summary
    details = dict(incident.details)
    if action == "resolve":
        summary = f"resolved: {summary}"
        details["open_since"] = since
    return {
        "event_action": action,
        "dedup_key": incident.dedup_key,
        "payload": {
            "summary": summary,
            "severity": incident.severity,
            "source": incident.source,
            "component": incident.component,
            "group": incident.group,
            "class": incident.class_,
            "timestamp": to_iso(now),
            "custom_details": details,
        },
        "links": [{"href": address, "text": text} for address, text in incident.links],
    }


def _note(
    opened: dict[str, OpenIncident], incident: Incident, source: str, now: datetime
) -> list[dict[str, Any]]:
    known = opened.get(incident.dedup_key)
    if known is None:
        opened[incident.dedup_key] = OpenIncident(
            incident, (source,), to_iso(now), incident.records
        )
        return [to_alert(incident, "trigger", now)]
    sources = known.sources if source in known.sources else (*known.sources, source)
    grown = incident.records > known.told_records
    opened[incident.dedup_key] = replace(
        known,
        incident=incident if grown else known.incident,
        sources=sources,
        told_records=max(known.told_records, incident.records),
    )
    return [to_alert(incident, "trigger", now)] if grown else []


def _withdraw(
    opened: dict[str, OpenIncident], key: str, source: str, now: datetime
) -> list[dict[str, Any]]:
    known = opened[key]
    sources = tuple(s for s in known.sources if s != source)
    if sources:
        opened[key] = replace(known, sources=sources)
        return []
    del opened[key]
    return [to_alert(known.incident, "resolve", now, known.opened_at)]


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
        places = f" ({tell(ranges, 3)})" if ranges else ""
        noun = "record" if records == 1 else "records"
        parts.append(f"{records:,} {noun} {_LACK.get(kind, kind)}{where}{places}")
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
    if _rerun_helps(findings):
        details["rerun"] = rerun_command(window.topic, window.window)
    left_out = count(_all(findings)) - sum(
        end - start
        for key in ("missing", "duplicates", "corrupt", "unaudited")
        for _, start, end in details[key]
    )
    if left_out > 0:
        details["records_not_listed"] = left_out
    return {key: value for key, value in details.items() if value not in ("", [])}


def _rerun_helps(findings: Sequence[Finding]) -> bool:
    """Landing again mends the lake; it brings no evidence, and nothing that the log has lost."""
    beyond_help = {"retained_away", "log_truncated", "beyond_log_end", "hole"}
    return any(f.kind not in beyond_help and f.state is not WindowState.UNAUDITED for f in findings)


def _all(findings: Sequence[Finding]) -> list[OffsetRange]:
    return [r for f in findings for r in f.ranges]
