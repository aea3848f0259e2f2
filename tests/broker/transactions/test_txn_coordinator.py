"""The transaction coordinator on a simulated disk: its rules, and what a kill leaves of them."""

from __future__ import annotations

import errno

import pytest
from txn_harness import (
    DATA,
    ID_EXPIRATION_MS,
    TIMEOUT_MS,
    TOPIC,
    Harness,
    refused,
    state,
    transactional_batch,
)

from penstock_broker.cluster.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock_broker.errors import ErrorCode
from penstock_broker.log.markers import Marker, read_marker
from penstock_broker.transactions.coordinator import MARKERS_AT_ONCE
from penstock_broker.transactions.states import TransactionState
from penstock_broker.wire.records import RecordBatch

LAST_EPOCH = 32_766
"""The last epoch that a producer gets; 32,767 is kept, to fence it (``isEpochExhausted``)."""


# -- InitProducerId --------------------------------------------------------------------------


def test_the_same_id_gets_the_same_producer_with_the_next_epoch() -> None:
    """Pitfall 27: same producer id, epoch + 1; another transactional id has another one."""
    harness = Harness()
    producer_id, epoch = harness.init()
    assert epoch == 0
    assert harness.init() == (producer_id, 1)
    assert harness.init("y")[0] != producer_id
    harness = harness.after_a_kill()
    assert harness.init() == (producer_id, 2)


def test_an_open_transaction_is_aborted_first() -> None:
    """Pitfall 27: CONCURRENT_TRANSACTIONS once, then the epoch after the one that fenced."""
    harness = Harness()
    producer_id, epoch = old = harness.init()
    harness.add(old, 0)
    harness.produce(old, "lost")
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        harness.init()
    assert state(harness) is TransactionState.COMPLETE_ABORT
    assert harness.init() == (producer_id, epoch + 2)
    assert harness.read() == []
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.end(old, commit=True)
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.add(old, 1)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        harness.partition().append(transactional_batch(old, "zombie", 1), is_verified=True)


def test_a_producer_may_ask_for_its_next_epoch() -> None:
    """Pitfall 27: v3 with (id, epoch) must verify who asks (KIP-360)."""
    harness = Harness()
    producer_id, epoch = harness.init()
    assert harness.init(expected=(producer_id, epoch)) == (producer_id, epoch + 1)
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.init(expected=(producer_id + 1_000, epoch + 1))
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.init(expected=(producer_id, epoch + 5))


def test_a_repeat_with_the_previous_epoch_changes_nothing() -> None:
    """Pitfall 27: the answer was lost; asking again does not bump again (KAFKA-8710)."""
    harness = Harness()
    producer_id, epoch = harness.init()
    bumped = harness.init(expected=(producer_id, epoch))
    assert harness.init(expected=(producer_id, epoch)) == bumped
    harness.init()  # another producer
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.init(expected=(producer_id, epoch))


def test_who_was_fenced_meanwhile_cannot_repeat_itself() -> None:
    """KAFKA-8710: the epoch that a retry may name is dropped when another producer takes one."""
    harness = Harness()
    producer_id, epoch = harness.init()
    bumped = harness.init(expected=(producer_id, epoch))
    harness.add(bumped, 0)
    harness.clock.advance(TIMEOUT_MS + 1)
    harness.transactions.abort_expired()
    assert state(harness) is TransactionState.COMPLETE_ABORT
    for stale in (epoch, epoch + 1):
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.init(expected=(producer_id, stale))


def test_no_epoch_is_used_up_by_a_write_that_failed() -> None:
    """Pitfall 27: do not bump when the log write failed (KAFKA-9666, KAFKA-19367)."""
    harness = Harness()
    producer_id, epoch = harness.init()
    harness.files.fail("write", errno.ENOSPC, path_part=TRANSACTIONS_TOPIC)
    with refused(ErrorCode.NOT_COORDINATOR):
        harness.init()
    assert harness.init() == (producer_id, epoch + 1)
    harness.add((producer_id, epoch + 1), 0)
    for _ in range(3):
        harness.files.fail("write", errno.ENOSPC, path_part=TRANSACTIONS_TOPIC)
        with refused(ErrorCode.NOT_COORDINATOR):
            harness.init()
        assert state(harness) is TransactionState.ONGOING
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        harness.init()
    assert harness.init() == (producer_id, epoch + 3)


