"""Offsets that groups have committed in transactions that are not decided yet (KIP-98, KIP-447).

They are in the internal topic like all others, but count only when the marker of their
transaction is written to the same partition. Of several commits of one partition the one that was
written last wins, whichever transaction is decided first: what comes after another, in a
transaction or not, supersedes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock_broker.groups.offset_records import CommittedOffset, OffsetKey
from penstock_broker.log.keys import TopicPartition


class PendingChange(NamedTuple):
    """A record of the internal topic that is part of a producer's transaction."""

    producer_id: int
    key: OffsetKey
    value: CommittedOffset | None


class Decision(NamedTuple):
    """A marker in a partition of the internal topic."""

    partition: int
    producer_id: int
    is_commit: bool


@dataclass(slots=True)
class _Pending:
    order: int
    offset: CommittedOffset
    is_superseded: bool = False


class PendingOffsets:
    """All that wait for a marker; fed in the order of the log."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, dict[TopicPartition, _Pending]]] = {}
        self._order = 0

    def has_group(self, group_id: str) -> bool:
        """Whether a transaction with offsets of a group is open."""
        return group_id in self._groups

    def has(self, group_id: str, place: TopicPartition) -> bool:
        """Whether it may soon be another offset that a group has committed there."""
        by_producer = self._groups.get(group_id)
        return by_producer is not None and any(place in p for p in by_producer.values())

    def places(self, group_id: str) -> set[TopicPartition]:
        """Where a group's offsets are not decided."""
        return set().union(*self._groups.get(group_id, {}).values())

    def add(
        self, producer_id: int, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Note offsets that have been written in a transaction."""
        self._order += 1
        places = self._groups.setdefault(group_id, {}).setdefault(producer_id, {})
        for place, offset in offsets.items():
            places[place] = _Pending(self._order, offset)

    def supersede(self, group_id: str, places: Iterable[TopicPartition]) -> None:
        """Offsets have been committed outside of transactions: what waits is older."""
        by_producer = self._groups.get(group_id)
        if by_producer is not None:
            self._supersede(by_producer, places, self._order)

    @staticmethod
    def _supersede(
        by_producer: Mapping[int, dict[TopicPartition, _Pending]],
        places: Iterable[TopicPartition],
        order: int,
    ) -> None:
        for place in places:
            for pending in by_producer.values():
                found = pending.get(place)
                if found is not None and found.order <= order:
                    found.is_superseded = True

    def drop(self, group_id: str, places: Iterable[TopicPartition]) -> None:
        """Offsets have been deleted, those that wait with them."""
        for pending in self._groups.get(group_id, {}).values():
            for place in places:
                pending.pop(place, None)

    def drop_group(self, group_id: str) -> None:
        """A group has been deleted."""
        self._groups.pop(group_id, None)

    def decide(
        self, producer_id: int, *, commit: bool, is_here: Callable[[str], bool]
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """A marker has been written for the groups for which ``is_here``: the offsets that it
        lets count, by group."""
        decided: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for group_id, by_producer in list(self._groups.items()):
            if producer_id not in by_producer or not is_here(group_id):
                continue
            pending = by_producer.pop(producer_id)
            if not by_producer:
                del self._groups[group_id]
            if not commit:
                continue
            counted = {place: p for place, p in pending.items() if not p.is_superseded}
            for place, found in counted.items():
                self._supersede(by_producer, (place,), found.order)
            decided[group_id] = {place: found.offset for place, found in counted.items()}
        return decided
