"""Freezers that race and die at any instruction keep one linear chain that leaves nothing out.

A scheduler with a seed runs several freezers step by step: each stops after whatever it asks of the
archive, the cluster or the clock, and between steps records arrive, time passes, partitions are
added, and freezers die and are started again. Replay a failure: give its seed to ``simulate``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_platform.domain.clock import from_iso
from penstock_platform.domain.cron import due_windows
from penstock_platform.domain.topics import load_topic
from penstock_platform.domain.windows import ChainError
from penstock_platform.resources.freezer import freeze_due
from penstock_platform.resources.windows import WindowStore
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster

SPEC = load_topic("metadata: {name: t}\nland: {window: minutely, max_records: 40}")
STEPS_MAX = 250


class PausedError(BaseException):
    """The freezer has made its step; whoever never lets it make another has killed it."""


class Recorded:
    """Another object whose answers a freezer remembers."""

    def __init__(self, target, ask):
        self._target, self._ask = target, ask

    def __getattr__(self, name):
        found = getattr(self._target, name)
        return lambda *args, **kwargs: self._ask(lambda: found(*args, **kwargs))


@dataclass
class Freezer:
    """One freezer that makes one call at a time.

    Freezing is a pure function of the answers it gets, so a step runs it from its beginning with
    the answers it had, lets it make one call more, and stops it there. No threads, no waiting.
    """

    archive: MemoryArchive
    cluster: MemoryCluster
    clock: ManualClock
    windows_max: int = 1000
    answers: list = field(default_factory=list)
    done: bool = False
    published: list = field(default_factory=list)

    def step(self):
        known = iter(list(self.answers))

        def ask(call):
            for answer in known:
                return answer
            self.answers.append(call())
            raise PausedError

        store = WindowStore(Recorded(self.archive, ask))
        cluster, clock = Recorded(self.cluster, ask), Recorded(self.clock, ask)
        try:
            self.published = freeze_due(
                cluster, store, SPEC, clock, start=EPOCH, windows_max=self.windows_max
            )
            self.done = True
        except PausedError:
            pass


def simulate(seed: int, archive: MemoryArchive | None = None) -> None:
    rng = random.Random(seed)
    clock, cluster = ManualClock(), MemoryCluster()
    archive = archive or MemoryArchive()
    topic = cluster.add_topic("t", rng.randrange(1, 4))
    freezers: list[Freezer] = []
    published: list = []
    for _ in range(rng.randrange(50, STEPS_MAX)):
        chance = rng.random()
        if chance < 0.10:
            clock.advance(rng.choice([1, 20, 61, 130]))
        elif chance < 0.30:
            for _ in range(rng.randrange(60)):
                cluster.append("t", rng.randrange(len(topic.partitions)))
        elif chance < 0.32 and len(topic.partitions) < 5:
            topic.partitions.append(type(topic.partitions[0])())
        elif chance < 0.34:
            partition = rng.choice(topic.partitions)
            partition.held = None if partition.held else len(partition.records)
        elif chance < 0.45 and len(freezers) < 3:
            freezers.append(Freezer(archive, cluster, clock, rng.choice([1, 2, 1000])))
        elif freezers:
            freezer = rng.choice(freezers)
            freezer.step()
            if freezer.done:
                published += freezer.published
            if freezer.done or rng.random() < 0.02:
                freezers.remove(freezer)
    check(archive, cluster, clock, published, f"seed {seed}")


def check(archive, cluster, clock, published, told):
    """A last freezer, undisturbed, then: one chain, without a fork, a gap or an overlap."""
    store = WindowStore(archive)
    stable = {p: o.last_stable for p, o in cluster.offsets("t").items()}
    last = freeze_due(cluster, store, SPEC, clock, start=EPOCH)
    chain = list(store.all(cluster.ref("t")))  # verifies every link
    due = [window.key for window in due_windows(SPEC.land.cron, EPOCH, clock.now())]
    assert list(dict.fromkeys(window.window for window in chain)) == due, told
    assert [window.sequence for window in chain] == list(range(len(chain))), told
    assert all(window.record_count <= SPEC.land.max_records for window in chain), told
    assert not (chain and chain[-1].more), told
    places = [window.sequence for window in published]
    assert len(places) == len(set(places)), f"{told}: two freezers think they won one place"
    for window in published:
        assert chain[window.sequence] == window, f"{told}: a published window was replaced"
    reached: dict[int, int] = {}
    for window in chain:
        for p in window.partitions:
            assert p.start == reached.get(p.p, 0), f"{told}: {window.window} {p}"
            reached[p.p] = p.end
    if last:
        assert {p: reached.get(p, 0) for p in stable} == stable, told
    assert all(reached[p] <= stable[p] for p in reached), told


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_racing_and_dying_freezers_keep_one_chain(seed):
    simulate(seed)


class ReplacingArchive(MemoryArchive):
    """A store that ignores If-None-Match, as some do."""

    def create(self, key: str, data: bytes) -> bool:
        self.objects[key] = data
        return True


def test_the_simulation_finds_a_store_that_replaces():
    """The test's own test: on such a store, chains fork."""
    with pytest.raises((AssertionError, ChainError), match=r"seed|its hash of window"):
        for seed in range(200):
            simulate(seed, ReplacingArchive())


