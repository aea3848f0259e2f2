"""Offsets of transactions that are open, against Kafka's rule for which of them count."""

from __future__ import annotations

from random import Random

import pytest

from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.groups.pending_offsets import PendingOffsets

GROUPS = ("g", "h")
PRODUCERS = (7, 8, 9)
STEPS = 400

Place = tuple[str, int]


class Model:
    """Of a place of a group: the number of the record that counts, and of those that wait."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, Place], int] = {}
        self.waiting: dict[tuple[str, int], dict[Place, int]] = {}

    def places(self, group: str) -> set[Place]:
        return {p for (name, _), places in self.waiting.items() if name == group for p in places}

    def decide(self, group: str, producer: int, *, commit: bool) -> dict[Place, int]:
        places = self.waiting.pop((group, producer), {})
        counted = {p: n for p, n in places.items() if n > self.counts.get((group, p), -1)}
        if not commit:
            return {}
        self.counts.update({(group, place): number for place, number in counted.items()})
        return counted

    def drop(self, group: str, place: Place) -> None:
        self.counts.pop((group, place), None)
        for (name, _), places in self.waiting.items():
            if name == group:
                places.pop(place, None)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_written_last_counts_whichever_transaction_is_decided_first(seed: int) -> None:
    random, pending, model = Random(seed), PendingOffsets(), Model()
    for number in range(STEPS):
        group, producer = random.choice(GROUPS), random.choice(PRODUCERS)
        place, action = ("t", random.randrange(3)), random.random()
        if action < 0.5:
            pending.add(producer, group, {place: CommittedOffset(number, -1, "", 0)})
            model.waiting.setdefault((group, producer), {})[place] = number
        elif action < 0.65:
            pending.supersede(group, (place,))
            model.counts[group, place] = number
        elif action < 0.7:
            pending.drop(group, (place,))
            model.drop(group, place)
        elif action < 0.75:
            pending.drop_group(group)
            model.waiting = {key: p for key, p in model.waiting.items() if key[0] != group}
        else:
            here = random.choice([(group,), GROUPS, ()])
            commit = random.random() < 0.7
            decided = pending.decide(producer, commit=commit, is_here=here.__contains__)
            found = {
                name: {place: offset.offset for place, offset in offsets.items()}
                for name, offsets in decided.items()
                if offsets
            }
            expected = {name: model.decide(name, producer, commit=commit) for name in here}
            assert found == {name: counted for name, counted in expected.items() if counted}
        for name in GROUPS:
            assert pending.places(name) == model.places(name)
            assert pending.has_group(name) == any(key[0] == name for key in model.waiting)
            for index in range(3):
                is_there = ("t", index) in model.places(name)
                assert pending.has(name, ("t", index)) == is_there
