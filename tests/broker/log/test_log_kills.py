"""Kills after compaction and retention: decisions hold, what was written is known."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from compacted_transactions import Transactions, committed
from compaction_bench import CompactedBench, content
from log_bench import Bench, read_all, values_of

from penstock_broker.log.log import Log
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch, iter_batches, validate_batches


def batches_of(log: Log) -> list[RecordBatch]:
    found: list[RecordBatch] = []
    for segment in log.segments:
        found += iter_batches(memoryview(segment.file.read(0, segment.size)))
    return found


def remove_snapshots(bench: Bench) -> None:
    for name in bench.files.names(bench.directory):
        if name.endswith(".snapshot"):
            bench.files.remove(bench.directory / name)


# -- after compaction --------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("with_snapshots", [True, False])
async def test_a_transaction_that_compaction_has_emptied_is_not_opened_again(
    with_snapshots: bool,
) -> None:
    """Its last batch stays, without records, for its sequences; its marker may be gone."""
    bench = CompactedBench()
    bench.overrides["delete.retention.ms"] = "0"
    log = bench.open()
    transactions = Transactions(bench, log, Random(1))
    transactions.write(1)
    transactions.end(1, commit=False)
    for number in range(20):
        bench.put(log, ("k", f"{number}"))
    for _ in range(3):
        await bench.compact(log)
        bench.clock.advance(1)
        log.cleaned = log.cleaned._replace(first_dirty=0)
    kinds = [(batch.is_control, batch.records_count) for batch in batches_of(log)]
    assert kinds[0] == (False, 0), "the emptied batch of the transaction"
    assert not any(is_control for is_control, _ in kinds), "its marker has gone"
    stable = log.last_stable_offset
    assert stable == log.log_end_offset
    if not with_snapshots:
        remove_snapshots(bench)
    bench.files = bench.files.kill()  # type: ignore[assignment]
    log = bench.open(recovery_point=0)
    assert log.last_stable_offset == stable
    assert not log.producers.transactions.begun
    data = build_batch(
        [NewRecord(b"k", b"plain", 1)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=transactions.sequences[1],
    )
    log.append(validate_batches(memoryview(data), max_message_bytes=1 << 20), 0)


@pytest.mark.asyncio
async def test_kills_after_compaction_of_transactions_that_interleave(seed: int) -> None:
    random = Random(seed)
    for _ in range(8):
        bench = CompactedBench()
        bench.overrides["delete.retention.ms"] = random.choice(["0", "20"])
        log = bench.open()
        transactions = Transactions(bench, log, random)
        for _ in range(4):
            transactions.work(30)
            await bench.compact(log)
            before, stable, end = committed(log), log.last_stable_offset, log.log_end_offset
            known = log.producers.producers()
            begun = dict(log.producers.transactions.begun)
            if random.random() < 0.5:
                remove_snapshots(bench)
            point = random.choice([0, log.recovery_point])
            bench.files = bench.files.kill()  # type: ignore[assignment]
            log = transactions.log = bench.open(recovery_point=point)
            assert log.recovered.cut is None
            assert (log.last_stable_offset, log.log_end_offset) == (stable, end)
            assert committed(log) == before
            assert dict(log.producers.transactions.begun) == begun
            for producer_id, entry in known.items():
                again = log.producers.get(producer_id)
                assert again is not None
                assert (again.epoch, again.last_sequence) == (entry.epoch, entry.last_sequence)


@pytest.mark.asyncio
async def test_a_compacted_batch_says_how_late_its_records_are() -> None:
    """Retention and lookups by time believe the header."""
    bench = CompactedBench()
    log = bench.open()
    bench.put(log, ("a", "1"), ("b", "2"), ("c", "3"))  # a millisecond apart each
    bench.put(log, ("b", "4"), ("c", "5"))
    bench.put(log, ("gone", None), ("stay", "x"))  # its times are counted again, from its horizon
    for number in range(10):
        bench.put(log, ("k", f"{number}"))
    first = read_all(log)[0]
    await bench.compact(log)
    batch = batches_of(log)[0]
    assert [record.offset for record in batch.records()] == [0]
    assert batch.max_timestamp == first.timestamp
    for batch in batches_of(log):
        if batch.records_count:
            assert batch.max_timestamp == max(record.timestamp for record in batch.records())


@pytest.mark.asyncio
async def test_a_compacted_batch_keeps_its_append_time() -> None:
    bench = CompactedBench()
    bench.overrides["message.timestamp.type"] = "LogAppendTime"
    log = bench.open()
    times = {}
    for number in range(12):
        bench.clock.advance(1000)
        times[bench.put(log, (f"k{number % 3}", "x"), ("same", "x"))] = bench.clock.now_ms()
    await bench.compact(log)
    for batch in batches_of(log):
        assert batch.max_timestamp == times[batch.base_offset]


@pytest.mark.asyncio
async def test_what_is_not_on_the_disk_is_not_compacted() -> None:
    """A power cut could take away the newer record that the older one was dropped for."""
    bench = CompactedBench()
    log = bench.open()
    for number in range(20):
        bench.put(log, ("k", f"{number}"))
    cleaner = bench.cleaner(log)
    before = content(log)
    assert await cleaner.clean_all() == 0
    assert content(log) == before
    job = log.flush_job()
    assert job is not None
    for number in range(20):
        bench.put(log, ("k", f"{number}"))
    job.run()
    log.flushed(job)
    assert await cleaner.clean_all() == 1
    assert log.cleaned.first_dirty <= job.up_to_offset


@pytest.mark.asyncio
async def test_a_hole_that_ends_at_undecided_records_reads_as_nothing() -> None:
    """The next batch behind the hole is above the last stable offset."""
    bench = CompactedBench()
    bench.overrides["delete.retention.ms"] = "0"
    log = bench.open()
    for number in range(12):
        bench.put(log, ("k", None if number else "v"))
    log.advance_start(log.log_end_offset)  # begins a segment: all others are closed
    log._start_offset = 0
    for _ in range(2):
        await bench.compact(log)
        bench.clock.advance(1)
        log.cleaned = log.cleaned._replace(first_dirty=0)
    Transactions(bench, log, Random(2)).write(7)
    stable = log.last_stable_offset
    assert stable == 12 < log.log_end_offset
    kept = {record.offset for record in read_all(log)}
    assert min(kept) == stable
    for offset in range(stable):
        found = log.read(offset, 1 << 20, stable)
        assert found.size or not found.parts, "what has no bytes holds no file"
        below = [o for o in kept if offset <= o < stable]
        assert bool(found.size) is bool(below), f"offset {offset}"
        if found.size:
            last = list(iter_batches(memoryview(found.read())))[-1]
            assert last.last_offset < stable


# -- after retention ---------------------------------------------------------------------------


def send(bench: Bench, log: Log, producer: int, sequence: int) -> tuple[int, bool]:
    result = log.append(
        [bench.batch([f"{producer}/{sequence}"], producer=(producer, 0, sequence))], 0
    )
    return result.base_offset, result.duplicate


def test_a_snapshot_from_before_the_log_begins_is_not_used() -> None:
    """It says nothing of the batches that retention took: their producers would be refused."""
    bench = Bench()
    bench.overrides = {"segment.bytes": "500"}
    log = bench.open()
    for sequence in range(20):
        send(bench, log, 1, sequence)
    count = len(log.segments)
    while len(log.segments) == count:
        send(bench, log, 2, log.log_end_offset - 20)
    bases = [segment.base_offset for segment in log.segments]
    snapshots = [n for n in bench.files.names(bench.directory) if n.endswith(".snapshot")]
    assert [int(name[:20]) for name in snapshots] == bases[1:]
    log.delete_records(bases[-1])
    bench.files.remove(bench.directory / snapshots[-1])
    bench.files = bench.files.kill()
    log = bench.open(log_start_offset=bases[-1])
    assert log.producers.get(1) is None, "all that it wrote has gone"
    assert send(bench, log, 1, 20)[1] is False


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_kill_after_stops_does_not_read_all_of_the_log(is_synced: bool) -> None:
    """Each stop leaves a snapshot, but none that a check from a segment's beginning can use: that
    of the beginning stays; where segments are not on the disk yet, so do those of theirs."""
    bench = Bench()
    bench.overrides = {"segment.bytes": "500"}
    log = bench.open()
    for sequence in range(40):
        send(bench, log, 1 + sequence % 3, sequence // 3)
        if is_synced or sequence < 15:
            log.flush()
    if is_synced:
        for _ in range(3):
            log = bench.reopen_cleanly(log)
            send(bench, log, 9, log.log_end_offset - 40)
    log.delete_records(log.segments[-1].base_offset - 1)
    reads: list[str] = []
    files = bench.files.kill()
    check = files.check
    bench.files = files

    def note(operation: str, path: Path) -> None:
        check(operation, path)
        if operation == "read" and path.suffix == ".log":
            reads.append(path.name)

    files.check = note  # type: ignore[method-assign]
    point = log.recovery_point
    checked = [s.path.name for s in log.segments if s.base_offset >= point]
    checked += [s.path.name for s in log.segments if s.base_offset <= point][-1:]
    known = {pid: entry.last_sequence for pid, entry in log.producers.producers().items()}
    log = bench.open(recovery_point=point, log_start_offset=log.log_start_offset)
    assert {p: e.last_sequence for p, e in log.producers.producers().items()} == known
    assert set(reads) <= set(checked)


def test_retention_and_kills_with_idempotent_producers(seed: int) -> None:
    """Whatever goes at the front and whenever the process ends: a retry is known, what follows is
    taken, and each record is there once and in order. (Closed segments are on the disk, as the
    broker has it: from a kill before that, a producer that has nothing left is not known.)"""
    random = Random(seed)
    for _ in range(6):
        bench = Bench()
        bench.overrides = {"segment.bytes": "400", "index.interval.bytes": "100"}
        log = bench.open()
        sequences = dict.fromkeys(range(1, 5), 0)
        written: list[str] = []
        for _ in range(60):
            choice = random.random()
            if choice < 0.6:
                producer = random.choice(list(sequences))
                sequence = sequences[producer]
                assert send(bench, log, producer, sequence) == (len(written), False)
                sequences[producer] += 1
                written.append(f"{producer}/{sequence}")
            elif choice < 0.75:
                producer = random.choice(list(sequences))
                if sequences[producer]:
                    sequence = sequences[producer] - 1
                    where = len(written) - 1 - written[::-1].index(f"{producer}/{sequence}")
                    assert send(bench, log, producer, sequence) == (where, True)
            elif choice < 0.9:
                log.delete_records(random.randint(log.log_start_offset, len(written)))
            elif random.random() < 0.7:
                if log.flush_is_due(bench.clock.now_ms()):
                    log.flush()
                log = bench.reopen_after_kill(log)
            else:
                log = bench.reopen_cleanly(log)
            assert log.log_end_offset == len(written)
            assert values_of(read_all(log)) == written[log.log_start_offset :]
