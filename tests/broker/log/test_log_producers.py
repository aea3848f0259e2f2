"""Idempotent producers: what is appended, what is a repetition, what is refused."""

from __future__ import annotations

from random import Random

import pytest
from log_bench import Bench, read_all, values_of

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.log import Log
from penstock_broker.log.producer_state import (
    AppendedBatch,
    ProducerState,
    SnapshotDamagedError,
)
from penstock_broker.log.recovery import keep_snapshot, snapshot_path

SEQUENCE_MAX = 2**31 - 1


def send(
    bench: Bench, log: Log, sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 5
) -> AppendResult:
    values = [f"{producer}/{epoch}/{sequence}+{n}" for n in range(count)]
    return log.append([bench.batch(values, producer=(producer, epoch, sequence))], 0)


def refused(bench: Bench, log: Log, sequence: int, count: int = 1, *, epoch: int = 0) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as error:
        send(bench, log, sequence, count, epoch=epoch)
    assert log.log_end_offset == end, "what is refused is not stored"
    return error.value.code


def test_each_of_the_last_five_batches_can_be_repeated(bench: Bench) -> None:
    """Pitfall 24: a retry of any of the last five batches gets the original offset, no error."""
    log = bench.open()
    results = [send(bench, log, 2 * n, 2) for n in range(7)]
    for number in (6, 2, 3, 4, 5):
        again = send(bench, log, 2 * number, 2)
        assert again.duplicate
        assert again.base_offset == results[number].base_offset
        assert again.last_offset == results[number].last_offset
    assert log.log_end_offset == 14
    assert refused(bench, log, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not send(bench, log, 14).duplicate


def test_a_batch_that_overlaps_is_not_a_repetition(bench: Bench) -> None:
    """Pitfall 24: only the very same batch is one; a part of it would lose or double records."""
    log = bench.open()
    send(bench, log, 0, 3)
    assert refused(bench, log, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(bench, log, 1, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused(bench: Bench) -> None:
    log = bench.open()
    send(bench, log, 0)
    assert refused(bench, log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_refused_and_a_newer_begins_at_zero(bench: Bench) -> None:
    """Pitfall 28: the produce path says INVALID_PRODUCER_EPOCH."""
    log = bench.open()
    send(bench, log, 0, epoch=1)
    assert refused(bench, log, 1, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(bench, log, 1, epoch=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(bench, log, 0, epoch=2).base_offset == 1
    assert refused(bench, log, 1, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_same_sequences_of_a_new_epoch_are_no_repetition(bench: Bench) -> None:
    log = bench.open()
    send(bench, log, 0)
    again = send(bench, log, 0, epoch=1)
    assert (again.duplicate, again.base_offset) == (False, 1)


def test_an_unknown_producer_may_begin_anywhere(bench: Bench) -> None:
    """Pitfall 25: after its state has expired, a producer continues with its sequence (KIP-360)."""
    log = bench.open()
    assert send(bench, log, 1234).base_offset == 0
    bench.clock.advance(10_000)
    assert log.expire_producers(bench.clock.now_ms() - 5_000) == 1
    assert send(bench, log, 77).base_offset == 1
    assert refused(bench, log, 79) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_active_producer_does_not_expire(bench: Bench) -> None:
    """Expiry goes by the broker's clock: records may carry times of years ago."""
    log = bench.open()
    log.append([bench.batch(["old"], timestamps=[1], producer=(5, 0, 0))], 0)
    assert log.expire_producers(bench.clock.now_ms() - 1) == 0
    log = bench.reopen_after_kill(log)
    assert log.expire_producers(bench.clock.now_ms() - 1) == 0


@pytest.mark.parametrize("first", [SEQUENCE_MAX, SEQUENCE_MAX - 1, SEQUENCE_MAX - 2])
def test_sequences_wrap(bench: Bench, first: int) -> None:
    """Pitfall 26: sequences wrap from 2^31-1 to 0, also within a batch."""
    log = bench.open()
    send(bench, log, first, 3)
    following = (first + 3) % 2**31
    assert send(bench, log, first, 3).duplicate
    assert refused(bench, log, following + 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(bench, log, following, 2).base_offset == 3
    assert send(bench, log, following, 2).duplicate


def test_producers_do_not_meet(bench: Bench) -> None:
    log = bench.open()
    send(bench, log, 0, producer=1)
    send(bench, log, 0, producer=2)
    assert send(bench, log, 1, producer=1).base_offset == 2
    assert bench.append(log, "no producer id").base_offset == 3


@pytest.mark.parametrize("clean", [True, False])
def test_repetitions_are_known_after_a_restart(bench: Bench, clean: bool) -> None:
    """Pitfall 25: state is rebuilt from snapshot and log before anything is accepted."""
    bench.overrides = {"segment.bytes": "400"}
    log = bench.open()
    results = [send(bench, log, n, producer=7) for n in range(12)]
    assert len(log.segments) > 2
    log = bench.reopen_cleanly(log) if clean else bench.reopen_after_kill(log)
    for number in range(7, 12):
        again = send(bench, log, number, producer=7)
        assert (again.duplicate, again.base_offset) == (True, results[number].base_offset)
    with pytest.raises(KafkaError):
        send(bench, log, 13, producer=7)
    assert send(bench, log, 12, producer=7).base_offset == 12


@pytest.mark.parametrize("damage", ["missing", "flipped", "short"])
def test_without_snapshots_the_state_comes_from_the_log(bench: Bench, damage: str) -> None:
    bench.overrides = {"segment.bytes": "400"}
    log = bench.open()
    for number in range(12):
        send(bench, log, number)
    log.close()
    for name in bench.files.names(bench.directory):
        path = bench.directory / name
        if not name.endswith(".snapshot"):
            continue
        data = bench.files.get(path)
        if damage == "missing":
            bench.files.remove(path)
        else:
            bench.files.put(path, data[:-1] if damage == "short" else data[:-1] + b"\xff")
    bench.files = bench.files.kill()
    log = bench.open(recovery_point=12, clean=True)
    assert send(bench, log, 9).duplicate
    assert send(bench, log, 12).base_offset == 12


def test_a_cut_takes_its_batches_out_of_the_memory(bench: Bench) -> None:
    """What the log lost is no repetition: the producer's retry is the only copy left."""
    log = bench.open()
    send(bench, log, 0)
    size = log.size_bytes
    send(bench, log, 1)
    path = log.segments[-1].path
    bench.files.put(path, bench.files.get(path)[: size + 20])
    log = bench.reopen_after_kill(log)
    again = send(bench, log, 1)
    assert (again.duplicate, again.base_offset) == (False, 1)


def test_a_snapshot_of_a_lost_future_is_not_used(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    for number in range(3):
        send(bench, log, number)
    second = log.segments[1].path
    damaged = bytearray(bench.files.get(second))
    damaged[-1] ^= 1
    bench.files.put(second, bytes(damaged))
    log = bench.reopen_after_kill(log)
    assert log.log_end_offset == 1
    entry = log.producers.get(5)
    assert entry is not None
    assert [batch.base_sequence for batch in entry.batches] == [0]
    again = send(bench, log, 1)
    assert (again.duplicate, again.base_offset) == (False, 1)


def snapshots(bench: Bench) -> list[int]:
    names = bench.files.names(bench.directory)
    return [int(name[:20]) for name in names if name.endswith(".snapshot") and name[0] == "0"]


def known(log: Log) -> dict[int, list[int]]:
    """By producer, the offsets of its batches."""
    found = log.producers.producers().items()
    return {producer_id: [b.base_offset for b in entry.batches] for producer_id, entry in found}


def written_by_turns(bench: Bench) -> Log:
    """Four segments of one batch each, of four producers; closed, without snapshots."""
    log = bench.open()
    for producer in range(4):
        send(bench, log, 0, producer=producer)
        if producer < 3:
            log.roll()
    log.close()
    bench.files = bench.files.kill()
    for offset in snapshots(bench):
        bench.files.remove(snapshot_path(bench.directory, offset))
    return log


def test_a_start_reads_what_the_newest_snapshot_does_not_say(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is damaged, and one of a log that is no more, go."""
    log = written_by_turns(bench)
    assert known(bench.open(recovery_point=4, clean=True)) == {n: [n] for n in range(4)}
    bench.files = bench.files.kill()
    for offset in snapshots(bench):
        bench.files.remove(snapshot_path(bench.directory, offset))
    for offset, producer in ((0, 70), (1, 71), (2, 72)):
        state = ProducerState()
        state.update(producer, 0, AppendedBatch(0, 0, offset - 1, offset - 1, 5), 5, False)
        path = snapshot_path(bench.directory, offset)
        bench.files.put(path, state.to_snapshot(offset))
    damaged = snapshot_path(bench.directory, 3)
    bench.files.put(damaged, b"damaged")
    bench.files.put(snapshot_path(bench.directory, 9), state.to_snapshot(9))
    log = bench.open(recovery_point=4, clean=True)
    assert known(log) == {72: [1], 2: [2], 3: [3]}
    assert snapshots(bench) == [0, 1, 2]
    assert f"{damaged} cannot be used: " in caplog.text


def test_a_start_from_a_snapshot_inside_a_segment_reads_no_batch_twice(bench: Bench) -> None:
    log = bench.open()
    send(bench, log, 0, 2)
    log = bench.reopen_cleanly(log)
    send(bench, log, 2, 2)
    log.close()
    bench.files = bench.files.kill()
    assert snapshots(bench) == [2, 4]
    bench.files.put(snapshot_path(bench.directory, 4), b"damaged")
    assert known(bench.open(recovery_point=4, clean=True)) == {5: [0, 2]}


def test_two_snapshots_are_kept_and_those_that_are_needed(bench: Bench) -> None:
    place = bench.open().place
    bench.files.put(bench.directory / "foreign.snapshot", b"")
    for offset in range(1, 6):
        keep_snapshot(place, offset, b"state" * offset)
        assert snapshots(bench) == [offset - 1, offset][-offset:]
    keep_snapshot(place, 7, b"state", [1, 4])
    assert snapshots(bench) == [4, 5, 7]
    keep_snapshot(place, 7, b"new")
    assert snapshots(bench) == [5, 7]
    assert bench.files.get(snapshot_path(bench.directory, 7)) == b"new", "what was longer is cut"


def test_any_interleaving_of_retries_stores_each_record_once(bench: Bench, seed: int) -> None:
    """Producers that resend at will, within what clients may have in flight, and kills between."""
    random = Random(seed)
    bench.overrides = {"segment.bytes": "900"}
    log = bench.open()
    sent: dict[int, list[tuple[int, int, int]]] = {1: [], 2: [], 3: []}
    for _ in range(300):
        producer = random.choice(list(sent))
        history = sent[producer]
        if history and random.random() < 0.4:
            sequence, count, offset = random.choice(history[-5:])
            again = send(bench, log, sequence, count, producer=producer)
            assert (again.duplicate, again.base_offset) == (True, offset)
        else:
            following = history[-1][0] + history[-1][1] if history else 0
            count = random.randint(1, 4)
            result = send(bench, log, following, count, producer=producer)
            history.append((following, count, result.base_offset))
        if random.random() < 0.03:
            log = bench.reopen_after_kill(log)
    stored = values_of(read_all(log))
    assert len(stored) == len(set(stored)) == sum(b[1] for bs in sent.values() for b in bs)


def test_snapshot_round_trip(seed: int) -> None:
    random = Random(seed)
    state = ProducerState()
    for _ in range(200):
        offset = random.randrange(2**40)
        count = random.randrange(50)
        sequence = random.randrange(2**31)
        last = (sequence + count) % 2**31
        batch = AppendedBatch(sequence, last, offset, offset + count, random.randrange(-1, 2**42))
        state.update(random.randrange(20), random.randrange(3), batch, random.randrange(2**42))
    data = state.to_snapshot(77)
    other = ProducerState()
    assert other.load_snapshot(data) == 77
    assert other.to_snapshot(77) == data
    for size in range(0, len(data), 7):
        with pytest.raises(SnapshotDamagedError):
            other.load_snapshot(data[:size])


def test_a_snapshot_with_any_byte_changed_is_not_used() -> None:
    state = ProducerState()
    state.update(7, 1, AppendedBatch(3, 4, 0, 1, 5), 6, is_transactional=True)
    data = state.to_snapshot(2)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(SnapshotDamagedError):
            ProducerState().load_snapshot(bytes(changed))


def test_a_snapshot_replaces_what_was_open_and_knows_a_transaction_from_offset_0() -> None:
    state = ProducerState()
    state.update(7, 1, AppendedBatch(0, 0, 0, 0, 5), 6, is_transactional=True)
    other = ProducerState()
    other.update(8, 1, AppendedBatch(0, 0, 3, 3, 5), 6, is_transactional=True)
    assert other.load_snapshot(state.to_snapshot(1)) == 1
    assert other.transactions.begun == {7: 0}
    assert list(other.producers()) == [7]


def test_producers_expire_by_the_millisecond() -> None:
    state = ProducerState()
    for number in range(3):
        state.update(number, 0, AppendedBatch(0, 0, number, number, 0), 10 + number)
    assert state.expire(11) == 1
    assert list(state.producers()) == [1, 2]
