"""A partition remembers no more producers than it may, and not those that are silent."""

from __future__ import annotations

from penstock_broker.log.producer_state import AppendedBatch, ProducerState


def write(state: ProducerState, producer: int, sequence: int, now_ms: int, **more: bool) -> None:
    state.check(producer, 0, sequence, sequence)
    state.update(producer, 0, AppendedBatch(sequence, sequence, now_ms, now_ms, 0), now_ms, **more)


def test_ids_that_were_never_given_out_cannot_fill_memory() -> None:
    """A producer that writes is not evicted meanwhile: a duplicate is still detected."""
    state = ProducerState()
    state.producers_max = 100
    write(state, 1, 0, 0)
    entry = state.get(1)
    for number in range(1_000):
        write(state, 1_000 + number, 0, number)
        assert len(state) <= 100
        assert state.get(1) is entry
        assert state.check(1, 0, number, number) is not None, "its last batch is known"
        write(state, 1, 1 + number, number)


def test_the_longest_silent_go_first_a_tenth_at_a_time() -> None:
    state = ProducerState()
    state.producers_max = 20
    times = [5, 3, 9, 1, 7, 2, 8, 0, 6, 4]
    for number, time in enumerate(times):
        write(state, number, 0, time)
        write(state, 100 + number, 0, 50 + time)
    assert len(state) == 20
    write(state, 999, 0, 60)
    gone = [number for number in range(10) if state.get(number) is None]
    assert gone == [3, 5, 7], "those of the times 0, 1 and 2"
    assert all(state.get(100 + number) is not None for number in range(10))


def test_open_transactions_are_not_evicted() -> None:
    state = ProducerState()
    state.producers_max = 10
    write(state, 1, 0, 0, is_transactional=True)
    for number in range(100):
        write(state, 1_000 + number, 0, 1 + number)
    assert state.get(1) is not None
    assert len(state) <= 10