def use_up_epochs(harness: Harness) -> tuple[int, int]:
    producer = harness.init()
    transaction = harness.transactions._transactions["x"]
    object.__setattr__(transaction, "producer_epoch", LAST_EPOCH - 1)
    producer = harness.init()
    assert producer[1] == LAST_EPOCH
    return producer


def test_used_up_epochs_give_a_new_producer_id() -> None:
    """Pitfall 27: epoch exhaustion -> new id (KAFKA-18660), also for who has lost the answer."""
    harness = Harness()
    old = use_up_epochs(harness)
    new = harness.init(expected=old)
    assert new[0] != old[0]
    assert new[1] == 0
    assert harness.init(expected=old) == new
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.init(expected=(old[0] + 1_000, old[1]))
    assert harness.init() == (new[0], 1)


def test_only_who_was_there_may_repeat_itself_after_the_epochs_are_used_up() -> None:
    harness = Harness()
    old = use_up_epochs(harness)
    new = harness.init()  # another producer
    assert new[0] != old[0]
    for expected in (old, (old[0], 3), (old[0], new[1]), (new[0] + 1_000, LAST_EPOCH)):
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.init(expected=expected)
    assert harness.init(expected=new) == (new[0], new[1] + 1)


def test_an_expired_id_starts_over_whatever_its_producer_expects() -> None:
    harness = Harness()
    producer_id, epoch = harness.init(expected=(4_711, 3))
    assert (producer_id != 4_711, epoch) == (True, 0)
    transaction = harness.transactions.describe("x")
    assert transaction.started_ms == -1
    assert not transaction.has_expired(harness.clock.now_ms() + 10 * TIMEOUT_MS)
    with pytest.raises(ValueError, match="no way from"):
        transaction.completed(harness.clock.now_ms())


def test_a_partition_that_is_added_again_is_not_written_again() -> None:
    harness = Harness()
    producer = harness.init()
    harness.add(producer, 0)
    state_log = harness.partition(harness.topic.partition_of("x"), TRANSACTIONS_TOPIC)
    end = state_log.high_watermark
    harness.add(producer, 0)
    assert state_log.high_watermark == end
    harness.add(producer, 0, 1)
    assert state_log.high_watermark == end + 1


def test_the_last_epoch_can_still_be_fenced() -> None:
    """Pitfall 27: an open transaction at the last epoch is aborted, and its producer refused
    with what is meant for it, not with UNKNOWN_SERVER_ERROR (KAFKA-20090)."""
    harness = Harness()
    old = use_up_epochs(harness)
    harness.add(old, 0)
    harness.produce(old, "lost")
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        harness.init()
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.init(expected=old)
    new = harness.init()
    assert (new[0] != old[0], new[1]) == (True, 0)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeouts_have_bounds(timeout_ms: int) -> None:
    harness = Harness()
    with refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT):
        harness.transactions.init_producer_id("x", timeout_ms)
    for allowed in (1, 900_000):
        harness.transactions.init_producer_id("x", allowed)
        assert harness.transactions.describe("x").timeout_ms == allowed


# -- a transaction -----------------------------------------------------------------------------


def test_a_transaction_from_its_beginning_to_its_end() -> None:
    harness = Harness()
    producer = harness.init()
    assert state(harness) is TransactionState.EMPTY
    harness.add(producer, 0)
    harness.add(producer, 0, 1)
    described = harness.transactions.describe("x")
    assert described.state is TransactionState.ONGOING
    assert described.partitions == {(TOPIC, 0), (TOPIC, 1)}
    assert described.started_ms == harness.clock.now_ms()
    harness.produce(producer, "a", index=0)
    harness.produce(producer, "b", index=1)
    assert (harness.read(0), harness.read(1)) == ([], [])
    harness.end(producer, commit=True)
    assert (harness.read(0), harness.read(1)) == (["a"], ["b"])
    assert state(harness) is TransactionState.COMPLETE_COMMIT
    harness.add(producer, 1)
    harness.produce(producer, "c", index=1, sequence=1)
    harness.end(producer, commit=False)
    assert harness.read(1) == ["b"]
    assert state(harness) is TransactionState.COMPLETE_ABORT


