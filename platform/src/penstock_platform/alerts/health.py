"""Gathers what ``model/chain_health`` judges. Reads offsets and small objects, changes nothing.

Whatever does not answer becomes a fact, never an exception: the alert sensor, ``penstock audit``
and ``penstock status`` have to work when nothing else does. Every call here has a time limit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock_platform.alerts.model.chain_health import (
    ChainFacts,
    Parsed,
    PlatformFacts,
    WaitingWindow,
)
from penstock_platform.archive.store import ArchiveError
from penstock_platform.kafka.errors import ClusterError, UnknownTopicError
from penstock_platform.kafka.model import PartitionOffsets, TopicRef
from penstock_platform.reconciliation.model.books import Book, Equation
from penstock_platform.reconciliation.recreation import known_lost
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.retention.model.log import Disk
from penstock_platform.topics.model.declaration import TopicSpec
from penstock_platform.windows.model.window import ChainError, Window
from penstock_platform.windows.store import WindowStore

if TYPE_CHECKING:
    from penstock_platform.connections import Connections
    from penstock_platform.settings import Settings

# A landing that is further back is behind all of these; the oldest of them says so.
WINDOWS_LOOKED_AT = 50
DECIDED_MAX = 100_000
# Of the windows of one topic that have no result, those with a landing that was given up.
Abandoned = Callable[[TopicSpec, Sequence[Window]], Sequence[WaitingWindow]]


class HealthReader:
    """Reads the facts of topics. Remembers which windows have results, for these stay."""

    def __init__(self, penstock: Connections, windows: int = WINDOWS_LOOKED_AT) -> None:
        self._penstock = penstock
        self._windows = windows
        self._decided: dict[tuple[str, int], Parsed | None] = {}

    def services(self) -> PlatformFacts:
        """Whether broker and object store answer, and how much disk is left here."""
        broker = store = ""
        try:
            self._penstock.kafka.cluster_id()
        except ClusterError as error:
            broker = str(error)
        try:
            self._penstock.archive.ping()
        except ArchiveError as error:
            store = str(error)
        return PlatformFacts(broker=broker, store=store, disks=disks_of(self._penstock.settings))

    def chain(
        self, topic: str, spec: TopicSpec | None, abandoned: Abandoned | None = None
    ) -> ChainFacts:
        """The facts about one topic; ``unanswered`` where a service did not answer."""
        try:
            return self._chain(topic, spec, abandoned)
        except (ArchiveError, ClusterError):
            return ChainFacts(topic, spec, unanswered=True)
        except (ChainError, ValueError) as error:  # an object of a format that is none
            ref = self._ref(topic)
            known = (ref.topic_id,) if ref is not None else ("",)
            return ChainFacts(topic, spec, ref, known, unreadable=str(error))

    def _ref(self, topic: str) -> TopicRef | None:
        try:
            return self._penstock.kafka.ref(topic)
        except UnknownTopicError:
            return None

    def _chain(self, topic: str, spec: TopicSpec | None, abandoned: Abandoned | None) -> ChainFacts:
        kafka, store = self._penstock.kafka, WindowStore.of(self._penstock)
        cluster_id = kafka.cluster_id()
        ref = self._ref(topic)
        incarnations = tuple(store.incarnations(cluster_id, topic))
        chain_of = TopicRef(cluster_id, topic, incarnations[-1]) if incarnations else None
        newest = store.newest(chain_of) if chain_of is not None else None
        common = ChainFacts(
            topic,
            spec,
            ref,
            incarnations,
            start=store.known_start(self._penstock.settings.cluster, topic),
            newest=newest,
        )
        if chain_of is not None and ref != chain_of:
            return replace(common, lost=known_lost(self._penstock, chain_of, spec))
        if ref is None:
            return common
        offsets = kafka.offsets(topic)
        waiting = list(self._waiting(ref, newest, spec))
        return ChainFacts(
            topic,
            spec,
            ref,
            incarnations,
            start=common.start,
            newest=newest,
            stored=sum(o.last_stable - o.log_start for o in offsets.values()),
            unfrozen=_unfrozen(newest, offsets),
            waiting=self._tried(spec, waiting, abandoned),
            oldest_in_log=self._oldest_in_log(ref, newest, offsets),
            parsed=self._parsed(ref, newest),
        )

    def _tried(
        self, spec: TopicSpec | None, waiting: Sequence[Window], abandoned: Abandoned | None
    ) -> Sequence[WaitingWindow]:
        if spec is not None and abandoned is not None and waiting:
            return abandoned(spec, waiting)
        return [WaitingWindow(window) for window in waiting]

    def _waiting(
        self, ref: TopicRef, newest: Window | None, spec: TopicSpec | None
    ) -> Iterator[Window]:
        """Of the newest windows, those with records whose landing has no result; oldest first."""
        end = newest.sequence + 1 if newest is not None else 0
        for sequence in range(max(0, end - self._windows), end):
            window = WindowStore.of(self._penstock).get(ref, sequence)
            if window is None or not window.record_count:
                continue
            if (ref.topic_id, sequence) in self._decided:
                continue
            book = BookStore.of(self._penstock).newest_book(ref, sequence)
            if not _landed(book, spec):
                yield window
                continue
            while len(self._decided) >= DECIDED_MAX:
                self._decided.pop(next(iter(self._decided)))
            self._decided[ref.topic_id, sequence] = _parsed(window, book)

    def _parsed(self, ref: TopicRef, newest: Window | None) -> Parsed | None:
        """The newest window whose contract was judged; what ``_waiting`` has just read."""
        end = newest.sequence + 1 if newest is not None else 0
        for sequence in range(end - 1, max(0, end - self._windows) - 1, -1):
            found = self._decided.get((ref.topic_id, sequence))
            if found is not None:
                return found
        return None

    def _oldest_in_log(
        self, ref: TopicRef, newest: Window | None, offsets: Mapping[int, PartitionOffsets]
    ) -> Window | None:
        """The oldest window with records that the log still has some of."""
        low, high = 0, newest.sequence if newest is not None else -1
        found: Window | None = None
        while low <= high:
            middle = (low + high) // 2
            window = WindowStore.of(self._penstock).get(ref, middle)
            if window is None:
                return found
            held = any(p.end > offsets[p.p].log_start for p in window.partitions if p.p in offsets)
            if held:
                found, high = window, middle - 1
            else:
                low = middle + 1
        return found if found is not None and found.record_count else None


def _landed(book: Book | None, spec: TopicSpec | None) -> bool:
    """Whether the landing got as far as it can: a failed proof is a result too."""
    if book is None:
        return False
    landed = book.judged(Equation.STORED_EQUALS_LANDED)
    if landed is None:
        return False
    parses = spec is not None and spec.contract is not None
    parsed = book.judged(Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED)
    return not parses or parsed is not None or not landed.balanced


def _parsed(window: Window, book: Book | None) -> Parsed | None:
    tiers = book.tiers if book is not None else {}
    if "parsed" not in tiers or "quarantined" not in tiers:
        return None
    return Parsed(window.name, tiers["parsed"], tiers["quarantined"])


def _unfrozen(newest: Window | None, offsets: Mapping[int, PartitionOffsets]) -> int:
    ends = {p.p: p.end for p in newest.partitions} if newest is not None else {}
    return sum(max(0, o.last_stable - ends.get(p, o.log_start)) for p, o in offsets.items())


def disks_of(settings: Settings) -> dict[str, Disk]:
    """The disk under the state directory: the log's and the lake's too where they are ours."""
    try:
        usage = shutil.disk_usage(settings.home)
    except OSError:
        return {}
    return {"the state directory": Disk(usage.total, usage.free)}
