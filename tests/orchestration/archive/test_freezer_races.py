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

from penstock_platform.domain.archive_keys import window_key
from penstock_platform.domain.clock import from_iso
from penstock_platform.domain.cron import due_windows
from penstock_platform.domain.ranges import OffsetRange, subtract
from penstock_platform.domain.topics import load_topic
from penstock_platform.domain.truncation import Cut, ends_in_log, lost_ranges
from penstock_platform.domain.windows import ChainError, Truncation, Window
from penstock_platform.resources.freezer import freeze_due
from penstock_platform.resources.kafka import ClusterError
from penstock_platform.resources.windows import LostWindowError, WindowStore
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster

SPEC = load_topic("metadata: {name: t}\nland: {window: minutely, max_records: 40}")
STEPS_MAX = 250


class PausedError(BaseException):
    """The freezer has made its step; not to let it make another is to kill it."""


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
    for _ in range(rng.randrange(50, STEPS_MAX // 2)):
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
        elif chance < 0.41:
            partition = rng.choice(topic.partitions)
            end = len(partition.records)
            if partition.held is None and rng.random() < 0.8:
                partition.truncate(rng.randrange(max(0, end - 30), end + 1))
            else:
                partition.elect()
        elif chance < 0.46:
            clock.advance(60)
            published += freeze_due(cluster, WindowStore(archive), SPEC, clock, start=EPOCH)
        elif chance < 0.54 and len(freezers) < 3:
            freezers.append(Freezer(archive, cluster, clock, rng.choice([1, 2, 1000])))
        elif freezers:
            freezer = rng.choice(freezers)
            try:
                freezer.step()
            except ClusterError:  # a leader of another epoch answered: nothing is frozen
                freezers.remove(freezer)
                continue
            if freezer.done:
                published += freezer.published
            if freezer.done or rng.random() < 0.02:
                freezers.remove(freezer)
    check(archive, cluster, clock, published, f"seed {seed}")


def check(archive, cluster, clock, published, told):
    """A last freezer, undisturbed, then: one chain, without a fork or a gap, whose windows overlap
    only where a log was cut, and every record of the log in exactly one window."""
    store = WindowStore(archive)
    clock.advance(60)
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
            end = reached.get(p.p, 0)
            start = end if p.truncated is None else p.truncated.offset
            assert (p.start, start <= end) == (start, True), f"{told}: {window.window} {p}"
            reached[p.p] = p.end
    assert last, told
    assert {p: reached.get(p, 0) for p in stable} == stable, told
    cuts = store.cuts(cluster.ref("t"))
    for number, partition in enumerate(cluster.topics["t"].partitions):
        held: list[tuple[int, int, int]] = []  # first offset, end, leader epoch of the window
        for window in chain:
            lost = lost_ranges(window, cuts)
            kept = subtract([r for r in window.ranges if r.partition == number], lost)
            held += [(r.start, r.end, window.partitions[number].leader_epoch) for r in kept]
        held = sorted(h for h in held if h[0] < h[1])
        assert [h[0] for h in held] == [0, *(h[1] for h in held)][: len(held)], f"{told}: {held}"
        assert (held[-1][1] if held else 0) == reached[number], told
        for first, end, epoch in held:
            written = [e for e, at in partition.epochs if at < end]
            assert max(written, default=0) <= epoch, f"{told}: {first}-{end} were written later"


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


def test_a_log_that_became_shorter_steps_the_chain_back(world):
    cluster, clock, store, freeze = world
    put(cluster, 0, 10)
    clock.advance(60)
    [first] = freeze()
    del cluster.topics["t"].partitions[0].records[6:]
    clock.advance(60)
    [window] = freeze()
    assert spans(window)[0] == (6, 6)
    assert window.partitions[0].truncated == Truncation(0, 6, 10)
    assert window.partitions[1].truncated is None
    assert (window.last_truncation, first.last_truncation) == (1, None)
    assert Window.from_bytes(window.to_bytes()) == window
    put(cluster, 0, 3)
    clock.advance(60)
    [after] = freeze()
    assert spans(after)[0] == (6, 9)
    assert after.partitions[0].truncated is None
    assert after.last_truncation == 1
    assert store.cuts(after.ref) == [Cut(1, 0, 6, 10)]
    assert lost_ranges(first, store.cuts(after.ref)) == (OffsetRange(0, 6, 10),)
    assert lost_ranges(after, store.cuts(after.ref)) == ()
    assert ends_in_log(first, store.cuts(after.ref)) == {0: 6, 1: 0}


def test_a_log_that_was_cut_and_grew_again_is_windowed_from_the_cut(world):
    cluster, clock, _store, freeze = world
    put(cluster, 0, 30)
    clock.advance(60)
    freeze()
    cluster.topics["t"].partitions[0].truncate(20)
    put(cluster, 0, 25)  # the regrown records reach beyond what was frozen
    clock.advance(60)
    [window] = freeze()
    assert spans(window)[0] == (20, 45)
    assert window.partitions[0].truncated == Truncation(0, 20, 30)
    clock.advance(60)
    [window] = freeze()
    assert spans(window)[0] == (45, 45)
    assert window.partitions[0].truncated is None


def test_an_election_without_loss_is_no_truncation(world):
    cluster, clock, store, freeze = world
    put(cluster, 0, 30)
    clock.advance(60)
    freeze()
    cluster.topics["t"].partitions[0].elect()
    put(cluster, 0, 5)
    clock.advance(60)
    [window] = freeze()
    assert (spans(window)[0], window.partitions[0].truncated) == ((30, 35), None)
    assert store.cuts(window.ref) == []


def test_a_wiped_log_begins_again_at_0(world):
    cluster, clock, _store, freeze = world
    put(cluster, 0, 30)
    clock.advance(60)
    freeze()
    cluster.topics["t"].partitions[0].truncate(0)
    put(cluster, 0, 4)
    clock.advance(60)
    [window] = freeze()
    assert spans(window)[0] == (0, 4)
    assert window.partitions[0].truncated == Truncation(0, 0, 30)


def test_without_an_answer_about_the_old_epoch_nothing_is_frozen(world, monkeypatch):
    cluster, clock, store, freeze = world
    put(cluster, 0, 30)
    clock.advance(60)
    freeze()
    cluster.topics["t"].partitions[0].truncate(20)
    clock.advance(60)

    def unanswered(*_args):
        raise ClusterError("no answer about epochs")

    monkeypatch.setattr(cluster, "epoch_ends", unanswered)
    with pytest.raises(ClusterError, match="no answer about epochs"):
        freeze()
    assert store.newest(cluster.ref("t")).sequence == 0


def test_an_epoch_that_goes_back_stops_the_freeze(world):
    cluster, clock, store, freeze = world
    cluster.topics["t"].partitions[0].elect(3)
    put(cluster, 0, 30)
    clock.advance(60)
    freeze()
    stale = cluster.topics["t"].partitions[0]
    stale.epochs = [(0, 0), (2, 5)]
    del stale.records[12:]
    clock.advance(60)
    with pytest.raises(ChainError, match="topic t: partition 0: its leader epoch went back from 3"):
        freeze()
    assert store.newest(cluster.ref("t")).sequence == 0


def test_a_chain_that_has_no_window_yet_notices_a_cut_too(world):
    cluster, clock, _store, freeze = world
    latest = load_topic("metadata: {name: t}\nland: {window: minutely, start: latest}")
    put(cluster, 0, 30)
    assert freeze(latest) == []  # admitted: the chain is to begin at 30
    cluster.topics["t"].partitions[0].truncate(20)
    put(cluster, 0, 25)
    clock.advance(60)
    [window] = freeze(latest)
    assert spans(window)[0] == (20, 45)
    assert window.partitions[0].truncated == Truncation(0, 20, 30)


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
    clock.advance(365 * 24 * 3600 + 5)
    assert freeze(begin_new=True) == [], "the tick under way when it is begun is the first one"
    clock.advance(55)
    [first] = freeze()
    assert (first.sequence, spans(first)) == (0, {0: (0, 2)})
    assert from_iso(first.closed_at) == clock.now()
    assert freeze() == []
    assert store.newest(old).sequence == 0
    assert store.incarnations(old.cluster_id, "t") == [old.topic_id, cluster.ref("t").topic_id]
    assert store.begun_at(cluster.ref("t")) == clock.now() - timedelta(seconds=55)
    assert store.begun_at(old) is None


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", (4, 20)),
        ("latest", (15, 20)),
        ("2026-11-20T00:00:00Z", (10, 20)),
        ("2026-11-21T00:00:00+00:00", (15, 20)),
    ],
)
def test_an_adopted_topics_chain_begins_where_it_is_declared_once(world, start, expected):
    cluster, clock, _store, freeze = world
    text = "metadata: {name: t}\nland: {window: minutely, start: %s}"
    put(cluster, 0, 10, ms=1000)
    put(cluster, 0, 5, ms=round(EPOCH.timestamp() * 1000))
    cluster.topics["t"].partitions[0].log_start = 4
    assert freeze(load_topic(text % start)) == []
    put(cluster, 0, 5, ms=round(EPOCH.timestamp() * 1000))
    clock.advance(60)
    other = "earliest" if start == "latest" else "latest"
    [window] = freeze(load_topic(text % other))  # changed since: nothing is decided again
    assert spans(window)[0] == expected


