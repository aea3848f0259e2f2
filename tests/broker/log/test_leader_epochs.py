"""Where leader epochs end, as OffsetForLeaderEpoch answers it (KIP-101, KIP-279)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.log.leader_epochs import LeaderEpochs


def test_an_epoch_ends_where_the_next_begins() -> None:
    epochs = LeaderEpochs()
    for epoch, offset in ((2, 10), (5, 30), (6, 35)):
        epochs.assign(epoch, offset)
    assert epochs.end_of(2, 40) == (2, 30)
    assert epochs.end_of(3, 40) == (2, 30), "the largest up to the one asked for"
    assert epochs.end_of(5, 40) == (5, 35)
    assert epochs.end_of(6, 40) == (6, 40)
    assert epochs.end_of(9, 40) == (6, 40)


def test_a_new_epoch_replaces_those_that_began_at_or_behind_it() -> None:
    for offset, left in ((40, 3), (35, 2), (31, 2), (30, 1), (11, 1), (10, 0), (0, 0)):
        epochs, entries = LeaderEpochs(), [(2, 10), (5, 30), (6, 35)]
        for entry in entries:
            epochs.assign(*entry)
        assert epochs.assign(7, offset)
        assert epochs.entries() == [*entries[:left], (7, offset)]


def test_an_epoch_before_all_known_ones_ended_where_they_begin() -> None:
    """A log that was wiped and grew again says 0; one that retention shortened, its start."""
    epochs = LeaderEpochs()
    assert epochs.end_of(1, 0) == (-1, -1)
    epochs.assign(4, 0)
    assert epochs.end_of(1, 7) == (1, 0)
    epochs.advance_to(5)
    assert epochs.end_of(1, 7) == (1, 5)


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, [(2, 10), (5, 30), (6, 35)]),
        (29, [(2, 29), (5, 30), (6, 35)]),
        (30, [(5, 30), (6, 35)]),
        (32, [(5, 32), (6, 35)]),
        (35, [(6, 35)]),
        (99, [(6, 99)]),
    ],
)
def test_epochs_below_a_new_start_go(start: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs()
    for epoch, offset in ((2, 10), (5, 30), (6, 35)):
        epochs.assign(epoch, offset)
    epochs.advance_to(start)
    assert epochs.entries() == left


def check(epochs: LeaderEpochs, entries: list[tuple[int, int]]) -> None:
    """All that is answered, against a list of (epoch, first offset) that is searched through."""
    assert epochs.entries() == entries
    assert epochs.latest == max((epoch for epoch, _ in entries), default=-1)
    for offset in range(13):
        wrote = [epoch for epoch, start in entries if start <= offset]
        assert epochs.epoch_of(offset) == max(wrote, default=-1)
    ends = [start for _, start in entries[1:]] + [99]
    for asked in range(9):
        upto = [(e, end) for (e, _), end in zip(entries, ends, strict=False) if e <= asked]
        first = (asked, entries[0][1]) if entries else (-1, -1)
        assert epochs.end_of(asked, 99) == max(upto, default=first)


steps = st.tuples(
    st.sampled_from(["note", "note", "truncate", "advance"]), st.integers(0, 7), st.integers(0, 11)
)


@given(st.lists(steps, max_size=8))
def test_any_history_is_that_of_a_plain_list(history: list[tuple[str, int, int]]) -> None:
    epochs, entries = LeaderEpochs(), list[tuple[int, int]]()
    for step, epoch, offset in history:
        if step == "note":
            begins = all(epoch > known for known, _ in entries)
            assert epochs.assign(epoch, offset) == begins
            if begins:
                entries = [entry for entry in entries if entry[1] < offset] + [(epoch, offset)]
        elif step == "truncate":
            epochs.truncate_to(offset)
            entries = [entry for entry in entries if entry[1] < offset]
        else:
            epochs.advance_to(offset)
            ends = [start for _, start in entries[1:]] + [99]
            left = [e for e, end in zip(entries, ends, strict=False) if end > offset]
            entries = [(e, max(start, offset)) for e, start in left]
        check(epochs, entries)
