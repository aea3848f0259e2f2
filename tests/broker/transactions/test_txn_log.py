"""Open and aborted transactions in a log: what may be read, and what survives."""

from __future__ import annotations

import struct
from random import Random

import pytest
from crc32c import crc32c
from txn_harness import SETTINGS, TIMEOUT_MS, TOPIC, Harness, read_committed, transactional_batch

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.aborted_transactions import AbortedTransactions
from penstock_broker.log.flushing import FlushJob
from penstock_broker.log.group_flush import Done, run_at_once
from penstock_broker.log.lookup import run
from penstock_broker.log.open_transactions import AbortedTransaction
from penstock_broker.log.producer_state import AppendedBatch, ProducerState
from penstock_broker.transactions.states import TransactionState
from penstock_broker.wire.batch_builder import NewRecord, build_batch


def begin(harness: Harness, transactional_id: str, index: int = 0) -> tuple[int, int]:
    producer = harness.init(transactional_id)
    harness.add(producer, index, transactional_id=transactional_id)
    return producer


def test_the_last_stable_offset_is_the_first_record_that_is_not_decided() -> None:
    harness = Harness()
    one, two = begin(harness, "1"), begin(harness, "2")
    partition = harness.partition()
    assert partition.last_stable_offset == 0
    harness.produce(one, "a", transactional_id="1")
    harness.produce(two, "b", transactional_id="2")
    harness.produce(one, "c", sequence=1, transactional_id="1")
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 3)
    harness.end(one, commit=True, transactional_id="1")
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 4)
    assert harness.read() == ["a"]
    harness.end(two, commit=False, transactional_id="2")
    assert (partition.last_stable_offset, partition.high_watermark) == (5, 5)
    assert harness.read() == ["a", "c"]


def test_aborted_transactions_come_sorted_by_their_first_offset() -> None:
    """Pitfall 29: the index has them in the order of their markers."""
    harness = Harness()
    producers = {name: begin(harness, name) for name in "abcd"}
    for name, producer in producers.items():
        harness.produce(producer, name, transactional_id=name)
    for name in "cadb":
        harness.end(producers[name], commit=False, transactional_id=name)
    partition = harness.partition()
    found = partition.fetch(0, 1 << 20, committed=True)
    aborted = partition.aborted_transactions(0, found)
    assert [a.first_offset for a in aborted] == [0, 1, 2, 3]
    assert [a.producer_id for a in aborted] == [producers[name][0] for name in "abcd"]


def aborted_transactions(count: int) -> Harness:
    """One after the other, of one record each: at every second offset."""
    harness = Harness()
    producer = harness.init()
    for number in range(count):
        harness.add(producer, 0)
        harness.produce(producer, str(number), sequence=number)
        harness.end(producer, commit=False)
    return harness


def test_a_fetch_gets_only_the_aborted_transactions_of_its_range() -> None:
    harness = aborted_transactions(200)
    partition = harness.partition()
    assert len(partition.log.segments) > 20
    found = partition.fetch(100, 300, committed=True)
    aborted = partition.aborted_transactions(100, found)
    assert 1 <= len(aborted) <= 10
    assert aborted[0].first_offset == 100
    assert len(partition.log.aborted_transactions(0, 400)) == 200
    assert harness.read(max_bytes=300) == []