def test_ends_that_are_repeated_and_ends_that_are_wrong() -> None:
    """Pitfall 31: nothing that a client may retry fails with UNKNOWN_SERVER_ERROR."""
    harness = Harness()
    producer = harness.init()
    with refused(ErrorCode.INVALID_TXN_STATE):
        harness.end(producer, commit=True)
    harness.add(producer, 0)
    harness.end(producer, commit=True)
    harness.end(producer, commit=True)
    with refused(ErrorCode.INVALID_TXN_STATE):
        harness.end(producer, commit=False)
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        harness.end((producer[0] + 7, producer[1]), commit=True)
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        harness.end(producer, commit=True, transactional_id="unknown")
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.end((producer[0], producer[1] + 1), commit=True)


def test_markers_that_cannot_be_written_are_tried_again() -> None:
    """Pitfall 31: while they are due an EndTxn is CONCURRENT_TRANSACTIONS, which clients retry."""
    harness = Harness()
    producer = harness.init()
    harness.add(producer, 0, 1)
    harness.produce(producer, "a", index=0)
    harness.produce(producer, "b", index=1)
    for _ in range(2):
        harness.files.fail("write", errno.ENOSPC, path_part=f"{TOPIC}-1")
    harness.end(producer, commit=True)
    assert state(harness) is TransactionState.PREPARE_COMMIT
    assert (harness.read(0), harness.read(1)) == (["a"], [])
    for attempt in (
        lambda: harness.end(producer, commit=True),
        lambda: harness.add(producer, 0),
        harness.init,
        lambda: harness.transactions.verify("x", *producer, [(TOPIC, 0)]),
    ):
        with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            attempt()
    with refused(ErrorCode.INVALID_TXN_STATE):
        harness.end(producer, commit=False)
    harness.clock.advance(5_000)
    assert state(harness) is TransactionState.COMPLETE_COMMIT
    assert harness.read(1) == ["b"]
    harness.end(producer, commit=True)


def test_a_marker_says_how_it_ended_and_who_said_so() -> None:
    """Pitfall 30: key (version, type) and a value of six bytes (version, coordinator epoch)."""
    harness = Harness()
    producer = harness.init()
    for commit, kind in ((False, 0), (True, 1)):
        harness.add(producer, 0)
        harness.end(producer, commit=commit)
        found = harness.partition().fetch(harness.partition().high_watermark - 1, 1 << 20)
        batch = RecordBatch(memoryview(found.read()))
        (record,) = batch.records()
        assert record.key == bytes([0, 0, 0, kind])
        epoch = harness.topic.coordinator_epoch("x")
        assert record.value == b"\0\0" + epoch.to_bytes(4, "big")
        assert read_marker(batch) == Marker(commit, epoch)
        assert batch.is_control
        assert batch.is_transactional
        assert (batch.producer_id, batch.producer_epoch) == producer
        assert batch.base_sequence == -1


def test_many_partitions_do_not_hold_up_the_others() -> None:
    harness = Harness(partitions=MARKERS_AT_ONCE + 50, settings={})
    producer = harness.init()
    harness.add(producer, *range(harness.partitions))
    harness.end(producer, commit=True)
    left = {(TOPIC, index) for index in range(MARKERS_AT_ONCE, harness.partitions)}
    assert harness.transactions.describe("x").partitions == left
    harness.clock.run_ready()
    assert state(harness) is TransactionState.COMPLETE_COMMIT


def test_a_deleted_topic_needs_no_marker() -> None:
    harness = Harness()
    producer = harness.init()
    harness.add(producer, 0, 1)
    harness.replicas.delete_topic(TOPIC)
    harness.end(producer, commit=True)
    assert state(harness) is TransactionState.COMPLETE_COMMIT


def test_records_for_a_partition_that_was_not_added_are_refused() -> None:
    """KIP-890: their transactions would never end."""
    harness = Harness()
    producer = harness.init()
    harness.add(producer, 0)
    with refused(ErrorCode.TRANSACTION_ABORTABLE):
        harness.produce(producer, "hanging", index=1)
    with refused(ErrorCode.INVALID_TXN_STATE):
        harness.partition(1).append(transactional_batch(producer, "hanging"))
    harness.produce(producer, "a", index=0)
    harness.partition(0).append(transactional_batch(producer, "b", 1))  # the log knows by now
    harness.end(producer, commit=True)
    with refused(ErrorCode.INVALID_TXN_STATE):
        harness.partition(0).append(transactional_batch(producer, "late", 2))


