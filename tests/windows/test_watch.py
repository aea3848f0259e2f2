"""A watch over a chain: what waits is named, what is done is never read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.windows.model.watch import WAITING_MAX, Watch, rotated


def test_what_waits_is_kept_and_what_is_done_is_not_read_again():
    watch = Watch().after({0: False, 1: True, 2: False, 3: True})
    assert (watch.waiting, watch.unread) == ((1, 3), 4)
    watch = watch.after({1: False, 4: True})
    assert (watch.waiting, watch.unread) == ((3, 4), 5)
    assert watch.after({}) == watch, "a look that never came about changes nothing"


def test_looks_come_in_turns():
    watch = Watch((1, 3, 5, 7), 10)
    assert watch.turn(3) == (1, 3, 5)
    watch = watch.after(dict.fromkeys((1, 3, 5), True))
    assert watch.turn(3) == (7, 1, 3)
    watch = watch.after({7: True, 1: False, 3: True})
    assert watch.turn(9) == (5, 7, 3)
    assert Watch().turn(3) == ()


def test_a_gap_in_the_chain_is_not_passed():
    watch = Watch((), 4).after({4: False, 6: True})
    assert (watch.waiting, watch.unread) == ((), 5)


def test_the_windows_that_wait_are_bounded():
    assert Watch().space == WAITING_MAX
    assert Watch(tuple(range(WAITING_MAX)), WAITING_MAX).space == 0
    assert Watch(tuple(range(WAITING_MAX + 5)), WAITING_MAX + 5).space == 0


def test_it_is_read_back_and_anything_else_starts_over():
    watch = Watch((1, 3), 7, 3)
    assert Watch.from_json(watch.to_json()) == watch
    for raw in (None, 3, {}, {"waiting": ["x"], "unread": 0, "looked": 0}, {"waiting": [1]}):
        assert Watch.from_json(raw) == Watch()


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 7))
def test_every_window_that_waits_gets_its_turn(states, most):
    watch, unread = Watch(), 0
    looked_at = set()
    for _tick in range(2 * len(states) // most + 4):
        looks = {n: states[n] for n in watch.turn(most)}
        looked_at |= set(looks)
        new = range(unread, min(unread + most, len(states)))
        looks |= {n: states[n] for n in new}
        watch, unread = watch.after(looks), new.stop
    waiting = {n for n, waits in enumerate(states) if waits}
    assert set(watch.waiting) == waiting
    assert waiting <= looked_at
    assert watch.unread == len(states)


@pytest.mark.parametrize(
    "first,order", [("", "abc"), ("b", "bca"), ("a", "abc"), ("c", "cab"), ("gone", "abc")]
)
def test_turns_begin_where_they_ended(first, order):
    assert rotated(list("abc"), first) == list(order)
