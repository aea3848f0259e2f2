"""What a partition remembers of its producers, and whom it lets write: the rules by themselves."""

from __future__ import annotations

import struct

import pytest

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.markers import Marker
from penstock_broker.log.producer_state import AppendedBatch, ProducerState

COMMIT = Marker(is_commit=True, coordinator_epoch=3)
PRODUCER = 7


def batch(sequence: int, offset: int = 0) -> AppendedBatch:
    return AppendedBatch(sequence, sequence, offset, offset, -1)


def raises(code: ErrorCode, text: str) -> pytest.RaisesExc[KafkaError]:
    return pytest.raises(KafkaError, match=text, check=lambda error: error.code is code)


@pytest.fixture
def state() -> ProducerState:
    return ProducerState()


# -- coordinators -------------------------------------------------------------------------------


def test_a_coordinator_that_has_been_replaced_writes_no_marker(state: ProducerState) -> None:
    state.check_coordinator(PRODUCER, 0, 0)
    state.update_for_marker(PRODUCER, 1, 0, 0, COMMIT)
    for coordinator_epoch in (3, 4, None):
        state.check_coordinator(PRODUCER, 1, coordinator_epoch)
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    with raises(fenced, f"^Coordinator epoch 2 for producer {PRODUCER} is .* the last seen, 3.$"):
        state.check_coordinator(PRODUCER, 1, 2)
    with raises(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"^Epoch 0 of producer {PRODUCER} is smaller than the last seen, 1.$",
    ):
        state.check_coordinator(PRODUCER, 0, 3)


def test_a_new_epoch_keeps_what_is_known_of_its_coordinator(state: ProducerState) -> None:
    state.update_for_marker(PRODUCER, 1, 0, 0, COMMIT)
    state.update(PRODUCER, 2, batch(0), 0)
    with raises(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "epoch 2 .* 3"):
        state.check_coordinator(PRODUCER, 2, 2)


def test_of_a_producer_without_markers_no_coordinator_is_known(state: ProducerState) -> None:
    state.update(PRODUCER, 0, batch(0), 0)
    entry = state.get(PRODUCER)
    assert entry is not None
    assert entry.coordinator_epoch == -1


def test_a_marker_of_a_newer_epoch_fences_the_older(state: ProducerState) -> None:
    state.update(PRODUCER, 1, batch(5), 0)
    state.update_for_marker(PRODUCER, 2, 1, 0, COMMIT)
    with raises(ErrorCode.INVALID_PRODUCER_EPOCH, "Epoch 1"):
        state.check(PRODUCER, 1, 6, 6)
    state.update_for_marker(PRODUCER, 2, 2, 0, COMMIT)
    assert state.check(PRODUCER, 2, 0, 0) is None


def test_a_marker_keeps_the_batches_of_its_epoch(state: ProducerState) -> None:
    state.update(PRODUCER, 1, batch(5), 0)
    state.update_for_marker(PRODUCER, 1, 1, 0, COMMIT)
    assert state.check(PRODUCER, 1, 6, 6) is None
    assert state.check(PRODUCER, 1, 5, 5) == batch(5)


def test_a_marker_is_a_sign_of_life(state: ProducerState) -> None:
    state.update(PRODUCER, 1, batch(0), 1_000)
    state.update_for_marker(PRODUCER, 1, 1, 2_000, COMMIT)
    assert state.expire(2_000) == 0
    assert state.expire(2_001) == 1


# -- producers ----------------------------------------------------------------------------------


def test_an_epoch_of_which_only_a_marker_is_known_begins_at_zero(state: ProducerState) -> None:
    state.update_for_marker(PRODUCER, 1, 0, 0, COMMIT)
    assert state.check(PRODUCER, 1, 0, 0) is None
    for sequence in (1, 2**31 - 1):
        with raises(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "where 0 follows"):
            state.check(PRODUCER, 1, sequence, sequence)


def test_a_new_epoch_begins_at_zero(state: ProducerState) -> None:
    state.update(PRODUCER, 1, batch(0), 0)
    with raises(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"^Producer {PRODUCER} begins its new epoch 2 with sequence 4.$",
    ):
        state.check(PRODUCER, 2, 4, 4)


def test_batches_without_sequences_are_not_counted(state: ProducerState) -> None:
    """Offsets that a coordinator commits for a producer."""
    state.update(PRODUCER, 1, batch(0), 0)
    state.update(PRODUCER, 1, batch(-1), 0)
    assert state.check(PRODUCER, 1, 1, 1) is None


def test_within_its_transaction_a_producer_writes_nothing_else(state: ProducerState) -> None:
    state.update(PRODUCER, 1, batch(0), 0, True)
    state.require_open(PRODUCER)
    assert state.check(PRODUCER, 1, 1, 1, True) is None
    with raises(
        ErrorCode.INVALID_TXN_STATE, f"^Expected transactional write from producer {PRODUCER}.$"
    ):
        state.check(PRODUCER, 1, 1, 1)
    state.update_for_marker(PRODUCER, 1, 1, 0, COMMIT)
    assert state.check(PRODUCER, 1, 1, 1) is None
    with raises(ErrorCode.INVALID_TXN_STATE, "not part of an ongoing transaction"):
        state.require_open(PRODUCER)


# -- bounds, and what is stored --------------------------------------------------------------------


def test_a_new_epoch_of_a_known_producer_takes_no_space(state: ProducerState) -> None:
    state.producers_max = 10
    for producer in range(10):
        state.update(producer, 0, batch(0), producer)
    state.update(3, 1, batch(0), 20)
    assert len(state) == 10


def test_a_tenth_makes_space_and_one_more(state: ProducerState) -> None:
    state.producers_max = 90
    for producer in range(91):
        state.update(producer, 0, batch(0), producer)
    assert sorted(state.producers()) == list(range(10, 91))


def test_as_many_are_remembered_as_the_documentation_says(state: ProducerState) -> None:
    assert state.producers_max == 10_000


def test_nothing_is_left_of_what_is_cleared(state: ProducerState) -> None:
    state.update(PRODUCER, 1, batch(5), 0, True)
    state.clear()
    assert not state.producers()
    assert state.check(PRODUCER, 0, 9, 9) is None
    assert state.transactions.first_unstable(10) is None


def test_a_snapshot_says_minus_one_where_there_is_nothing(state: ProducerState) -> None:
    state.update(PRODUCER, 1, batch(0), 5)
    snapshot = state.to_snapshot(1)
    assert snapshot[:2] == b"\0\2", "the format's version"
    stored = struct.unpack_from(">qhqiqB", snapshot, 18)
    assert stored == (PRODUCER, 1, 5, -1, -1, 1)
