"""The state of incidents: from observations to trigger and resolve, one alert per incident.

An observation is one judgement of one source: a window's equation, a run, a chain's health. Its
``source`` names it for good. Sources that fail for one reason share an incident::

                 bad: trigger                       bad, beyond what was said: trigger again
    (no incident) ───────────▶ OPEN {sources} ──────┐
          ▲                      │   ▲──────────────┘
          └──────────────────────┘
             last source proven good: resolve

- A source becomes good by a judgement of the same source that was made after the one that found it
  bad; an older one changes nothing, and neither does a source that is no longer looked at. What is
  neither good nor bad (PENDING) changes nothing.
- **Alerted again**: when the incident holds offsets that none of its alerts has named, or more
  records than the most that any of them named. So there is no alert when it shrinks or grows back
  to what was alerted; there is one when it grows beyond that, or elsewhere.
- **Outages**: what stops because a service does not answer is one incident of that service, with
  the list of what it stops. It is alerted again each time that the list has doubled.

Alerts have the field names of PagerDuty's Events API v2. Delivery is at least once: an alert may
be made again after a crash, with the same ``dedup_key``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from penstock_platform.clock import from_iso, to_iso
from penstock_platform.ranges import OffsetRange, covers, merge

INCIDENTS_VERSION = 2
STOPS_MAX = 100
SAID_RANGES_MAX = 500
OUTAGE = "outage"
# A source of an outage that is not tried again is resolved by the service's own answer, once it
# has been quiet for so long: the service may answer here and not where the source failed.
OUTAGE_QUIET = timedelta(minutes=15)
# The keys of ``details`` that hold [[partition, start, end], …].
RANGE_KEYS = ("missing", "duplicates", "corrupt", "unaudited")
# Details that a resolve leaves out: they are of the damage that is repaired.
OVER_AT_RESOLVE = frozenset({"state", "rerun", "rerun_from"})
SERVICES = {
    "broker": "the broker does not answer",
    "store": "the object store does not answer",
    "spark": "Spark does not answer",
}


@dataclass(frozen=True, slots=True)
class Incident:
    """What an alert says. ``records`` is how large the damage is, to notice when it grows;
    ``stops`` is what an outage stops."""

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
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """``incident`` is None where all is well; ``pending`` where nothing can be said yet. ``at`` is
    when it was judged, in ISO 8601; empty means at this moment."""

    source: str
    incident: Incident | None = None
    pending: bool = False
    at: str = ""


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """An incident that was triggered and is not resolved.

    ``sources``: {source: when it was last judged bad}. ``said`` and ``said_records``: all offsets
    that its alerts named, as [partition, start, end), and the most records that one named.
    """

    incident: Incident
    sources: dict[str, str]
    opened_at: str
    said_records: int
    said: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Incidents:
    """The open incidents by their key; a value, to be kept between calls."""

    open: dict[str, OpenIncident] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """JSON types, to be kept in a file."""
        return {"v": INCIDENTS_VERSION, "open": {k: asdict(o) for k, o in self.open.items()}}

    @classmethod
    def from_document(cls, raw: Mapping[str, Any] | None) -> Incidents:
        """The reverse of ``document``; nothing gives none. Raises ValueError for others."""
        if not raw:
            return cls()
        if raw.get("v") != INCIDENTS_VERSION:
            raise ValueError(
                f"incidents of version {raw.get('v')}: this code reads {INCIDENTS_VERSION}"
            )
        try:
            return cls({key: _opened(entry) for key, entry in raw["open"].items()})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not incidents: {error!r}") from error


def _opened(entry: Mapping[str, Any]) -> OpenIncident:
    incident = dict(entry["incident"])
    incident["links"] = tuple((address, text) for address, text in incident["links"])
    incident["stops"] = tuple(incident["stops"])
    return OpenIncident(**{**entry, "incident": Incident(**incident)})


def advance(
    incidents: Incidents, observations: Iterable[Observation], now: datetime
) -> tuple[Incidents, list[dict[str, Any]]]:
    """Apply observations in their order; the incidents then open, and alerts to send."""
    opened = dict(incidents.open)
    alerts: list[dict[str, Any]] = []
    for observation in observations:
        if observation.pending:
            continue
        at = observation.at or to_iso(now)
        wanted = observation.incident
        for key in [k for k, o in opened.items() if observation.source in o.sources]:
            if wanted is None or key != wanted.dedup_key:
                alerts += _withdraw(opened, key, observation.source, at, now)
        if wanted is not None:
            alerts += _open_or_grow(opened, wanted, observation.source, at, now)
    alerts = _collapsed(opened, alerts, now)
    return Incidents(opened), alerts


def _collapsed(
    opened: dict[str, OpenIncident], alerts: Sequence[dict[str, Any]], now: datetime
) -> list[dict[str, Any]]:
    """Of triggers that follow each other the last one, which says all; an outage's with everything
    that these observations found it to stop."""
    kept: list[dict[str, Any]] = []
    for number, alert in enumerate(alerts):
        key, triggers = alert["dedup_key"], alert["event_action"] == "trigger"
        following = next((a for a in alerts[number + 1 :] if a["dedup_key"] == key), None)
        if triggers and following is not None and following["event_action"] == "trigger":
            continue
        if triggers and following is None and opened[key].incident.group == OUTAGE:
            known = opened[key]
            opened[key] = replace(known, said_records=len(known.incident.stops))
            kept.append(to_alert(known.incident, "trigger", now))
        else:
            kept.append(alert)
    return kept


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
    at: str = "",
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
        at=at,
    )


def outage(
    cluster: str,
    service: str,
    source: str,
    *,
    stops: str,
    error: str = "",
    links: Sequence[tuple[str, str]] = (),
    at: str = "",
) -> Observation:
    """``source`` failed because ``service`` (a key of ``SERVICES``) does not answer: one incident
    for all that it stops. ``stops`` says in a few words what that is here."""
    return Observation(
        source,
        Incident(
            dedup_key=f"{OUTAGE}:{cluster}:{service}",
            summary=f"{SERVICES[service]}: {error}" if error else SERVICES[service],
            severity="critical",
            source=f"{cluster}/{service}",
            component=service,
            group=OUTAGE,
            class_=service,
            links=tuple(links),
            stops=(stops,),
        ),
        at=at,
    )


def answered(incidents: Incidents, service: str, now: datetime) -> list[Observation]:
    """The service answers: what this proves of the sources of its outage, by ``OUTAGE_QUIET``."""
    return [
        Observation(source, at=to_iso(now))
        for opened in incidents.open.values()
        if opened.incident.group == OUTAGE and opened.incident.class_ == service
        for source, bad_at in opened.sources.items()
        if now - from_iso(bad_at) >= OUTAGE_QUIET
    ]


def to_alert(incident: Incident, action: str, now: datetime, since: str = "") -> dict[str, Any]:
    """PagerDuty Events API v2 without its routing key: ``action`` is trigger or resolve."""
    summary = incident.summary
    details = dict(incident.details)
    if incident.stops:
        details["stops"] = list(incident.stops)
    if action == "resolve":
        summary = f"resolved: {summary}"
        details = {key: value for key, value in details.items() if key not in OVER_AT_RESOLVE}
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


def _open_or_grow(
    opened: dict[str, OpenIncident], incident: Incident, source: str, at: str, now: datetime
) -> list[dict[str, Any]]:
    known = opened.get(incident.dedup_key)
    if known is None:
        opened[incident.dedup_key] = OpenIncident(
            incident, {source: at}, to_iso(now), _size(incident), _said([], incident)
        )
        return [to_alert(incident, "trigger", now)]
    last = max(at, known.sources.get(source, at), key=from_iso)
    sources = {**known.sources, source: last}
    if incident.group == OUTAGE:
        stops = tuple(sorted({*known.incident.stops, *incident.stops}))[:STOPS_MAX]
        incident = replace(known.incident, stops=stops)
        grown = len(stops) >= 2 * known.said_records
    else:
        grown = _exceeds(known, incident)
    opened[incident.dedup_key] = OpenIncident(
        incident=incident if grown or incident.group == OUTAGE else known.incident,
        sources=sources,
        opened_at=known.opened_at,
        said_records=max(known.said_records, _size(incident)) if grown else known.said_records,
        said=_said(known.said, incident) if grown else known.said,
    )
    return [to_alert(incident, "trigger", now)] if grown else []


def _size(incident: Incident) -> int:
    return len(incident.stops) if incident.group == OUTAGE else incident.records


def _exceeds(known: OpenIncident, incident: Incident) -> bool:
    """More records than any alert named, or offsets that none did."""
    if incident.records > known.said_records:
        return True
    if len(known.said) >= SAID_RANGES_MAX:
        return False
    return not covers(_ranges(known.said), _named(incident))


def _said(said: Sequence[Sequence[int]], incident: Incident) -> list[list[int]]:
    """All offsets named so far, as short as they can be written."""
    found = merge([*_ranges(said), *_named(incident)])
    return [[r.partition, r.start, r.end] for r in found[:SAID_RANGES_MAX]]


def _named(incident: Incident) -> list[OffsetRange]:
    return [r for kind in RANGE_KEYS for r in _ranges(incident.details.get(kind))]


def _ranges(listed: Sequence[Sequence[int]] | None) -> list[OffsetRange]:
    return [OffsetRange(*entry) for entry in listed or ()]


def _withdraw(
    opened: dict[str, OpenIncident], key: str, source: str, at: str, now: datetime
) -> list[dict[str, Any]]:
    """The source is no longer bad, if that was judged after it was found bad."""
    known = opened[key]
    if from_iso(at) < from_iso(known.sources[source]):
        return []
    sources = {name: bad for name, bad in known.sources.items() if name != source}
    if sources:
        opened[key] = replace(known, sources=sources)
        return []
    del opened[key]
    return [to_alert(known.incident, "resolve", now, known.opened_at)]