# --- rules of the plan ----------------------------------------------------------------------------


@pytest.fixture
def world():
    cluster, clock = MemoryCluster(), ManualClock()
    cluster.add_topic("t", 2)
    store = WindowStore(MemoryArchive())

    def freeze(spec=SPEC, **options):
        return freeze_due(cluster, store, spec, clock, start=EPOCH, **options)

    return cluster, clock, store, freeze


def put(cluster, partition, count, ms=0):
    for _ in range(count):
        cluster.append("t", partition, ms=ms)


def spans(window):
    return {p.p: (p.start, p.end) for p in window.partitions}


def test_a_window_is_frozen_once_it_has_closed(world):
    cluster, clock, _store, freeze = world
    put(cluster, 0, 5)
    clock.advance(59)
    assert freeze() == []
    clock.advance(1)
    [window] = freeze()
    assert (window.window, spans(window)) == ("2026-11-20-00:00", {0: (0, 5), 1: (0, 0)})
    assert from_iso(window.opened_at) == EPOCH
    assert from_iso(window.closed_at) == EPOCH + timedelta(minutes=1)
    assert freeze() == []


def test_the_first_window_starts_at_the_log_start(world):
    cluster, clock, _store, freeze = world
    put(cluster, 0, 9)
    cluster.topics["t"].partitions[0].log_start = 4
    clock.advance(60)
    assert spans(freeze()[0])[0] == (4, 9)


def test_idle_partitions_give_empty_ranges(world):
    _cluster, clock, _store, freeze = world
    clock.advance(180)
    assert [spans(window) for window in freeze()] == [{0: (0, 0), 1: (0, 0)}] * 3


def test_missing_windows_are_caught_up_in_order_within_the_bound(world):
    cluster, clock, _store, freeze = world
    put(cluster, 0, 90)
    put(cluster, 1, 10)
    clock.advance(180)
    assert [spans(window) for window in freeze()] == [
        {0: (0, 36), 1: (0, 4)},
        {0: (36, 72), 1: (4, 8)},
        {0: (72, 90), 1: (8, 10)},
    ]


def test_the_newest_tick_reaches_the_last_stable_offset_in_windows_within_the_bound(world):
    cluster, clock, store, freeze = world
    put(cluster, 0, 100)
    put(cluster, 1, 17)
    clock.advance(120)
    windows = freeze()
    assert [(w.name, spans(w)) for w in windows] == [
        ("2026-11-20-00:00", {0: (0, 34), 1: (0, 6)}),
        ("2026-11-20-00:01#1", {0: (34, 68), 1: (6, 12)}),
        ("2026-11-20-00:01#2", {0: (68, 100), 1: (12, 17)}),
    ]
    assert [w.more for w in windows] == [False, True, False]
    assert store.find(windows[0].ref, "2026-11-20-00:01") == windows[1:]
    assert store.named(windows[0].ref, "2026-11-20-00:01#2") == windows[2:]
    assert store.named(windows[0].ref, "1") == windows[1:2]
    assert store.tick_of(windows[2]) == store.tick_of(windows[1]) == windows[1:]