def test_no_more_is_gathered_than_concerns_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may hold millions of aborted transactions; a fetch of its beginning meets a few."""
    harness = aborted_transactions(200)
    partition = harness.partition()
    found = partition.fetch(0, 300, committed=True)
    gathered = 0
    looked_at: list[AbortedTransactions] = []
    find = AbortedTransactions.find

    def count(
        index: AbortedTransactions, first: int, upper: int
    ) -> tuple[list[AbortedTransaction], bool]:
        nonlocal gathered
        some = find(index, first, upper)
        gathered += len(some[0])
        looked_at.append(index)
        return some

    monkeypatch.setattr(AbortedTransactions, "find", count)
    assert partition.aborted_transactions(0, found)
    assert gathered <= 10
    assert len(looked_at) <= 4
    segments = partition.log.segments
    assert len(segments) > 20
    for segment in segments[5:8]:
        looked_at.clear()
        found = partition.fetch(segment.base_offset, 1, committed=True)
        partition.aborted_transactions(segment.base_offset, found)
        assert looked_at[0] is segment.aborted, "no marker of its records is before it"
        assert len(looked_at) <= 3


def test_transactions_below_the_logs_start_are_given_once() -> None:
    """Compaction asks for all of them from offset 0, where there is no segment any more."""
    harness = Harness()
    producer = harness.init()
    for number in range(60):
        harness.add(producer, 0)
        harness.produce(producer, str(number), sequence=number)
        harness.end(producer, commit=False)
    log = harness.partition().log
    log.delete_records(log.segments[4].base_offset)
    assert log.segments[0].base_offset > 0
    found = log.aborted_below(log.log_end_offset)
    assert len(found) > 20
    assert found == sorted(set(found), key=lambda each: each[1])


@pytest.mark.parametrize("flush_messages", ["1", "1000000"])
def test_markers_that_count_are_not_remembered(flush_messages: str) -> None:
    """Also where no client asks for the last stable offset, and after a start."""
    harness = Harness()
    harness.replicas.set_configs(TOPIC, {"flush.messages": flush_messages})
    producer = harness.init()
    for number in range(50):
        harness.add(producer, 0)
        harness.produce(producer, str(number), sequence=number)
        harness.end(producer, commit=True)
    transactions = harness.partition().log.producers.transactions
    assert len(transactions.ended) <= 1
    harness = harness.after_a_kill()
    assert len(harness.partition().log.producers.transactions.ended) == 0


@pytest.mark.parametrize("end", ["kill", "stop", "power"])
def test_the_index_of_aborted_transactions_is_there_after_a_start(end: str) -> None:
    harness = Harness()
    producer = harness.init()
    expected = []
    for number in range(40):
        harness.add(producer, 0)
        harness.produce(producer, str(number), sequence=number)
        harness.end(producer, commit=number % 3 == 0)
        expected += [str(number)] if number % 3 == 0 else []
        if number == 25:
            harness.partition().log.flush()
    if end == "kill":
        harness = harness.after_a_kill()
    elif end == "stop":
        harness = harness.after_a_stop()
    else:
        harness.partition().log.flush()
        harness = harness.after(harness.files.power_cut(Random(1)))
    assert read_committed(harness.partition(), 1) == expected
    assert len(harness.partition().log.aborted_transactions(0, 1_000)) == 26


@pytest.mark.parametrize("damage", [b"x" * 10, bytes(34)])
def test_a_damaged_index_of_aborted_transactions_is_made_again(
    damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    harness = Harness()
    producer = harness.init()
    for number in range(40):
        harness.add(producer, 0)
        harness.produce(producer, str(number), sequence=number)
        harness.end(producer, commit=number % 2 == 0)
    path = harness.partition().log.segments[2].aborted.path
    harness.replicas.close()
    files = harness.files.kill()
    files.put(path, damage)
    harness = harness.after(files)
    assert harness.read() == [str(number) for number in range(0, 40, 2)]
    assert any("rebuilding the indexes of aborted" in line for line in caplog.messages)


def test_a_transaction_over_several_segments_survives_a_kill() -> None:
    harness = Harness()
    producer = begin(harness, "x")
    for number in range(30):
        harness.produce(producer, str(number), sequence=number)
    partition = harness.partition()
    assert len(partition.log.segments) > 2
    harness = harness.after_a_kill()
    partition = harness.partition()
    assert partition.last_stable_offset == 0
    assert partition.has_open_transaction(producer[0])
    harness.end(producer, commit=False)
    assert harness.read() == []
    assert partition.last_stable_offset == 31


def test_deleted_records_do_not_hold_back_what_is_left() -> None:
    harness = Harness()
    producer = begin(harness, "x")
    harness.produce(producer, "a")
    harness.produce(producer, "b", sequence=1)
    partition = harness.partition()
    partition.delete_records(1)
    assert partition.last_stable_offset == 1
    partition.delete_records(-1)
    assert partition.last_stable_offset == partition.log_start_offset == 2
    harness.end(producer, commit=True)
    assert partition.last_stable_offset == 3


def test_time_and_ends_are_asked_for_within_the_isolation_level() -> None:
    """Pitfall 14: an answer at or past the last stable offset is no answer."""
    harness = Harness()
    producer = begin(harness, "x")
    harness.produce(producer, "a")
    partition = harness.partition()
    assert partition.end_offset(committed=True) == 0
    assert partition.end_offset(committed=False) == 1
    assert run(partition.looking_for_timestamp(1, committed=True)) is None
    assert run(partition.looking_for_timestamp(1)) is not None
    assert run(partition.looking_for_latest(committed=True)) is None
    assert run(partition.looking_for_latest()) is not None


def test_a_producer_does_not_write_outside_of_its_open_transaction() -> None:
    harness = Harness()
    producer = begin(harness, "x")
    harness.produce(producer, "a")
    plain = build_batch(
        [NewRecord(None, b"plain", 1)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=1,
    )
    with pytest.raises(KafkaError) as raised:
        harness.partition().append(memoryview(plain))
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_retry_within_a_transaction_is_there_once() -> None:
    """Pitfall 24: also for transactional batches, as long as they are of the last five."""
    harness = Harness()
    producer = begin(harness, "x")
    for number in range(5):
        harness.produce(producer, str(number), sequence=number)
    for number in range(5):
        again = harness.partition().append(transactional_batch(producer, str(number), number))
        assert again.duplicate
        assert again.base_offset == number
    harness.end(producer, commit=True)
    assert harness.read() == ["0", "1", "2", "3", "4"]


def test_sequences_wrap_within_a_transaction() -> None:
    """Pitfall 26: after 2^31 - 1 comes 0."""
    harness = Harness()
    producer = begin(harness, "x")
    harness.produce(producer, "a", sequence=2**31 - 1)
    harness.produce(producer, "b", sequence=0)
    harness.end(producer, commit=True)
    assert harness.read() == ["a", "b"]


def test_after_a_fence_the_new_epoch_begins_with_sequence_0() -> None:
    """Pitfall 25: no other way in after the marker that bumped the epoch."""
    harness = Harness()
    old = begin(harness, "x")
    harness.produce(old, "lost")
    with pytest.raises(KafkaError):
        harness.init()
    new = harness.init()
    harness.add(new, 0)
    with pytest.raises(KafkaError) as raised:
        harness.produce(new, "gap", sequence=1)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    harness.produce(new, "a", sequence=0)
    harness.end(new, commit=True)
    assert harness.read() == ["a"]


def test_producers_with_open_transactions_do_not_expire() -> None:
    state = ProducerState()
    batch = AppendedBatch(0, 0, 0, 0, -1)
    state.update(1, 0, batch, 1_000, True)
    state.update(2, 0, batch, 1_000)
    assert state.expire(2_000) == 1
    assert state.get(1) is not None


def test_snapshots_of_a_time_without_transactions_are_read() -> None:
    body = struct.pack(">qI", 42, 1)
    body += struct.pack(">qhqB", 7, 3, 1_000, 1) + struct.pack(">iiqq", 5, 1, 40, -1)
    state = ProducerState()
    assert state.load_snapshot(struct.pack(">HI", 1, crc32c(body)) + body) == 42
    entry = state.get(7)
    assert entry is not None
    assert (entry.epoch, entry.last_sequence, entry.coordinator_epoch) == (3, 6, -1)
    assert not state.transactions.begun


def test_snapshots_keep_open_transactions_in_the_order_of_the_log() -> None:
    state = ProducerState()
    for producer_id, offset in ((9, 3), (4, 7), (6, 5)):
        batch = AppendedBatch(0, 0, offset, offset, -1)
        state.update(producer_id, 0, batch, 1_000, True)
    again = ProducerState()
    again.load_snapshot(state.to_snapshot(10))
    assert list(again.transactions.begun.items()) == [(9, 3), (6, 5), (4, 7)]
    assert again.transactions.first_unstable(10) == 3


def test_an_end_that_does_not_count_yet_still_holds_back() -> None:
    """A crash may take away what is above the high watermark, also a marker."""
    state = ProducerState()
    transactions = state.transactions
    transactions.begin(1, 10)
    assert transactions.end(1, 12, is_commit=True) is None
    assert transactions.first_unstable(12) == 10
    assert transactions.first_unstable(13) is None


def test_an_end_that_does_not_count_yet_holds_back_before_what_began_later() -> None:
    transactions = ProducerState().transactions
    for producer_id, offset in ((1, 10), (2, 11), (3, 12)):
        transactions.begin(producer_id, offset)
    transactions.end(2, 13, is_commit=True)
    assert transactions.first_unstable(13) == 10
    transactions.end(1, 14, is_commit=True)
    assert transactions.first_unstable(13) == 10, "neither end counts, and 12 is open"
    assert transactions.first_unstable(14) == 10, "the second end does not"
    assert transactions.first_unstable(15) == 12
    transactions.end(3, 15, is_commit=True)
    assert transactions.first_unstable(15) == 12
    assert transactions.first_unstable(16) is None


@pytest.mark.parametrize("seed", range(12))
def test_transactions_that_interleave_with_a_sync_for_each_batch(seed: int) -> None:
    """What a read_committed consumer has seen is there after a power cut, what was answered as
    committed is, and nothing else ever shows."""
    random = Random(seed)
    harness = Harness(settings={**SETTINGS, "log.flush.interval.messages": "1"})
    syncs: list[tuple[FlushJob, Done]] = []
    harness.logs.group_flush.submit = lambda job, done: syncs.append((job, done))
    open_values: dict[str, list[str]] = {}
    producers: dict[str, tuple[int, int]] = {}
    sequences: dict[str, int] = dict.fromkeys("abcd", 0)
    committing: list[tuple[str, list[str]]] = []
    may_show: set[str] = set()
    for step in range(60):
        name, choice = random.choice("abcd"), random.random()
        if choice < 0.55:
            try:
                if name not in producers:
                    producers[name] = harness.init(name)
                if name not in open_values:
                    harness.add(producers[name], 0, transactional_id=name)
                    open_values[name] = []
            except KafkaError as error:
                assert error.code is ErrorCode.CONCURRENT_TRANSACTIONS
                continue
            value = f"{name}{step}"
            harness.produce(producers[name], value, sequence=sequences[name], transactional_id=name)
            sequences[name] += 1
            open_values[name].append(value)
        elif choice < 0.75 and name in open_values:
            commit = random.random() < 0.6
            values = open_values.pop(name)
            if commit:
                may_show |= set(values)
                committing.append((name, values))
            harness.end(producers[name], commit=commit, transactional_id=name)
        elif syncs:
            run_at_once(*syncs.pop(0))
            harness.clock.advance(100)
        assert set(harness.read()) <= may_show
    seen = harness.read()
    complete = TransactionState.COMPLETE_COMMIT
    done = {
        value
        for name, values in committing
        if harness.transactions.describe(name).state is complete
        and (name, values) == [each for each in committing if each[0] == name][-1]
        for value in values
    }
    harness = harness.after(harness.files.power_cut(random))
    after = harness.read()
    assert after[: len(seen)] == seen
    harness.clock.advance(TIMEOUT_MS + 1)
    harness.transactions.abort_expired()  # those whose client is gone
    harness.clock.advance(10_000)
    after = harness.read()
    assert harness.partition().last_stable_offset == harness.partition().log_end_offset
    assert after[: len(seen)] == seen
    assert done <= set(after) <= may_show


def test_with_a_sync_for_each_batch_only_what_is_on_the_disk_counts() -> None:
    """The record that says that all markers are there is written when they are on the disk."""
    harness = Harness(settings={"log.flush.interval.messages": "1"})
    syncs: list[tuple[FlushJob, Done]] = []
    harness.logs.group_flush.submit = lambda job, done: syncs.append((job, done))
    producer = begin(harness, "x")
    harness.produce(producer, "a")
    harness.end(producer, commit=True)
    assert harness.transactions.describe("x").state is TransactionState.PREPARE_COMMIT
    harness.clock.advance(100)
    assert harness.partition().last_stable_offset == 0
    assert harness.transactions.describe("x").state is TransactionState.PREPARE_COMMIT
    while syncs:
        run_at_once(*syncs.pop())
    assert harness.partition().last_stable_offset == 2
    harness.clock.advance(100)
    assert harness.transactions.describe("x").state is TransactionState.COMPLETE_COMMIT
    harness = harness.after(harness.files.power_cut(Random(3)))
    assert harness.read() == ["a"]


def test_a_power_cut_after_each_step_that_was_answered_loses_none() -> None:
    for seed in range(20):
        harness = Harness(settings={"log.flush.interval.messages": "1"})
        producer = begin(harness, "x")
        harness.add(producer, 1)
        harness.produce(producer, "a", index=0)
        harness.produce(producer, "b", index=1)
        harness.end(producer, commit=True)
        harness = harness.after(harness.files.power_cut(Random(seed)))
        assert (harness.read(0), harness.read(1)) == (["a"], ["b"])