# -- time ------------------------------------------------------------------------------------------


def test_what_is_open_for_too_long_is_aborted_and_its_producer_fenced() -> None:
    """Pitfall 28: expired transactions must fence the producer (redpanda#23131)."""
    harness = Harness()
    producer = harness.init()
    harness.add(producer, 0)
    harness.produce(producer, "late")
    harness.clock.advance(TIMEOUT_MS)
    harness.transactions.abort_expired()
    assert state(harness) is TransactionState.ONGOING
    harness.clock.advance(1)
    harness.transactions.abort_expired()
    assert state(harness) is TransactionState.COMPLETE_ABORT
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.end(producer, commit=True)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        harness.partition().append(transactional_batch(producer, "late", 1), is_verified=True)
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.init(expected=producer)
    harness.init()
    assert harness.read() == []


def test_unused_ids_expire() -> None:
    harness = Harness()
    harness.init("idle")
    harness.add(harness.init("open"), 0, transactional_id="open")
    harness.clock.advance(ID_EXPIRATION_MS - 1)
    harness.transactions.expire_ids()
    assert state(harness, "idle") is TransactionState.EMPTY
    harness.clock.advance(1)
    harness.transactions.expire_ids()
    harness = harness.after_a_kill()
    with refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        harness.transactions.describe("idle")
    assert state(harness, "open") is TransactionState.ONGOING


def test_lists_have_filters() -> None:
    harness = Harness()
    harness.init("idle")
    producer = harness.init("open")
    harness.add(producer, 0, transactional_id="open")
    harness.clock.advance(1_000)

    def ids(states: list[str], producers: list[int], ms: int) -> list[str]:
        found, _ = harness.transactions.find(states, producers, ms)
        return sorted(transaction.transactional_id for transaction in found)

    assert ids([], [], -1) == ["idle", "open"]
    assert ids(["Ongoing"], [], -1) == ["open"]
    assert ids(["CompleteCommit", "Empty"], [], -1) == ["idle"]
    assert ids([], [producer[0]], -1) == ["open"]
    assert ids(["Ongoing"], [], 1_000) == []
    assert ids(["Ongoing"], [], 999) == ["open"]
    harness.clock.jump(-1_000)
    assert ids(["Ongoing"], [], 0) == []
    harness.clock.jump(-1)
    assert ids(["Ongoing"], [], -1) == ["open"], "begun in the future, and no filter"
    assert harness.transactions.find(["Odd", "Empty"], [], -1)[1] == ["Odd"]


# -- kills -----------------------------------------------------------------------------------------


def test_what_was_decided_is_finished_after_a_kill() -> None:
    harness = Harness()
    producer = harness.init()
    harness.add(producer, 0, 1)
    harness.produce(producer, "a", index=0)
    harness.produce(producer, "b", index=1)
    harness.files.fail("write", errno.ENOSPC, path_part=f"{TOPIC}-1")
    harness.end(producer, commit=True)
    assert state(harness) is TransactionState.PREPARE_COMMIT
    harness = harness.after_a_kill()
    assert state(harness) is TransactionState.COMPLETE_COMMIT
    assert (harness.read(0), harness.read(1)) == (["a"], ["b"])


def test_what_was_open_continues_after_a_kill() -> None:
    harness = Harness()
    producer = harness.init()
    harness.add(producer, 0)
    harness.produce(producer, "a")
    harness = harness.after_a_kill()
    assert harness.read() == []
    harness.produce(producer, "b", sequence=1)
    harness.end(producer, commit=True)
    assert harness.read() == ["a", "b"]


def test_an_unknown_transaction_is_aborted_at_the_start() -> None:
    harness = Harness()
    producer = harness.init()
    harness.add(producer, 0)
    harness.produce(producer, "orphan")
    index = harness.topic.partition_of("x")
    harness.files.put(DATA / f"{TRANSACTIONS_TOPIC}-{index}" / f"{0:020d}.log", b"")
    harness = harness.after_a_kill()
    with refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        harness.transactions.describe("x")
    assert harness.partition().last_stable_offset == harness.partition().high_watermark
    assert harness.read() == []


