"""The check ``events_readable``: which share of the records in the audit topic is no event.

Looks at the newest frozen window of the audit topic, at most ``EVENTS_MAX`` of its records. Any
malformed record fails the check as a warning; a share above ``MALFORMED_SHARE_MAX`` fails it as an
error, which makes an incident: then evidence is lost, or forged.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import dagster as dg

from penstock_platform.connections import Connections
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.audit_events import MalformedEvent, parse_event
from penstock_platform.topics.metadata import table
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore

EVENTS_READABLE = "events_readable"
EVENTS_MAX = 20_000
MALFORMED_SHARE_MAX = 0.01
SOURCES_MAX = 20
SOURCE_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("source", "string", "The producer's name in the records"),
        dg.TableColumn("records", "int", "How many are malformed"),
        dg.TableColumn("reason", "string", "Reason, for the first"),
        dg.TableColumn("place", "string", "Offset of the first"),
    ]
)


def events_readable(penstock: Connections, plan: TopicPlan) -> dg.AssetCheckResult:
    """Judge the newest window of the audit topic. Raises ClusterError."""
    window = WindowStore.of(penstock).newest(penstock.kafka.ref(plan.name))
    ranges = readable_ranges(penstock, plan, window) if window is not None else []
    events = 0
    malformed: list[MalformedEvent] = []
    for message in penstock.kafka.read_range(plan.name, ranges):
        found = parse_event(message.partition() or 0, message.offset() or 0, message.value())
        events += 1
        if isinstance(found, MalformedEvent):
            malformed.append(found)
    return judged(plan.topic_key, events, malformed)


def judged(key: dg.AssetKey, events: int, malformed: list[MalformedEvent]) -> dg.AssetCheckResult:
    """The check's result for so many records, of which these are malformed."""
    share = len(malformed) / events if events else 0.0
    by_source = Counter(event.source for event in malformed)
    first = {event.source: event for event in reversed(malformed)}
    rows: list[dict[str, Any]] = [
        {
            "source": source,
            "records": number,
            "reason": first[source].reason,
            "place": f"partition {first[source].partition} offset {first[source].offset}",
        }
        for source, number in by_source.most_common(SOURCES_MAX)
    ]
    worst = f"; most of them from {rows[0]['source']}: {rows[0]['reason']}" if rows else ""
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=EVENTS_READABLE,
        passed=not malformed,
        severity=dg.AssetCheckSeverity.ERROR
        if share > MALFORMED_SHARE_MAX
        else dg.AssetCheckSeverity.WARN,
        description=f"{len(malformed):,} of {events:,} records in the newest window are no "
        f"readable monitoring events{worst}",
        metadata={
            "events": events,
            "malformed": len(malformed),
            "malformed_share": share,
            "sources": table(rows, SOURCE_SCHEMA),
        },
    )


def readable_ranges(penstock: Connections, plan: TopicPlan, window: Window) -> list[OffsetRange]:
    """The last offsets of the window that the log still has, ``EVENTS_MAX`` over all partitions."""
    starts = {p: o.log_start for p, o in penstock.kafka.offsets(plan.name).items()}
    each = max(1, EVENTS_MAX // max(1, len(window.ranges)))
    ranges = []
    for r in window.ranges:
        start = max(r.start, r.end - each, starts.get(r.partition, r.end))
        if start < r.end:
            ranges.append(OffsetRange(r.partition, start, r.end))
    return ranges
