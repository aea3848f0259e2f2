"""The monitoring events that can concern a window, and the judgement by them.

What is stored after a window was frozen is acknowledged after it, so the events about a window lie
behind the place where the audit topic ended when the last complete window before it was frozen:
the end of an audit window frozen before that one had closed. They are read from the broker while it
holds them, else from bronze of the audit topic. Events that come later than ``HORIZON_GRACES``
graces after the freeze are not read: the reading of an old window is bounded and always the same.

What cannot be read (events that are nowhere any more, no audit topic, malformed records) is handed
to the judgement, which never calls a window BALANCED where it may matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Protocol

from penstock_client.audit import MonitoringEvent
from penstock_platform.clock import Clock, from_iso, to_iso
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.kafka.model import PartitionOffsets, TopicRef
from penstock_platform.ranges import (
    OffsetRange,
    Spans,
    by_partition,
    count,
    intersect,
    merge,
    subtract,
)
from penstock_platform.reconciliation.confirmation import ClaimReader, look_at
from penstock_platform.reconciliation.model.audit_events import (
    MalformedEvent,
    PlacedEvent,
    about,
    incredible,
    parse_event,
)
from penstock_platform.reconciliation.model.books import Equation, EquationResult
from penstock_platform.reconciliation.model.claims import StoredRecords, producers_of, tails
from penstock_platform.reconciliation.model.confirmed import NOTHING_CONFIRMED, Confirmed
from penstock_platform.reconciliation.model.evidence import Circumstances, produced_equals_stored
from penstock_platform.reconciliation.model.overlap import (
    claims_within,
    shared_ranges,
    without_claims_of,
)
from penstock_platform.reconciliation.model.unjudged import EvidenceGaps
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import AUDIT_TOPIC, TopicSpec, bronze_table
from penstock_platform.windows.model.truncation import Cut, lost_ranges
from penstock_platform.windows.model.window import Window, WindowPartition
from penstock_platform.windows.store import WindowStore

# Events are read that came until so many graces after a window was frozen.
HORIZON_GRACES = 4
# So many malformed records are counted by source; more count as events that are away.
MALFORMED_MAX = 10_000
MALFORMED_SOURCES_IN_BOOK = 5
# More records than that are looked at where they are (36 bytes each if they are read).
RECORDS_READ_MAX = 500_000
# Reads the values of bronze rows: (table, window id) to (partition, offset, value) in any order.
BronzeValues = Callable[[str, str], Iterator[tuple[int, int, bytes | None]]]
# Reads stored records: the windows to look in, and the offsets that are wanted, by partition.
StoredReader = Callable[[Sequence[Window], Sequence[OffsetRange]], Mapping[int, StoredRecords]]


class Valued(Protocol):
    """A record as the consumer gives it."""

    def value(self) -> bytes | None: ...

    def partition(self) -> int | None: ...

    def offset(self) -> int | None: ...


class EvidenceSource(Protocol):
    """What is asked of the cluster; ``KafkaCluster`` answers."""

    def ref(self, topic: str) -> TopicRef: ...

    def offsets(self, topic: str) -> dict[int, PartitionOffsets]: ...

    def read_range(self, topic: str, ranges: Sequence[OffsetRange]) -> Iterator[Valued]: ...


@dataclass(frozen=True, slots=True)
class EvidenceRead:
    """Events about one topic, and what was read to find them, for the book.

    ``unavailable`` counts events that are neither in the log nor in the lake any more.
    """

    placed: tuple[PlacedEvent, ...]
    ranges: tuple[OffsetRange, ...] = ()
    from_lake: int = 0
    malformed: tuple[MalformedEvent, ...] = ()
    unavailable: int = 0
    audit_topic_missing: bool = False

    @property
    def events(self) -> tuple[MonitoringEvent, ...]:
        return tuple(placed.event for placed in self.placed)

    def credible(self, window: Window, log_ends: Mapping[int, int]) -> EvidenceRead:
        """The same without the events that claim what the topic's log cannot have held."""
        placed: list[PlacedEvent] = []
        malformed = list(self.malformed)
        for one in self.placed:
            wrong = incredible(one, window, log_ends)
            if wrong is None:
                placed.append(one)
            else:
                malformed.append(wrong)
        return replace(self, placed=tuple(placed), malformed=tuple(malformed))

    def summary(self, at: datetime) -> dict[str, int | str]:
        """For the book's ``evidence``."""
        spans = ", ".join(f"{r.partition}:{r.start}-{r.end}" for r in self.ranges)
        by_source = Counter(event.source for event in self.malformed)
        return {
            "audit_ranges": spans,
            "events": len(self.placed),
            "events_from_lake": self.from_lake,
            "events_malformed": len(self.malformed),
            "malformed_sources": "; ".join(
                f"{source}: {number}"
                for source, number in by_source.most_common(MALFORMED_SOURCES_IN_BOOK)
            ),
            "events_unavailable": self.unavailable,
            "read_at": to_iso(at),
        }