def test_a_bound_below_the_number_of_partitions_still_goes_on(world):
    cluster, clock, _store, freeze = world
    put(cluster, 0, 1)
    put(cluster, 1, 2)
    clock.advance(60)
    one = load_topic("metadata: {name: t}\nland: {window: minutely, max_records: 1}")
    windows = freeze(one)
    assert [w.record_count for w in windows] == [1, 1, 1]
    assert {p: end for p, (_, end) in spans(windows[-1]).items()} == {0: 1, 1: 2}


def test_what_a_crash_left_of_a_tick_is_frozen_first(world):
    cluster, clock, store, freeze = world
    put(cluster, 0, 100)
    clock.advance(60)
    [first] = freeze(windows_max=1)  # killed after one window of three
    assert (first.name, first.more) == ("2026-11-20-00:00#1", True)
    put(cluster, 0, 10)
    clock.advance(60)
    rest = freeze()
    assert [(w.name, spans(w)[0]) for w in rest] == [
        ("2026-11-20-00:00#2", (40, 80)),
        ("2026-11-20-00:01", (80, 110)),
    ]
    assert not rest[0].more
    assert len(list(store.all(first.ref))) == 3


def test_late_ticks_of_stamped_records_keep_the_bound_too(world):
    cluster, clock, _store, freeze = world
    cluster.topics["t"].broker_stamps = True
    put(cluster, 0, 70, ms=round(EPOCH.timestamp() * 1000))
    put(cluster, 0, 5, ms=round(EPOCH.timestamp() * 1000) + 60_000)
    clock.advance(120)
    assert [(w.name[-4:], spans(w)[0]) for w in freeze()] == [
        ("00#1", (0, 40)),
        ("00#2", (40, 70)),
        ("0:01", (70, 75)),
    ]


def test_producers_stamps_never_decide(world):
    cluster, clock, _store, freeze = world
    put(cluster, 0, 1, ms=2**41)
    put(cluster, 0, 1)
    clock.advance(120)
    assert [spans(window)[0] for window in freeze()] == [(0, 2), (2, 2)]


def test_late_windows_are_parted_by_the_brokers_own_stamps(world):
    cluster, clock, _store, freeze = world
    cluster.topics["t"].broker_stamps = True
    for second in range(0, 200, 10):
        put(cluster, 0, 4, ms=round(EPOCH.timestamp() * 1000) + second * 1000)
    clock.advance(200)
    assert [spans(window)[0] for window in freeze()] == [(0, 24), (24, 48), (48, 80)]


def test_a_brokers_clock_that_is_ahead_stops_nothing(world):
    cluster, clock, _store, freeze = world
    cluster.topics["t"].broker_stamps = True
    put(cluster, 0, 4, ms=2**42)
    clock.advance(60)
    assert spans(freeze()[0])[0] == (0, 4)
    put(cluster, 0, 3, ms=2**42)
    clock.advance(120)
    assert [spans(window)[0] for window in freeze()] == [(4, 4), (4, 7)]


def test_whoever_loses_a_place_reads_the_chain_again(world):
    cluster, clock, store, freeze = world
    put(cluster, 0, 5)
    clock.advance(180)

    class Overtaken(WindowStore):
        """Between this freezer's reading and its writing another one freezes it all."""

        def publish(self, window):
            if not frozen:
                frozen.extend(freeze())
                put(cluster, 0, 2)
                clock.advance(60)
            return super().publish(window)

    frozen: list = []
    late = freeze_due(cluster, Overtaken(store._archive), SPEC, clock, start=EPOCH)
    assert [window.sequence for window in frozen] == [0, 1, 2]
    assert [(window.sequence, spans(window)[0]) for window in late] == [(3, (5, 7))]


