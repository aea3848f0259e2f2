"""Whether anything came for a PENDING window since it was judged; else it is not read again.

The audit topic's events since the judgement are read once for all windows of a look; they are few.
A window is judged again when one of them claims something of it or gives up records of its topic,
when the grace is over, or when it waits for something else than evidence.
"""

from __future__ import annotations

from penstock_platform.clock import from_iso
from penstock_platform.connections import Connections
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.ranges import OffsetRange, count
from penstock_platform.reconciliation.model.audit_events import PlacedEvent, parse_event
from penstock_platform.reconciliation.model.books import Book, Equation, WindowState
from penstock_platform.reconciliation.model.late_claims import concerned, read_until
from penstock_platform.topics.model.declaration import AUDIT_TOPIC, TopicSpec
from penstock_platform.windows.model.window import Window

# More events than that are not looked at: then every window is judged again.
EVENTS_MAX = 5_000


class NewEvidence:
    """The events of one look of the evidence sensor."""

    def __init__(self, penstock: Connections) -> None:
        self._penstock = penstock
        self._events: list[PlacedEvent] = []
        # By partition of the audit topic from where on, and how far, events were read.
        self._from: dict[int, int] | None = None
        self._ends: dict[int, int] = {}
        self._unclear = False

    def came_for(self, window: Window, spec: TopicSpec, book: Book) -> bool:
        """Whether the window has to be judged again. Raises ClusterError."""
        result = book.judged(Equation.PRODUCED_EQUALS_STORED)
        if result is None or any(
            f.kind != "pending" for f in result.findings if f.state is WindowState.PENDING
        ):
            return True
        age = self._penstock.clock.now() - from_iso(window.frozen_at)
        known = read_until(str(book.evidence.get("audit_ranges", "")))
        if age >= spec.audit.grace or not known:
            return True
        self._read(known)
        if self._unclear:
            return True
        mine = [e for e in self._events if e.offset >= known.get(e.partition, 0)]
        gave_up = any(a.failed for e in mine for a in e.event.topics if a.topic == window.topic)
        if gave_up or not mine:
            return gave_up
        offsets = self._penstock.kafka.offsets(window.topic)
        return bool(concerned([window], mine, {p: o.high_watermark for p, o in offsets.items()}))

    def _read(self, known: dict[int, int]) -> None:
        """Read what is missing from these places on."""
        if self._from is None:
            try:
                offsets = self._penstock.kafka.offsets(AUDIT_TOPIC)
            except UnknownTopicError:
                self._unclear, self._from = True, {}
                return
            self._ends = {p: o.last_stable for p, o in offsets.items()}
            self._from = dict(self._ends)
        wanted = []
        for p, end in self._ends.items():
            first = min(known.get(p, 0), end)
            if first < self._from[p]:
                wanted.append(OffsetRange(p, first, self._from[p]))
                self._from[p] = first
        if self._unclear or len(self._events) + count(wanted) > EVENTS_MAX:
            self._unclear = True
            return
        for message in self._penstock.kafka.read_range(AUDIT_TOPIC, wanted):
            found = parse_event(message.partition() or 0, message.offset() or 0, message.value())
            if isinstance(found, PlacedEvent):
                self._events.append(found)
            else:
                self._unclear = True  # it may have been about any window