class EvidenceReader:
    """Finds and reads the events about a window."""

    def __init__(
        self,
        kafka: EvidenceSource,
        store: WindowStore,
        books: BookStore,
        clock: Clock,
        bronze_values: BronzeValues | None = None,
    ) -> None:
        self._kafka = kafka
        self._store = store
        self._books = books
        self._clock = clock
        self._bronze_values = bronze_values

    def judge(
        self,
        window: Window,
        spec: TopicSpec,
        stored: StoredReader,
        unlanded: Sequence[OffsetRange] = (),
        large: Callable[[], ClaimReader] | None = None,
    ) -> tuple[EquationResult, dict[str, int | str]]:
        """Equation 2 for a window: its outcome, and what was read, for the book.

        ``unlanded`` are the offsets that equation 1 misses in the lake. ``large`` opens what looks
        at more than ``RECORDS_READ_MAX`` records; without it they are all read by ``stored``.
        """
        read = self.read(window, spec)
        # After the events: whatever they claim was in the log when its end is asked for.
        log_ends = {p: o.high_watermark for p, o in self._kafka.offsets(window.topic).items()}
        cuts = self._store.cuts(window.ref)
        reached = dict(log_ends)  # before it was cut, a log held more than it does now
        for p, end in [(p.p, p.end) for p in window.partitions] + [
            (cut.partition, cut.previous_end) for cut in cuts
        ]:
            reached[p] = max(reached.get(p, 0), end)
        read = self._own_claims(window, read.credible(window, reached), stored, cuts)
        producers = producers_of(window.topic, read.events, window.topic_id)
        before = tails(window, producers)
        covering = self._covering(window, before)
        wanted = [*before, *window.ranges]
        confirmed = NOTHING_CONFIRMED
        if large is not None and count(wanted) > RECORDS_READ_MAX:
            records, confirmed = look_at(large(), [*covering, window], wanted, producers)
        else:
            records = stored([*covering, window], wanted)
        awaited = self._not_landed(covering)
        if not spec.compacted:  # of a compacted topic a record may be gone for good
            awaited += self._not_there(covering, before, records, confirmed)
        now = self._clock.now()
        evidence_gaps = EvidenceGaps(
            audit_topic_missing=read.audit_topic_missing,
            unavailable=read.unavailable,
            malformed=read.malformed,
            awaited=intersect(before, awaited),
        )
        result = produced_equals_stored(
            window,
            records,
            read.events,
            Circumstances(
                now=now,
                grace=spec.audit.grace,
                log_ends=log_ends,
                unlanded=unlanded,
                gaps=evidence_gaps,
            ),
            confirmed,
        )
        return result, read.summary(now)

    def read(self, window: Window, spec: TopicSpec) -> EvidenceRead:
        """The events that can concern this window, with what they say of its topic."""
        try:
            audit = self._kafka.ref(AUDIT_TOPIC)
            offsets = self._kafka.offsets(AUDIT_TOPIC)
        except UnknownTopicError:
            return EvidenceRead((), audit_topic_missing=True)
        since = self._known_since(window)
        first = self._audit_place(audit, since)
        until = from_iso(window.frozen_at) + HORIZON_GRACES * spec.audit.grace
        last = self._first_frozen_from(audit, until)
        ends = {p.p: p.end for p in last.partitions} if last else {}
        wanted = [
            OffsetRange(p, first.get(p, 0), max(first.get(p, 0), ends.get(p, o.last_stable)))
            for p, o in sorted(offsets.items())
        ]
        in_log = [OffsetRange(p, o.log_start, 2**62) for p, o in offsets.items()]
        old = subtract(wanted, in_log)
        landed: set[tuple[int, int]] = set()
        placed: list[PlacedEvent] = []
        malformed: list[MalformedEvent] = []
        overflow = 0
        accounted = self._accounts_of(window)
        for partition, offset, value in chain(
            self._from_lake(audit, old, landed), self._from_log(intersect(wanted, in_log))
        ):
            found = parse_event(partition, offset, value)
            if isinstance(found, PlacedEvent):
                placed.append(accounted(found))
            elif len(malformed) < MALFORMED_MAX:
                malformed.append(found)
            else:
                overflow += 1
        return EvidenceRead(
            placed=tuple(placed),
            ranges=tuple(wanted),
            from_lake=len(landed),
            malformed=tuple(malformed),
            unavailable=count(old) - len(landed) + overflow,
        )

    # --- inside -------------------------------------------------------------------------------

    def _accounts_of(self, window: Window) -> Callable[[PlacedEvent], PlacedEvent]:
        """Leaves of an event what can concern this incarnation of the topic.

        An account without a topic id is about the incarnation that had a chain when it was sent:
        of a recreated topic, what was sent before its chain began says nothing.
        """
        begun = self._store.begun_at(window.ref)
        nameless_from_ms = 0 if begun is None else round(begun.timestamp() * 1000)

        def accounts(placed: PlacedEvent) -> PlacedEvent:
            return about(placed, window.topic, window.topic_id, nameless_from_ms)

        return accounts

    def _own_claims(
        self, window: Window, read: EvidenceRead, stored: StoredReader, cuts: Sequence[Cut]
    ) -> EvidenceRead:
        """Without the claims on the other records that were, or are, at this window's offsets:
        where the log was cut and grew again."""
        for other in self._overlapping(window, cuts):
            shared = shared_ranges(window, other, cuts)
            wanted = merge(claims_within(read.placed, window.topic, shared))
            before = [
                OffsetRange(r.partition, r.start, min(r.end, p.start))
                for r in wanted
                for p in other.partitions
                if p.p == r.partition and r.start < p.start
            ]
            # Asked for apart: the windows before hold records at the other's offsets too.
            records = [
                stored(windows, ranges)
                for windows, ranges in (
                    (self._covering(other, before), merge(before)),
                    ([other], intersect(wanted, other.ranges)),
                )
                if windows and ranges
            ]
            placed = without_claims_of(read.placed, window.topic, shared, records)
            read = replace(read, placed=placed)
        return read

    def _overlapping(self, window: Window, cuts: Sequence[Cut]) -> Iterator[Window]:
        """The windows of the chain that hold other records at some of this window's offsets."""
        if not cuts:
            return
        newest = self._store.newest(window.ref)
        last = newest.sequence if newest is not None else 0
        # A window that ends before every cut overlaps none; those between are few.
        sequence = max(cut.sequence for cut in cuts if cut.sequence <= last)
        lowest = min(sequence, window.sequence)
        while lowest > 0:
            before = self._store.get(window.ref, lowest - 1)
            if before is None or not lost_ranges(before, cuts):
                break
            lowest -= 1
        for number in range(lowest, last + 1):
            other = self._store.get(window.ref, number)
            if other is not None and number != window.sequence:
                if shared_ranges(window, other, cuts):
                    yield other
                elif number > sequence and all(p.start >= q.end for p, q in _pairs(other, window)):
                    return

    def _known_since(self, window: Window) -> datetime | None:
        """A time before which nothing of this window was stored; None when there is no such."""
        ref, sequence = window.ref, window.sequence
        while True:
            while sequence > 0:
                sequence -= 1
                before = self._store.get(ref, sequence)
                if before is not None and before.complete:
                    return from_iso(before.closed_at)
            # A recreated topic has records from before its chain began, but none from the time in
            # which windows of the former one were frozen.
            ids = self._store.incarnations(ref.cluster_id, ref.topic)
            number = ids.index(ref.topic_id) if ref.topic_id in ids else 0
            if number == 0:
                return None
            ref = TopicRef(ref.cluster_id, ref.topic, ids[number - 1])
            newest = self._store.newest(ref)
            sequence = newest.sequence + 1 if newest is not None else 0

    def _not_landed(self, windows: Sequence[Window]) -> list[OffsetRange]:
        """The offsets of those windows whose landing was not judged yet."""
        waiting: list[OffsetRange] = []
        for window in windows:
            book = self._books.newest_book(window.ref, window.sequence)
            if book is None or book.judged(Equation.STORED_EQUALS_LANDED) is None:
                waiting += window.ranges
        return waiting

    def _not_there(
        self,
        windows: Sequence[Window],
        wanted: Sequence[OffsetRange],
        records: Mapping[int, StoredRecords],
        confirmed: Confirmed,
    ) -> list[OffsetRange]:
        """The wanted offsets of those windows that the table does not have now, whether their books
        know it or not: landing the window again brings them back. Not where a person accepted it.
        """
        absent: list[OffsetRange] = []
        for window in windows:
            book = self._books.newest_book(window.ref, window.sequence)
            if book is not None and book.accepts(Equation.STORED_EQUALS_LANDED):
                continue
            for r in intersect(wanted, window.ranges):
                found = Spans.of_values(records.get(r.partition, StoredRecords.none()).offset)
                known = Spans.at_depth([found, *confirmed.every(r.partition)], 1)
                absent += Spans.of([(r.start, r.end)]).minus(known).ranges(r.partition)
        return absent

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

    def _from_log(self, wanted: Sequence[OffsetRange]) -> Iterator[tuple[int, int, bytes | None]]:
        for message in self._kafka.read_range(AUDIT_TOPIC, wanted):
            yield message.partition() or 0, message.offset() or 0, message.value()

    def _from_lake(
        self, audit: TopicRef, wanted: Sequence[OffsetRange], found: set[tuple[int, int]]
    ) -> Iterator[tuple[int, int, bytes | None]]:
        """What bronze has of these offsets, each once; adds their places to ``found``."""
        if self._bronze_values is None or not wanted:
            return
        spans = by_partition(wanted)
        for window in self._store.all(audit, self._first_holding(audit, wanted)):
            if intersect(window.ranges, wanted):
                for p, offset, value in self._bronze_values(
                    bronze_table(AUDIT_TOPIC), window.window_id
                ):
                    if (p, offset) not in found and any(offset in r for r in spans.get(p, ())):
                        found.add((p, offset))
                        yield p, offset, value
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


def _pairs(one: Window, other: Window) -> Iterator[tuple[WindowPartition, WindowPartition]]:
    entries = {p.p: p for p in other.partitions}
    return ((p, entries[p.p]) for p in one.partitions if p.p in entries)


def _behind(window: Window, r: OffsetRange) -> bool:
    """Does the window begin at or after the end of this range?"""
    return any(p.p == r.partition and p.start >= r.end for p in window.partitions)
