"""Logs that were cut or wiped, elections, and what a window says of them."""

from __future__ import annotations

import pytest

from freezing import freeze_window, put, spans
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.ranges import OffsetRange
from penstock_platform.topics.model.declaration import load_topic
from penstock_platform.windows.model.truncation import Cut, ends_in_log, lost_ranges
from penstock_platform.windows.model.window import ChainError, Truncation, Window


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
    freeze_window(world, 30)
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
    freeze_window(world, 30)
    cluster.topics["t"].partitions[0].elect()
    put(cluster, 0, 5)
    clock.advance(60)
    [window] = freeze()
    assert (spans(window)[0], window.partitions[0].truncated) == ((30, 35), None)
    assert store.cuts(window.ref) == []


def test_a_wiped_log_begins_again_at_0(world):
    cluster, clock, _store, freeze = world
    freeze_window(world, 30)
    cluster.topics["t"].partitions[0].truncate(0)
    put(cluster, 0, 4)
    clock.advance(60)
    [window] = freeze()
    assert spans(window)[0] == (0, 4)
    assert window.partitions[0].truncated == Truncation(0, 0, 30)


def test_without_an_answer_about_the_old_epoch_nothing_is_frozen(world, monkeypatch):
    cluster, clock, store, freeze = world
    freeze_window(world, 30)
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
    freeze_window(world, 30)
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


def test_a_partition_missing_from_metadata_stops_the_freeze(world):
    cluster, clock, _store, freeze = world
    clock.advance(60)
    freeze()
    cluster.topics["t"].partitions.pop()
    clock.advance(60)
    with pytest.raises(RuntimeError, match=r"no longer lists partitions \[1\]"):
        freeze()
