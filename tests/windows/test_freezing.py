"""Which records a window gets, tick by tick, within its bounds."""

from __future__ import annotations

from datetime import timedelta

from freezing import SPEC, put, spans
from penstock_platform.clock import from_iso
from penstock_platform.testing.clock import EPOCH
from penstock_platform.topics.model.declaration import load_topic
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.store import WindowStore


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


def test_a_bound_below_the_number_of_partitions_still_continues(world):
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


def test_a_freezer_that_loses_a_place_reads_the_chain_again(world):
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
    late = freeze_due(cluster, Overtaken(store._objects._archive), SPEC, clock, start=EPOCH)
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


def test_a_changed_cron_continues_where_the_chain_ended(world):
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
