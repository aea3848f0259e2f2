"""The monitoring events that can speak of a window, and the judgement by them.

What is stored after a window was frozen is acknowledged after it, so the events about a window lie
behind the place where the audit topic stood when the last complete window before it was frozen:
the end of an audit window frozen before that one had closed. They are read from the broker while it
holds them, else from bronze of the audit topic. Events that come later than twice the grace are not
waited for: the reading of an old window is bounded and always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock_client.audit import AuditFormatError, MonitoringEvent
from penstock_platform.domain.books import EquationResult
from penstock_platform.domain.claims import StoredRecords, producers_of, tails
from penstock_platform.domain.clock import Clock, from_iso, to_iso
from penstock_platform.domain.evidence import Circumstances, produced_equals_stored
from penstock_platform.domain.ranges import OffsetRange, count, intersect, subtract
from penstock_platform.domain.topics import AUDIT_TOPIC, TopicSpec, bronze_table
from penstock_platform.domain.windows import PartitionOffsets, TopicRef, Window
from penstock_platform.resources.kafka import UnknownTopicError
from penstock_platform.resources.windows import WindowStore

# Reads the values of bronze rows: (table, window id) to (partition, offset, value) in any order.
BronzeValues = Callable[[str, str], Iterator[tuple[int, int, bytes | None]]]
# Reads stored records: the windows to look in, and the offsets that are wanted, by partition.
StoredReader = Callable[[Sequence[Window], Sequence[OffsetRange]], Mapping[int, StoredRecords]]


class Valued(Protocol):
    """A record as the consumer gives it."""

    def value(self) -> bytes | None: ...


class EvidenceSource(Protocol):
    """What is asked of the cluster; ``KafkaCluster`` answers."""

    def ref(self, topic: str) -> TopicRef: ...

    def offsets(self, topic: str) -> dict[int, PartitionOffsets]: ...

    def read_range(self, topic: str, ranges: Sequence[OffsetRange]) -> Iterator[Valued]: ...


@dataclass(frozen=True, slots=True)
class EvidenceRead:
    """Events, and what was read to find them, for the book."""

    events: tuple[MonitoringEvent, ...]
    ranges: tuple[OffsetRange, ...] = ()
    from_lake: int = 0
    malformed: int = 0
    unavailable: int = 0

    def told(self, at: datetime) -> dict[str, int | str]:
        """For the book's ``evidence``."""
        spans = ", ".join(f"{r.partition}:{r.start}-{r.end}" for r in self.ranges)
        return {
            "audit_ranges": spans,
            "events": len(self.events),
            "events_from_lake": self.from_lake,
            "events_malformed": self.malformed,
            "events_unavailable": self.unavailable,
            "read_at": to_iso(at),
        }