def test_nothing_behind_an_open_transaction_is_frozen(world):
    cluster, clock, _store, freeze = world
    put(cluster, 0, 10)
    cluster.topics["t"].partitions[0].held = 6
    clock.advance(60)
    [window] = freeze()
    assert spans(window)[0] == (0, 6)
    assert not window.complete
    cluster.topics["t"].partitions[0].held = None
    clock.advance(60)
    [window] = freeze()
    assert spans(window)[0] == (6, 10)
    assert window.complete


def test_a_partition_added_later_begins_at_0_also_when_its_log_no_longer_does(world):
    cluster, clock, _store, freeze = world
    clock.advance(60)
    freeze()
    topic = cluster.topics["t"]
    topic.partitions.append(type(topic.partitions[0])())
    put(cluster, 2, 8)
    topic.partitions[2].log_start = 3
    clock.advance(60)
    [window] = freeze()
    assert spans(window)[2] == (0, 8)
    assert window.partitions[2].log_start == 3


def test_a_log_that_became_shorter_holds_the_chain_where_it_is(world):
    cluster, clock, _store, freeze = world
    put(cluster, 0, 10)
    clock.advance(60)
    freeze()
    del cluster.topics["t"].partitions[0].records[6:]
    clock.advance(60)
    [window] = freeze()
    assert spans(window)[0] == (10, 10)
    assert window.partitions[0].high_watermark == 6


def test_a_partition_that_is_not_told_of_stops_the_freeze(world):
    cluster, clock, _store, freeze = world
    clock.advance(60)
    freeze()
    cluster.topics["t"].partitions.pop()
    clock.advance(60)
    with pytest.raises(RuntimeError, match=r"no longer tells of partitions \[1\]"):
        freeze()


def test_a_changed_cron_goes_on_where_the_chain_ended(world):
    cluster, clock, store, freeze = world
    clock.advance(5 * 60 + 30)
    freeze()
    put(cluster, 0, 3)
    quarterly = load_topic("metadata: {name: t}\nland: {window: '*/15 * * * *'}")
    clock.advance(30 * 60)
    windows = freeze(quarterly)
    assert [(w.sequence, w.window) for w in windows] == [(5, "2026-11-20-00:15")]
    assert spans(windows[0])[0] == (0, 3)
    assert len(list(store.all(cluster.ref("t")))) == 6


def test_a_long_absence_is_caught_up_in_several_calls(world):
    cluster, clock, _store, freeze = world
    put(cluster, 0, 100)
    clock.advance(10 * 60)
    first, rest = freeze(windows_max=4), freeze(windows_max=40)
    assert (len(first), len(rest)) == (4, 6)
    assert spans(first[-1])[0] == (100, 100)
    put(cluster, 0, 100)
    clock.advance(10 * 60)
    assert spans(freeze(windows_max=2)[-1])[0] == (140, 180), "not the newest: the bound holds"


def test_a_recreated_topic_begins_a_chain_only_when_told(world):
    cluster, clock, store, freeze = world
    put(cluster, 0, 7)
    clock.advance(60)
    freeze()
    old = cluster.ref("t")
    cluster.add_topic("t", 1)
    put(cluster, 0, 2)
    clock.advance(60)
    with pytest.raises(RuntimeError, match="penstock window begin t"):
        freeze()
    [first, second] = freeze(begin_new=True)
    assert (first.sequence, spans(first), spans(second)) == (0, {0: (0, 2)}, {0: (2, 2)})
    assert freeze() == []
    assert store.newest(old).sequence == 0
    assert store.incarnations(old.cluster_id, "t") == [old.topic_id, cluster.ref("t").topic_id]
    assert store.begun_at(cluster.ref("t")) == clock.now()
    assert store.begun_at(old) is None


def test_a_topic_that_is_not_landed_has_no_windows(world):
    with pytest.raises(RuntimeError, match="add land"):
        world[3](load_topic("metadata: {name: t}"))
