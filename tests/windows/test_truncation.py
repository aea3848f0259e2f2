"""Logs that were cut: which epochs to ask for, what was lost, and whose records are there now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock_platform.kafka.model import PartitionOffsets
from penstock_platform.ranges import OffsetRange
from penstock_platform.testing.windows import make_window
from penstock_platform.windows.model.truncation import (
    Cut,
    chain_ends,
    cuts_in,
    ends_in_log,
    epochs_to_ask,
    lost_ranges,
    truncations_of,
)
from penstock_platform.windows.model.window import ChainError, StartOffset, Truncation


def ends(*epochs, offset=100):
    """A chain that ends at ``offset`` in every partition, at these leader epochs."""
    return {p: StartOffset(p, offset, epoch) for p, epoch in enumerate(epochs)}


def now(*epochs, high_watermark=100):
    return {
        p: PartitionOffsets(p, 0, high_watermark, high_watermark, epoch)
        for p, epoch in enumerate(epochs)
    }


def test_a_chain_ends_where_its_newest_window_does_or_begins_where_it_was_decided():
    starts = {0: StartOffset(0, 7, 2)}
    assert chain_ends(None, starts) == starts
    window = make_window({0: (5, 9), 2: (1, 1)})
    window = replace(
        window, partitions=tuple(replace(p, leader_epoch=4) for p in window.partitions)
    )
    assert chain_ends(window, starts) == {0: StartOffset(0, 9, 4), 2: StartOffset(2, 1, 4)}


@pytest.mark.parametrize(
    "frozen,today,asked",
    [(3, 3, False), (3, 4, True), (0, 1, True), (0, 0, False), (-1, 5, False), (3, -1, False)],
)
def test_the_end_of_an_epoch_is_asked_for_when_another_leads(frozen, today, asked):
    # The second partition changed in any case.
    found = epochs_to_ask(ends(frozen, 5), now(today, 6))
    assert found == ({0: frozen, 1: 5} if asked else {1: 5})


def test_a_partition_that_is_not_known_now_is_not_asked_for():
    assert epochs_to_ask(ends(3, 5), now(4)) == {0: 3}


@pytest.mark.parametrize("today", [0, 2])
def test_an_epoch_that_goes_back_is_an_error(today):
    with pytest.raises(
        ChainError, match=f"partition 1: its leader epoch went back from 3 to {today}"
    ):
        epochs_to_ask(ends(3, 3), now(3, today))


@pytest.mark.parametrize(
    "epoch_ends,high_watermark,cut",
    [
        ({0: 60}, 500, 60),
        ({0: 0}, 500, 0),
        ({0: 99}, 500, 99),
        ({0: 100}, 50, None),
        ({0: 101}, 50, None),
        ({0: -1}, 99, 99),
        ({0: -1}, 100, None),
        ({}, 60, 60),
        ({}, 100, None),
    ],
)
def test_a_log_was_cut_where_the_frozen_epoch_or_the_log_ends_before_the_chain(
    epoch_ends, high_watermark, cut
):
    found = truncations_of(ends(3), now(4, high_watermark=high_watermark), epoch_ends)
    assert found == ({} if cut is None else {0: Truncation(3, cut, 100)})


def test_a_cut_is_not_looked_for_in_a_partition_that_is_not_known_now():
    known = {1: PartitionOffsets(1, 0, 50, 50, 3)}
    assert truncations_of(ends(3, 3), known, {}) == {1: Truncation(3, 50, 100)}


def test_the_cuts_that_windows_record():
    first = make_window({0: (0, 100), 1: (0, 5)})
    second = make_window({0: (60, 80), 1: (5, 9)}, previous=first)
    [cut, whole] = second.partitions
    second = replace(second, partitions=(replace(cut, truncated=Truncation(3, 60, 100)), whole))
    assert cuts_in([first, second]) == [Cut(1, 0, 60, 100)]


CUTS = [Cut(2, 0, 60, 100), Cut(4, 0, 90, 95)]


@pytest.mark.parametrize(
    "sequence,spans,lost,reach",
    [
        (0, {0: (50, 100)}, ((0, 60, 100),), {0: 60}),
        (1, {0: (60, 100)}, ((0, 60, 100),), {0: 60}),
        (1, {0: (70, 100)}, ((0, 70, 100),), {0: 60}),
        (1, {0: (20, 60)}, (), {0: 60}),
        (1, {0: (20, 61)}, ((0, 60, 61),), {0: 60}),
        (2, {0: (60, 95)}, ((0, 90, 95),), {0: 90}),
        (3, {0: (60, 80)}, (), {0: 80}),
        (4, {0: (90, 99)}, (), {0: 99}),
        (0, {0: (50, 59), 1: (50, 100)}, (), {0: 59, 1: 100}),
    ],
)
def test_a_window_loses_what_a_later_one_begins_again(sequence, spans, lost, reach):
    window = make_window(spans, sequence=sequence)
    assert lost_ranges(window, CUTS) == tuple(OffsetRange(*r) for r in lost)
    assert ends_in_log(window, CUTS) == reach
