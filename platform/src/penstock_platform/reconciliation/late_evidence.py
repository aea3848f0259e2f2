"""The sensor ``late_evidence``: an event that comes after a window was decided opens it again.

Reads what is new on the audit topic (monitoring events, a few a second; at most ``EVENTS_MAX`` a
look) and requests the judgement of windows that a late claim concerns, until a book has read it or
the window's horizon (``HORIZON_GRACES`` graces after its freeze) is over. The cursor holds the
place in the audit topic and the windows still to be judged, so nothing is lost when a run dies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import dagster as dg

from penstock_platform.archive.store import ArchiveError
from penstock_platform.clock import from_iso
from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import ClusterError, UnknownTopicError
from penstock_platform.kafka.model import TopicRef
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.evidence import HORIZON_GRACES
from penstock_platform.reconciliation.model.audit_events import PlacedEvent, parse_event
from penstock_platform.reconciliation.model.books import Equation, WindowState
from penstock_platform.reconciliation.model.late_claims import concerned, news
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import AUDIT_TOPIC
from penstock_platform.topics.names import Names
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows.model.window import ChainError, Window
from penstock_platform.windows.store import WindowStore

INTERVAL_SECONDS = 30
EVENTS_MAX = 20_000
WINDOWS_MAX = 200
WAITING_MAX = 1000
# A late event is in an audit window that is frozen a little after the horizon.
SLACK = timedelta(minutes=10)

Request = Callable[[dg.DagsterInstance, Any, TopicPlan, Window, float], dg.RunRequest | None]


@dataclass(slots=True)
class LateCursor:
    """``next``: by audit partition the first offset not read. ``waiting``: by topic id and window
    sequence, how far the audit topic has to be read for it."""

    audit_id: str = ""
    next: dict[int, int] = field(default_factory=dict)
    waiting: dict[str, dict[int, dict[int, int]]] = field(default_factory=dict)

    def to_text(self) -> str:
        return json.dumps(
            {"v": 1, "audit_id": self.audit_id, "next": self.next, "waiting": self.waiting},
            separators=(",", ":"),
        )

    @classmethod
    def from_text(cls, text: str | None) -> LateCursor:
        raw = json.loads(text) if text else {}
        if raw.get("v") != 1:
            return cls()
        waiting = {
            topic_id: {int(n): _numbers(places) for n, places in windows.items()}
            for topic_id, windows in raw["waiting"].items()
        }
        return cls(raw["audit_id"], _numbers(raw["next"]), waiting)


def build_late_evidence_sensor(
    plans: Sequence[TopicPlan], jobs: Sequence[Any], request: Request, names: Names
) -> dg.SensorDefinition:
    """``request`` makes the run request for one window (``sensors.evidence_request``)."""

    @dg.sensor(
        name=names.of("late_evidence_sensor"),
        jobs=jobs,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={"penstock"},
        description="Checks windows again if monitoring events arrived after they were decided.",
    )
    def late_evidence_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        penstock: Connections = context.resources.penstock
        cursor = LateCursor.from_text(context.cursor)
        requests: list[dg.RunRequest] = []
        try:
            events = list(new_events(penstock, cursor, longest_horizon(plans)))
        except UnknownTopicError:
            return dg.SensorResult(skip_reason=dg.SkipReason("there is no audit topic yet"))
        except ClusterError as error:
            return dg.SensorResult(skip_reason=dg.SkipReason(f"not yet: {error}"))
        for plan in plans:
            try:
                for window in reopened(penstock, plan, events, cursor):
                    wanted = request(context.instance, penstock.clock, plan, window, 30.0)
                    requests += [wanted] if wanted is not None else []
            except UnknownTopicError:
                continue
            except (ClusterError, ArchiveError, ChainError) as error:
                # The place in the audit topic stays, so that this topic's events are read again.
                context.log.error("%s: %s", plan.name, error)
                return dg.SensorResult(skip_reason=dg.SkipReason(f"{plan.name}: {error}"))
        by_key = {r.run_key: r for r in requests}
        reason = "new events concern no decided window"
        return dg.SensorResult(
            run_requests=list(by_key.values()),
            skip_reason=None if by_key else dg.SkipReason(reason),
            cursor=cursor.to_text(),
        )

    return late_evidence_sensor


def longest_horizon(plans: Sequence[TopicPlan]) -> timedelta:
    return max((HORIZON_GRACES * plan.spec.audit.grace for plan in plans), default=timedelta())


def new_events(
    penstock: Connections, cursor: LateCursor, horizon: timedelta
) -> Iterator[PlacedEvent]:
    """Events that the cursor has not read; moves it. A new cursor begins a horizon ago."""
    audit = penstock.kafka.ref(AUDIT_TOPIC)
    offsets = penstock.kafka.offsets(AUDIT_TOPIC)
    if cursor.audit_id != audit.topic_id:
        since = round((penstock.clock.now() - horizon).timestamp() * 1000)
        found = penstock.kafka.offsets_for_time(AUDIT_TOPIC, since)
        first = {p: found.get(p) for p in offsets}
        cursor.next = {
            p: o.last_stable if first[p] is None else int(first[p] or 0) for p, o in offsets.items()
        }
        cursor.audit_id = audit.topic_id
    space = max(1, EVENTS_MAX // max(1, len(offsets)))
    ranges = []
    for p, o in offsets.items():
        start = max(cursor.next.get(p, 0), o.log_start)
        end = min(o.last_stable, start + space)
        if start < end:
            ranges.append(OffsetRange(p, start, end))
    for message in penstock.kafka.read_range(AUDIT_TOPIC, ranges):
        placed = parse_event(message.partition() or 0, message.offset() or 0, message.value())
        if isinstance(placed, PlacedEvent) and placed.event.topics:
            yield placed
    cursor.next |= {r.partition: r.end for r in ranges}


def reopened(
    penstock: Connections, plan: TopicPlan, events: Sequence[PlacedEvent], cursor: LateCursor
) -> list[Window]:
    """The topic's decided windows that have to be judged again; notes them in the cursor until a
    book has read what concerns them."""
    ref = penstock.kafka.ref(plan.name)
    waiting = cursor.waiting.pop(ref.topic_id, {})
    mine = [e for e in events if any(a.topic == plan.name for a in e.event.topics)]
    if not waiting and not mine:
        return []
    windows = open_windows(penstock, plan, ref)
    ends = {p: o.high_watermark for p, o in penstock.kafka.offsets(plan.name).items()}
    for sequence, places in concerned(windows, mine, ends).items():
        known = waiting.setdefault(sequence, {})
        for p, end in places.items():
            known[p] = max(known.get(p, 0), end)
    by_sequence = {window.sequence: window for window in windows}
    again: list[Window] = []
    left: dict[int, dict[int, int]] = {}
    for sequence, places in sorted(waiting.items())[-WAITING_MAX:]:
        window = by_sequence.get(sequence)
        if window is None:
            continue  # its horizon is over
        book = BookStore.of(penstock).newest_book(ref, sequence)
        result = book.judged(Equation.PRODUCED_EQUALS_STORED) if book is not None else None
        if book is None or result is None or result.state is WindowState.PENDING:
            left[sequence] = places  # its landing or the evidence sensor judges it anyway
        elif news(places, str(book.evidence.get("audit_ranges", ""))):
            left[sequence] = places
            again.append(window)
    if left:
        cursor.waiting[ref.topic_id] = left
    return again


def open_windows(penstock: Connections, plan: TopicPlan, ref: TopicRef) -> list[Window]:
    """The newest windows whose horizon is not over, oldest first."""
    now = penstock.clock.now()
    horizon = HORIZON_GRACES * plan.spec.audit.grace + SLACK
    return [
        window
        for window in WindowStore.of(penstock).recent(ref, WINDOWS_MAX)
        if now - from_iso(window.frozen_at) <= horizon
    ]


def _numbers(raw: dict[str, int]) -> dict[int, int]:
    return {int(p): int(offset) for p, offset in raw.items()}
