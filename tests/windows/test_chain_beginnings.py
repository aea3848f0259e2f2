"""Where a chain begins, and that a lost beginning or a gap is never filled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from freezing import SPEC, put, spans
from penstock_platform.archive.model import window_key
from penstock_platform.clock import from_iso
from penstock_platform.testing.clock import EPOCH
from penstock_platform.topics.model.declaration import load_topic
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.store import LostWindowError, WindowStore


def test_a_recreated_topic_begins_a_chain_only_when_asked_to(world):
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
    archive = store._objects._archive
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
    archive = store._objects._archive
    del archive.objects[window_key(cluster.ref("t"), 1)]  # a search from 0 ends here
    clock.advance(60)
    before = dict(archive.objects)
    with pytest.raises(
        LostWindowError, match=r"0000000001\.json is gone .*0000000002\.json is there"
    ):
        freeze_due(cluster, WindowStore(archive), SPEC, clock, start=EPOCH)
    assert archive.objects == before


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_store_lists_while_it_writes_is_no_window(world, lost):
    """S3Proxy shows the file in which it gathers an object that another freezer is creating."""
    cluster, clock, store, freeze = world
    clock.advance(300)
    freeze()
    archive, ref = store._objects._archive, cluster.ref("t")
    places = [key for key in archive.objects if "/windows/" in key]
    archive.objects[f"{window_key(ref, len(places))}-cbcc3dfc-f6dd"] = b""
    if lost:
        archive.objects[window_key(ref, len(places) + 1)] = b"{}"
    clock.advance(60)
    again = WindowStore(archive)
    if lost:
        with pytest.raises(LostWindowError, match=r"is gone .*000006\.json is there"):
            freeze_due(cluster, again, SPEC, clock, start=EPOCH)
    else:
        assert freeze_due(cluster, again, SPEC, clock, start=EPOCH)


def test_every_reader_of_a_chain_finds_its_gap(world):
    cluster, clock, store, freeze = world
    clock.advance(300)
    freeze()
    ref, archive = cluster.ref("t"), store._objects._archive
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
    archive = store._objects._archive
    [mark] = [key for key in archive.objects if key.endswith("-begun.json")]
    del archive.objects[mark]
    clock.advance(60)
    freeze()
    assert mark in archive.objects


def test_a_topic_that_is_not_landed_has_no_windows(world):
    with pytest.raises(RuntimeError, match="add land"):
        world[3](load_topic("metadata: {name: t}"))