@pytest.mark.parametrize("lost", [range(1), range(3), range(5)])
def test_a_chain_that_lost_its_beginning_is_not_begun_again(world, lost):
    cluster, clock, store, freeze = world
    put(cluster, 0, 7)
    clock.advance(300)
    freeze()
    ref = cluster.ref("t")
    archive = store._archive
    for n in lost:
        del archive.objects[window_key(ref, n)]
    clock.advance(60)
    before = dict(archive.objects)
    fresh = WindowStore(archive)
    with pytest.raises(LostWindowError, match=r"0000000000\.json is gone .* lifecycle rules"):
        freeze_due(cluster, fresh, SPEC, clock, start=EPOCH)
    with pytest.raises(LostWindowError):
        list(fresh.all(ref))
    assert archive.objects == before


def test_a_gap_in_the_chain_is_not_filled(world):
    cluster, clock, store, freeze = world
    clock.advance(300)
    freeze()
    archive = store._archive
    del archive.objects[window_key(cluster.ref("t"), 1)]  # a search from 0 ends here
    clock.advance(60)
    before = dict(archive.objects)
    with pytest.raises(
        LostWindowError, match=r"0000000001\.json is gone .*0000000002\.json is there"
    ):
        freeze_due(cluster, WindowStore(archive), SPEC, clock, start=EPOCH)
    assert archive.objects == before


