"""The token bucket, on a clock of its own: a client that obeys gets the rate, and not more."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.quotas.token_bucket import WAIT_SECONDS_MAX, TokenBucket
from penstock_broker.testing.sim_clock import SimClock

RATES = st.floats(1, 1e9)
AMOUNTS = st.lists(st.floats(0, 1e7), min_size=1, max_size=60)


@given(RATES, st.floats(0.1, 10), AMOUNTS, st.lists(st.floats(0, 5), min_size=60, max_size=60))
def test_a_client_that_waits_as_asked_never_exceeds_the_rate(
    rate: float, seconds: float, amounts: list[float], pauses: list[float]
) -> None:
    clock = SimClock()
    bucket = TokenBucket(rate, rate * seconds, clock.monotonic())
    taken = 0.0
    for amount, pause in zip(amounts, pauses, strict=False):
        taken += amount
        wait = bucket.take(amount, clock.monotonic())
        most = rate * seconds + rate * clock.monotonic() + max(amounts)
        assert taken <= most * (1 + 1e-9) + 1e-6
        clock.advance(1000 * (min(wait, 60) + pause))
        if wait > 60:
            return  # minutes of throttling: a client that does not wait is throttled again


@given(RATES, AMOUNTS)
def test_who_asks_for_more_than_there_is_gets_all_of_it(rate: float, amounts: list[float]) -> None:
    """Nothing is lost: a client that always has more to send comes to its rate."""
    clock = SimClock()
    bucket = TokenBucket(rate, rate, clock.monotonic())
    taken = 0.0
    for amount in amounts:
        taken += amount
        wait = bucket.take(amount, clock.monotonic())
        if wait == WAIT_SECONDS_MAX:
            return
        clock.advance(1000 * wait)
    assert clock.monotonic() <= taken / rate + 1e-3


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 3)), max_size=40))
def test_the_wait_is_never_negative_and_ends(steps: list[tuple[float, float]]) -> None:
    clock = SimClock()
    bucket = TokenBucket(1000, 1000, clock.monotonic())
    for amount, pause in steps:
        wait = bucket.take(amount, clock.monotonic())
        assert 0 <= wait <= WAIT_SECONDS_MAX
        assert bucket.wait(clock.monotonic()) == pytest.approx(wait)
        clock.advance(1000 * pause)
    clock.advance(1000 * WAIT_SECONDS_MAX * 100)
    assert bucket.wait(clock.monotonic()) == 0
    assert bucket.is_full(clock.monotonic())


def test_what_was_not_used_is_kept_up_to_the_burst() -> None:
    bucket = TokenBucket(10, 20, 0)
    assert bucket.take(20, 0) == 0
    assert bucket.take(5, 0) == 0.5
    assert bucket.take(0, 100) == 0
    assert bucket.take(20, 100) == 0, "not more than the burst is there after 100 s"
    assert bucket.take(10, 100) == 1


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 10, 100)
    assert bucket.take(20, 100) == 1
    assert bucket.wait(50) == 1
    assert bucket.wait(101) == 0


def test_giving_back_undoes_taking() -> None:
    bucket = TokenBucket(10, 10, 0)
    bucket.take(1_000, 0)
    bucket.give_back(1_000)
    assert bucket.wait(0) == 0
    bucket.give_back(1_000)
    assert bucket.take(10, 0) == 0
    assert bucket.take(1, 0) > 0, "never more than the burst"


def test_another_rate_keeps_the_debt() -> None:
    bucket = TokenBucket(10, 10, 0)
    assert bucket.take(110, 0) == 10
    bucket.change(100, 100, 0)
    assert bucket.wait(0) == 1


def test_no_rate_is_no_crash() -> None:
    assert TokenBucket(0, 0, 0).take(1, 0) == WAIT_SECONDS_MAX
    assert math.isfinite(TokenBucket(1e-300, 1, 0).take(1e300, 0))