class EvidenceReader:
    """Finds and reads the events about a window."""

    def __init__(
        self,
        kafka: EvidenceSource,
        store: WindowStore,
        clock: Clock,
        bronze_values: BronzeValues | None = None,
    ) -> None:
        self._kafka = kafka
        self._store = store
        self._clock = clock
        self._bronze_values = bronze_values

    def judge(
        self,
        window: Window,
        spec: TopicSpec,
        stored: StoredReader,
        unlanded: Sequence[OffsetRange] = (),
    ) -> tuple[EquationResult, dict[str, int | str]]:
        """Equation 2 for a window: its outcome, and what was read, for the book.

        ``unlanded`` are the offsets that equation 1 misses in the lake.
        """
        read = self.read(window, spec)
        # After the events: whatever they claim was in the log when its end is asked for.
        log_ends = {p: o.high_watermark for p, o in self._kafka.offsets(window.topic).items()}
        before = tails(window, producers_of(window.topic, read.events))
        windows = [*self._covering(window, before), window]
        records = stored(windows, [*before, *window.ranges])
        now = self._clock.now()
        result = produced_equals_stored(
            window,
            records,
            read.events,
            Circumstances(now=now, grace=spec.audit.grace, log_ends=log_ends, unlanded=unlanded),
        )
        return result, read.told(now)

    def read(self, window: Window, spec: TopicSpec) -> EvidenceRead:
        """The events that can speak of this window. Without an audit topic there are none."""
        try:
            audit = self._kafka.ref(AUDIT_TOPIC)
            offsets = self._kafka.offsets(AUDIT_TOPIC)
        except UnknownTopicError:
            return EvidenceRead(())
        first = self._audit_place(audit, self._known_since(window))
        until = from_iso(window.frozen_at) + 2 * spec.audit.grace
        last = self._first_frozen_from(audit, until)
        ends = {p.p: p.end for p in last.partitions} if last else {}
        wanted = [
            OffsetRange(p, first.get(p, 0), max(first.get(p, 0), ends.get(p, o.last_stable)))
            for p, o in sorted(offsets.items())
        ]
        in_log = [OffsetRange(p, o.log_start, 2**62) for p, o in offsets.items()]
        old = subtract(wanted, in_log)
        values = [m.value() for m in self._kafka.read_range(AUDIT_TOPIC, intersect(wanted, in_log))]
        landed = list(self._from_lake(audit, old)) if old else []
        events: list[MonitoringEvent] = []
        malformed = 0
        for value in (*landed, *values):
            try:
                events.append(MonitoringEvent.from_bytes(value or b""))
            except AuditFormatError:  # anybody may write to a topic; what is no event says nothing
                malformed += 1
        return EvidenceRead(
            events=tuple(events),
            ranges=tuple(wanted),
            from_lake=len(landed),
            malformed=malformed,
            unavailable=count(old) - len(landed),
        )

    # --- inside -------------------------------------------------------------------------------

    def _known_since(self, window: Window) -> datetime | None:
        """A time before which nothing of this window was stored; None when there is no such."""
        sequence = window.sequence
        while sequence > 0:
            sequence -= 1
            before = self._store.get(window.ref, sequence)
            if before is not None and before.complete:
                return from_iso(before.closed_at)
        return self._store.begun_at(window.ref)

    def _audit_place(self, audit: TopicRef, since: datetime | None) -> dict[int, int]:
        """Where the audit topic's newest window frozen by then ends, per partition."""
        if since is None:
            return {}
        after = self._first_frozen_from(audit, since)
        if after is None:
            last = self._store.newest(audit)
        else:
            last = self._store.get(audit, after.sequence - 1) if after.sequence else None
        return {p.p: p.end for p in last.partitions} if last else {}

    def _first_frozen_from(self, audit: TopicRef, moment: datetime) -> Window | None:
        """The first audit window frozen at or after that moment; None when none is yet."""
        newest = self._store.newest(audit)
        low, high = 0, newest.sequence + 1 if newest else 0
        while low < high:
            middle = (low + high) // 2
            window = self._store.get(audit, middle)
            if window is None or from_iso(window.frozen_at) >= moment:
                high = middle
            else:
                low = middle + 1
        return self._store.get(audit, low)

    def _from_lake(self, audit: TopicRef, wanted: Sequence[OffsetRange]) -> Iterator[bytes | None]:
        if self._bronze_values is None:
            return
        by_partition: dict[int, list[OffsetRange]] = {}
        for r in wanted:
            by_partition.setdefault(r.partition, []).append(r)
        for window in self._store.all(audit, self._first_holding(audit, wanted)):
            overlap = intersect(window.ranges, wanted)
            if overlap:
                for p, offset, value in self._bronze_values(
                    bronze_table(AUDIT_TOPIC), window.window_id
                ):
                    if any(offset in r for r in by_partition.get(p, ())):
                        yield value
            elif all(_behind(window, r) for r in wanted):
                return

    def _first_holding(self, audit: TopicRef, wanted: Sequence[OffsetRange]) -> int:
        """The first audit window that ends beyond the start of one of these ranges."""
        newest = self._store.newest(audit)
        low, high = 0, newest.sequence if newest else 0
        while low < high:
            middle = (low + high) // 2
            window = self._store.get(audit, middle)
            ends = {p.p: p.end for p in window.partitions} if window else {}
            if any(ends.get(r.partition, 0) > r.start for r in wanted):
                high = middle
            else:
                low = middle + 1
        return low

    def _covering(self, window: Window, wanted: Sequence[OffsetRange]) -> list[Window]:
        """The windows before this one that hold these offsets, oldest first."""
        found: list[Window] = []
        left = tuple(wanted)
        sequence = window.sequence
        while left and sequence > 0:
            sequence -= 1
            before = self._store.get(window.ref, sequence)
            if before is None:
                break
            if intersect(before.ranges, left):
                found.append(before)
            left = subtract(left, before.ranges)
        return found[::-1]


def _behind(window: Window, r: OffsetRange) -> bool:
    """Does the window begin at or after the end of this range?"""
    return any(p.p == r.partition and p.start >= r.end for p in window.partitions)
