"""A partition remembers no more producers than it may, and not those that are silent."""

from __future__ import annotations

from penstock_broker.log.producer_state import AppendedBatch, ProducerState


def write(state: ProducerState, producer: int, sequence: int, now_ms: int, **more: bool) -> None:
    state.check(producer, 0, sequence, sequence)
    state.note(producer, 0, AppendedBatch(sequence, sequence, now_ms, now_ms, 0), now_ms, **more)


def test_ids_that_nobody_gave_out_cannot_fill_memory() -> None:
    state = ProducerState()
    state.producers_max = 100
    write(state, 1, 0, 0)
    for number in range(1_000):
        write(state, 1_000 + number, 0, number)
        write(state, 1, 1 + number, number)
        assert len(state) <= 100
    entry = state.get(1)
    assert entry is not None
    assert entry.last_sequence == 1_000, "who writes is remembered"


def test_open_transactions_are_not_forgotten() -> None:
    state = ProducerState()
    state.producers_max = 10
    write(state, 1, 0, 0, is_transactional=True)
    for number in range(100):
        write(state, 1_000 + number, 0, 1 + number)
    assert state.get(1) is not None
    assert len(state) <= 10
