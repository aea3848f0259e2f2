"""TLS handshakes in line: a few in a turn, and no more than so many a second."""

from __future__ import annotations

from penstock_broker.server.handshakes import (
    BURST,
    HANDSHAKES_A_SECOND,
    HANDSHAKES_A_TURN,
    HandshakeLine,
)
from penstock_broker.testing import SimClock


class OneTurnTimers(SimClock):
    """Counts what begins in each turn: each callback is one."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[int] = []
        self.turns: list[list[int]] = []

    def call_soon(self, callback):  # type: ignore[no-untyped-def]
        super().call_soon(lambda: self._one_turn(callback))

    def call_at(self, when, callback):  # type: ignore[no-untyped-def]
        return super().call_at(when, callback)

    def _one_turn(self, callback):  # type: ignore[no-untyped-def]
        before = len(self.begun)
        callback()
        self.turns.append(self.begun[before:])


def test_a_thousand_clients_that_come_at_a_time_wait_their_turn() -> None:
    timers = OneTurnTimers()
    line = HandshakeLine(timers, timers.monotonic)
    for number in range(1_000):
        line.wait(lambda number=number: timers.begun.append(number))
    assert timers.begun == [], "never inside the call: its caller is accepting"
    timers.run_ready()
    assert BURST <= len(timers.begun) <= BURST + 1
    assert max(map(len, timers.turns)) <= HANDSHAKES_A_TURN
    timers.advance(1_000)
    assert BURST < len(timers.begun) <= BURST + HANDSHAKES_A_SECOND + 2
    timers.advance(4_000)
    assert timers.begun == list(range(1_000))
    assert len(line) == 0
