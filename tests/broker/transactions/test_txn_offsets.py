"""Committed offsets, in and outside of transactions, against Kafka's rule for which one counts."""

from __future__ import annotations

from random import Random

import pytest
from txn_harness import TOPIC, Harness

from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.errors import ErrorCode
from penstock_broker.groups.offset_records import CommittedOffset

IDS = ("x", "y", "z")
GROUPS = ("g", "h")
STEPS = 120
RETENTION_MS = 8 * 24 * 3_600_000

Place = tuple[str, int]


class Model:
    """By Kafka's rule: when a transaction commits, an offset of it counts unless a record behind
    its own has been counted; a deletion takes what waits with it."""

    def __init__(self) -> None:
        self.committed: dict[Place, tuple[int, int]] = {}
        self.pending: dict[str, dict[Place, tuple[int, int]]] = {name: {} for name in IDS}
        self.record = 0

    def commit(self, place: Place, offset: int) -> None:
        self.record += 1
        self.committed[place] = (self.record, offset)

    def commit_in(self, transactional_id: str, place: Place, offset: int) -> None:
        self.record += 1
        self.pending[transactional_id][place] = (self.record, offset)

    def delete(self, place: Place) -> None:
        self.committed.pop(place, None)
        for pending in self.pending.values():
            pending.pop(place, None)

    def end(self, transactional_id: str, *, commit: bool) -> None:
        pending, self.pending[transactional_id] = self.pending[transactional_id], {}
        for place, found in pending.items():
            if commit and found > self.committed.get(place, (-1, -1)):
                self.committed[place] = found

    def offset(self, place: Place) -> int | None:
        found = self.committed.get(place)
        return None if found is None else found[1]

    def undecided(self, group: str) -> set[Place]:
        return {
            (TOPIC, index)
            for pending in self.pending.values()
            for name, index in pending
            if name == group
        }


@pytest.mark.parametrize("seed", range(15))
def test_the_right_offset_counts_whatever_happens_in_between(seed: int) -> None:
    """Pitfall 32: and what is not decided is always known as such."""
    random = Random(seed)
    harness, model = Harness(settings={}), Model()
    producers = {name: harness.init(name) for name in IDS}
    for number in range(STEPS):
        place = (random.choice(GROUPS), random.randrange(2))
        name = random.choice(IDS)
        action = random.random()
        if action < 0.25:
            commit(harness, place, number)
            model.commit(place, number)
        elif action < 0.6:
            commit_in(harness, name, producers[name], place, number)
            model.commit_in(name, place, number)
        elif action < 0.85:
            commits = random.random() < 0.6
            if harness.transactions.describe(name).partitions:
                harness.end(producers[name], commit=commits, transactional_id=name)
                model.end(name, commit=commits)
        elif action < 0.92:
            if harness.groups.group(place[0]) is not None:
                harness.groups.offsets.delete(place[0], [(TOPIC, place[1])])
                model.delete(place)
        else:
            harness = harness.after_a_kill()
        for group in GROUPS:
            found = harness.groups.offsets.of(group)
            for index in range(2):
                offset = found.get((TOPIC, index))
                expected = model.offset((group, index))
                assert (None if offset is None else offset.offset) == expected
            # A replay reads only the last plain record of a key: after a deletion and another
            # commit it takes for undecided what can no longer change anything.
            assert harness.groups.offsets.undecided(group) >= model.undecided(group)


def commit(harness: Harness, place: Place, offset: int) -> None:
    group, index = place
    given = {(TOPIC, index): CommittedOffset(offset, -1, "", harness.clock.now_ms())}
    assert set(harness.groups.offsets.commit(group, "", None, -1, given).values()) == {
        ErrorCode.NONE
    }


def commit_in(
    harness: Harness, name: str, producer: tuple[int, int], place: Place, offset: int
) -> None:
    group, index = place
    harness.offsets.ensure_topic()
    where = (OFFSETS_TOPIC, harness.offsets.partition_of(group))
    harness.transactions.add_partitions(name, *producer, [where])
    given = {(TOPIC, index): CommittedOffset(offset, -1, "", harness.clock.now_ms())}
    codes = harness.groups.offsets.commit(group, "", None, -1, given, producer=producer)
    assert set(codes.values()) == {ErrorCode.NONE}