def test_a_gap_is_found_by_whoever_reads_the_chain(world):
    cluster, clock, store, freeze = world
    clock.advance(300)
    freeze()
    ref, archive = cluster.ref("t"), store._archive
    del archive.objects[window_key(ref, 2)]
    fresh = WindowStore(archive)
    assert fresh.newest(ref).sequence == 4, "the search passes over place 2"
    with pytest.raises(LostWindowError, match="is missing inside its chain"):
        list(fresh.all(ref))


def test_a_crash_between_admission_and_the_first_window_loses_nothing(world):
    cluster, clock, store, freeze = world
    put(cluster, 0, 7)
    store.admit(cluster.ref("t"), clock.now())
    clock.advance(60)
    assert spans(freeze()[0])[0] == (0, 7)


def test_a_crash_before_the_mark_is_made_good_by_the_second_window(world):
    _cluster, clock, store, freeze = world
    clock.advance(60)
    freeze()
    archive = store._archive
    [mark] = [key for key in archive.objects if key.endswith("-begun.json")]
    del archive.objects[mark]
    clock.advance(60)
    freeze()
    assert mark in archive.objects


def test_a_topic_that_is_not_landed_has_no_windows(world):
    with pytest.raises(RuntimeError, match="add land"):
        world[3](load_topic("metadata: {name: t}"))
