"""What a topic that was deleted, or deleted and recreated, took with it, in exact offsets.

Safe is what bronze holds of its windows. Lost is what was frozen and not landed, and what producers
say was acknowledged beyond the chain's end. Records that no producer claims and no window held
leave no trace to be counted by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_platform.ranges import OffsetRange, count, describe, merge, subtract
from penstock_platform.reconciliation.model.books import Book, Equation
from penstock_platform.windows.model.window import Window

if TYPE_CHECKING:  # the watcher imports this, and loads no client of Kafka for a type
    from penstock_platform.reconciliation.model.claims import Producer

NOT_IN_BRONZE = frozenset({"missing", "retained_away", "log_truncated", "vanished", "unreadable"})


@dataclass(frozen=True, slots=True)
class LostTopic:
    """``safe`` counts records in bronze, of the windows that were looked at. ``unlanded``: frozen,
    and not in bronze. ``unfrozen``: acknowledged, and in no window."""

    topic: str
    topic_id: str
    last_window: str
    safe: int
    unlanded: tuple[OffsetRange, ...] = ()
    unfrozen: tuple[OffsetRange, ...] = ()

    @property
    def lost(self) -> int:
        return count(self.unlanded) + count(self.unfrozen)

    def __str__(self) -> str:
        parts = []
        if self.unlanded:
            parts.append(
                f"{count(self.unlanded):,} frozen and not landed ({describe(self.unlanded, 5)})"
            )
        if self.unfrozen:
            parts.append(
                f"{count(self.unfrozen):,} acknowledged and in no window "
                f"({describe(self.unfrozen, 5)})"
            )
        lost = (
            f"{self.lost:,} records are lost with it: {', '.join(parts)}"
            if parts
            else ("no record is known to be lost with it")
        )
        return f"{lost}; {self.safe:,} records until window {self.last_window} are safe in bronze"


def lost_topic(
    windows: Iterable[tuple[Window, Book | None]], producers: Mapping[int, Producer]
) -> LostTopic | None:
    """What the topic of these windows took with it; None without windows.

    ``windows``: of one chain, in its order, each with its newest book. ``producers``: what their
    events say of this topic id.
    """
    newest: Window | None = None
    unlanded: list[OffsetRange] = []
    frozen = 0
    for window, book in windows:
        newest = window
        frozen += window.record_count
        unlanded += _unlanded(window, book)
    if newest is None:
        return None
    ends = [OffsetRange(p.p, 0, p.end) for p in newest.partitions]
    claimed = [
        OffsetRange(p, int(start), int(end))
        for producer in producers.values()
        for p, claims in producer.claims.items()
        for start, end in zip(claims.start, claims.end, strict=True)
    ]
    lost = merge(unlanded)
    return LostTopic(
        topic=newest.topic,
        topic_id=newest.topic_id,
        last_window=newest.name,
        safe=frozen - count(lost),
        unlanded=lost,
        unfrozen=subtract(merge(claimed), ends),
    )


def _unlanded(window: Window, book: Book | None) -> list[OffsetRange]:
    result = book.result(Equation.STORED_EQUALS_LANDED) if book is not None else None
    if result is None:
        return [r for r in window.ranges if r]
    return [r for f in result.findings if f.kind in NOT_IN_BRONZE for r in f.ranges]