def test_offsets_that_wait_keep_their_group_and_do_not_expire() -> None:
    harness = Harness()
    producer = harness.init()
    commit(harness, ("g", 0), 1)
    harness.commit_offset(producer, 2)
    harness.commit_offset(producer, 3, group="only-pending")
    harness.clock.advance(RETENTION_MS)
    harness.groups.expire()
    assert harness.committed() == 1
    harness = harness.after_a_kill()
    harness.end(producer, commit=True)
    assert harness.committed() == 2
    assert harness.committed("only-pending") == 3


def test_what_is_deleted_does_not_come_back_with_a_commit() -> None:
    harness = Harness()
    producer = harness.init()
    harness.commit_offset(producer, 1, group="deleted")
    harness.commit_offset(producer, 2, group="kept")
    assert harness.groups.delete("deleted") is ErrorCode.NONE
    harness.groups.offsets.remove_topic("another")
    harness = harness.after_a_kill()
    harness.end(producer, commit=True)
    assert harness.committed("deleted") is None
    assert harness.committed("kept") == 2
    harness.commit_offset(producer, 5, group="kept")
    harness.groups.offsets.remove_topic(TOPIC)
    harness.end(producer, commit=True)
    assert harness.committed("kept") is None


# -- groups of which nothing is decided ---------------------------------------------------------


def open_commit(harness: Harness, group: str = "g", offset: int = 5) -> tuple[int, int]:
    """A producer with another id than its epoch, which has an offset in an open transaction."""
    harness.init("another producer")
    producer = harness.init()
    assert producer[0] != producer[1]
    harness.commit_offset(producer, offset, group=group)
    return producer


def charged(harness: Harness) -> int:
    return harness.groups._directory.footprint.total


def ids(harness: Harness) -> list[str]:
    return [group.group_id for group in harness.groups.groups()]


def test_a_group_with_an_open_transaction_is_there_also_after_a_kill() -> None:
    harness = Harness()
    producer = open_commit(harness)
    for after in (harness, harness := harness.after_a_kill()):
        after.clock.advance(RETENTION_MS)
        after.groups.expire()
        assert ids(after) == ["g"]
        assert after.groups.offsets.undecided("g") == {(TOPIC, 0)}
    harness.end(producer, commit=True)
    assert harness.committed() == 5


def test_a_group_whose_transactions_were_aborted_goes_with_all_that_it_took() -> None:
    harness = Harness()
    empty = charged(harness)
    producer = open_commit(harness)
    assert charged(harness) > empty
    harness.end(producer, commit=False)
    assert harness.groups.offsets.undecided("g") == set()
    harness.groups.expire()
    assert (ids(harness), charged(harness)) == ([], empty)


def test_what_an_aborted_transaction_was_charged_is_given_back() -> None:
    harness = Harness()
    commit(harness, ("g", 1), 1)
    before = charged(harness)
    harness.end(open_commit(harness), commit=False)
    harness.groups.expire()
    assert charged(harness) == before


def test_a_deleted_group_gets_nothing_of_a_transaction_that_commits_later() -> None:
    harness = Harness()
    producer = open_commit(harness)
    assert harness.groups.delete("g") is ErrorCode.NONE
    harness.end(producer, commit=True)
    for after in (harness, harness.after_a_kill()):
        assert (after.committed(), ids(after)) == (None, [])


def test_what_waits_for_a_deleted_topic_goes_with_it() -> None:
    harness = Harness()
    producer = open_commit(harness)
    harness.groups.offsets.remove_topic(TOPIC)
    harness.end(producer, commit=True)
    assert [after.committed() for after in (harness, harness.after_a_kill())] == [None, None]


def test_what_follows_a_marker_is_replayed_too() -> None:
    harness = Harness()
    harness.end(open_commit(harness), commit=True)
    commit(harness, ("g", 0), 6)
    commit(harness, ("g", 1), 7)
    harness = harness.after_a_kill()
    found = harness.groups.offsets.of("g")
    assert {index: offset.offset for (_, index), offset in found.items()} == {0: 6, 1: 7}
