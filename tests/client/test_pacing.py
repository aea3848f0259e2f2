"""Steady pacing, on a clock of the test's own."""

from __future__ import annotations

import pytest

from penstock_client.pacing import Pacer


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("rate", [10.0, 1000.0, 33_333.0])
def test_keeps_the_rate_whatever_a_record_takes(rate: float) -> None:
    time = Time()
    pacer = Pacer(rate, clock=time.clock, pause=time.pause)
    count = int(rate * 3)
    for _ in range(count):
        assert pacer.wait()
        time.now += 0.2 / rate
    assert time.now == pytest.approx(3.0, abs=0.15)
    assert len(time.slept) <= 3.0 / 0.02 + 1


def test_without_a_rate_it_never_sleeps() -> None:
    time = Time()
    pacer = Pacer(None, clock=time.clock, pause=time.pause)
    assert all(pacer.wait() for _ in range(1000))
    assert time.slept == []


def test_after_a_long_stall_no_burst() -> None:
    time = Time()
    pacer = Pacer(100.0, clock=time.clock, pause=time.pause)
    pacer.wait()
    time.now += 60
    for _ in range(100):
        pacer.wait()
    assert time.now == pytest.approx(61.0, abs=0.1)


def test_stops_at_once() -> None:
    time = Time()
    stopping = False
    pacer = Pacer(0.001, clock=time.clock, pause=time.pause, stop=lambda: stopping)
    assert pacer.wait()
    stopping = True
    assert not pacer.wait()