def test_a_newer_transaction_than_the_one_known_is_aborted_at_the_start() -> None:
    """A power cut takes the end of the internal topic: what is left of it is about an older
    transaction in the same partitions, and a marker of its epoch would end nothing there."""
    harness = Harness(settings={})
    first = harness.init()
    harness.add(first, 0)
    harness.produce(first, "a")
    harness.commit_offset(first, 1)
    place = DATA / f"{TRANSACTIONS_TOPIC}-{harness.topic.partition_of('x')}" / f"{0:020d}.log"
    left = harness.files.get(place)
    harness.end(first, commit=True)
    second = harness.init()
    assert second == (first[0], first[1] + 1)
    harness.add(second, 0)
    harness.produce(second, "b")
    harness.commit_offset(second, 2)
    harness.files.put(place, left)
    harness = harness.after_a_kill()
    assert harness.transactions.describe("x").producer_epoch == first[1]
    assert harness.partition().last_stable_offset == harness.partition().high_watermark
    assert harness.groups.offsets.undecided("g") == set()
    harness.end(first, commit=True)  # it was committed: its markers are there
    assert state(harness) is TransactionState.COMPLETE_COMMIT
    assert (harness.read(), harness.committed()) == (["a"], 1)


def test_an_id_whose_records_cannot_be_read_does_not_start_over() -> None:
    """Nor is its transaction taken for an orphan: it may have been committed."""
    harness = Harness()
    producer = harness.init()
    harness.add(producer, 0)
    harness.produce(producer, "a")
    place = DATA / f"{TRANSACTIONS_TOPIC}-{harness.topic.partition_of('x')}" / f"{0:020d}.log"
    garbage = bytearray(harness.files.get(place))
    harness.replicas.close()
    garbage[73] = 9  # an unknown version of the value, in a log that was closed
    files = harness.files.kill()
    files.put(place, bytes(garbage))
    harness = harness.after(files)
    for attempt in (harness.init, lambda: harness.end(producer, commit=True)):
        with refused(ErrorCode.NOT_COORDINATOR):
            attempt()
    assert harness.partition().has_open_transaction(producer[0])


# -- offsets -----------------------------------------------------------------------------------


def test_offsets_count_when_their_transaction_commits() -> None:
    """Pitfall 32: until then they are not stable: UNSTABLE_OFFSET_COMMIT for require_stable."""
    harness = Harness()
    producer = harness.init()
    harness.commit_offset(producer, 5)
    assert harness.committed() is None
    assert harness.groups.offsets.undecided("g") == {(TOPIC, 0)}
    harness = harness.after_a_kill()
    assert harness.committed() is None
    assert harness.groups.offsets.undecided("g") == {(TOPIC, 0)}
    harness.end(producer, commit=True)
    assert harness.committed() == 5
    assert harness.groups.offsets.undecided("g") == set()
    harness.commit_offset(producer, 9)
    harness.end(producer, commit=False)
    assert harness.committed() == 5
    assert harness.after_a_kill().committed() == 5


def test_the_offset_that_was_written_last_counts() -> None:
    harness = Harness()
    first, second = harness.init("x"), harness.init("y")
    harness.commit_offset(first, 1)
    harness.commit_offset(second, 2, transactional_id="y")
    harness.end(second, commit=True, transactional_id="y")
    harness.end(first, commit=True)
    assert harness.committed() == 2
    assert harness.after_a_kill().committed() == 2


def test_the_partition_of_the_offsets_is_part_of_the_transaction() -> None:
    harness = Harness()
    producer = harness.init()
    harness.commit_offset(producer, 5)
    place = (OFFSETS_TOPIC, harness.offsets.partition_of("g"))
    assert harness.transactions.describe("x").partitions == {place}
    assert harness.partition(place[1], OFFSETS_TOPIC).has_open_transaction(producer[0])
    harness.end(producer, commit=True)
    assert not harness.partition(place[1], OFFSETS_TOPIC).has_open_transaction(producer[0])
