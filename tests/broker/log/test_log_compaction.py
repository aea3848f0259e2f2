"""Compaction: the last record of each key stays, offsets never change, no crash loses anything."""

from __future__ import annotations

from random import Random

import pytest
from compacted_transactions import Transactions, committed
from compaction_bench import CompactedBench, CountingFiles, KilledError, content, table_of
from log_bench import read_all

from penstock_broker.log.log import Log
from penstock_broker.log.swap import read_cleaner_checkpoint
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import RecordBatch, iter_batches

pytestmark = pytest.mark.asyncio


@pytest.fixture
def bench() -> CompactedBench:
    return CompactedBench()


async def test_the_last_record_of_each_key_stays(bench: CompactedBench) -> None:
    log = bench.open()
    for number in range(30):
        bench.put(log, ("a", f"a{number}"), (f"b{number % 3}", f"{number}"))
    before, active = content(log), log.segments[-1].base_offset
    assert await bench.compact(log) == 1
    after = content(log)
    assert all(after[offset] == before[offset] for offset in after), "offset, time and value stay"
    assert table_of(list(after.values())) == table_of(list(before.values()))
    closed = [record.key for offset, record in after.items() if offset < active]
    assert sorted(closed) == [b"a", b"b0", b"b1", b"b2"], "one record a key in closed segments"
    assert [o for o in after if o >= active] == [o for o in before if o >= active]
    assert log.log_start_offset == 0
    assert log.log_end_offset == 60
    assert await bench.compact(log) == 0, "nothing is dirty any more"


async def test_a_hole_is_read_from_the_next_record(bench: CompactedBench) -> None:
    log = bench.open()
    for number in range(20):
        bench.put(log, ("same", str(number)))
    await bench.compact(log)
    kept = read_all(log)
    assert kept[0].offset > 0
    for offset in range(kept[0].offset + 1):
        assert read_all(log, offset)[0] == kept[0]


async def test_a_hole_at_the_end_reads_as_nothing(bench: CompactedBench) -> None:
    """Everything behind the last record kept has been compacted away."""
    log = bench.open()
    for number in range(12):
        bench.put(log, ("k", None if number else "v"))
    bench.overrides["delete.retention.ms"] = "0"
    log = bench.reopen_after_kill(log)
    log.advance_start(log.log_end_offset)  # begins a new segment: all others are closed
    log._start_offset = 0
    await bench.compact(log)
    bench.clock.advance(1)
    log.cleaned = log.cleaned._replace(first_dirty=0)
    await bench.compact(log)
    assert content(log) == {}
    assert log.read(3, 1000).size == 0


async def test_records_without_a_key_go(bench: CompactedBench) -> None:
    log = bench.open()
    for number in range(12):
        bench.put(log, (None, f"{number}"), ("k", f"{number}"))
    active = log.segments[-1].base_offset
    await bench.compact(log)
    assert [o for o, record in content(log).items() if record.key is None and o < active] == []


@pytest.mark.parametrize("codec", list(Codec))
async def test_compressed_batches_stay_compressed(bench: CompactedBench, codec: Codec) -> None:
    log = bench.open()
    for number in range(20):
        bench.put(log, ("a", f"{number}" * 20), ("b", f"{number}"), codec=codec)
    before = content(log)
    await bench.compact(log)
    segment = log.segments[0]
    data = memoryview(segment.file.read(0, segment.size))
    batches = list(iter_batches(data))
    assert all(batch.codec is codec and batch.crc_is_valid() for batch in batches)
    assert table_of(read_all(log)) == table_of(list(before.values()))


async def test_markers_of_deletion_stay_for_their_time(bench: CompactedBench) -> None:
    """KIP-534: the time counts from the first compaction that saw them, not from the append."""
    bench.overrides["delete.retention.ms"] = "1000"
    log = bench.open()
    for number in range(20):
        bench.put(log, ("gone", "x" if number < 3 else None), ("here", f"{number}"))
    log.advance_start(log.log_end_offset)  # begins a segment
    log._start_offset = 0
    bench.clock.advance(10_000)
    before = content(log)
    active = log.segments[-1].base_offset
    await bench.compact(log)
    marker = max(o for o, r in content(log).items() if r.key == b"gone" and o < active)
    assert content(log)[marker] == before[marker], "with the time that it had"
    batch = _batch_with(log, marker)
    assert batch.attributes & 0x40
    assert batch.base_timestamp == bench.clock.now_ms() + 1000, "when it may go"

    bench.clock.advance(999)
    await _compact_again(bench, log)
    assert marker in content(log)
    bench.clock.advance(2)
    await _compact_again(bench, log)
    assert marker not in content(log)
    assert b"gone" not in table_of(read_all(log))


async def _compact_again(bench: CompactedBench, log: Log) -> None:
    """Let something new be dirty."""
    before = log.segments[-1].base_offset
    while log.segments[-1].base_offset == before:
        bench.put(log, ("filler", "x" * 60))
    await bench.compact(log)


def _batch_with(log: Log, offset: int) -> RecordBatch:
    return next(iter_batches(memoryview(log.read(offset, 10_000).read())))


async def test_the_last_sequence_of_a_producer_stays_known(bench: CompactedBench) -> None:
    """A batch whose records are all replaced stays as an empty one: its header is what an
    idempotent producer's next retry is held against."""
    log = bench.open()
    for number in range(20):
        bench.put(log, ("k", f"p{number}"), producer=(7, 1, number))
    for number in range(10):
        bench.put(log, ("k", f"{number}"))
    await bench.compact(log)
    for name in bench.files.names(bench.directory):
        if name.endswith(".snapshot"):
            bench.files.remove(bench.directory / name)
    end = log.log_end_offset
    bench.files = bench.files.kill()
    again = bench.open(recovery_point=0)
    assert again.recovered.cut is None
    assert again.log_end_offset == end
    entry = again.producers.get(7)
    assert entry is not None
    assert entry.last_sequence == 19
    with pytest.raises(Exception, match="20 follows"):
        bench.put(again, ("k", "x"), producer=(7, 1, 25))


async def test_max_compaction_lag_closes_segments(bench: CompactedBench) -> None:
    bench.overrides |= {"max.compaction.lag.ms": "1000", "segment.bytes": "100000"}
    log = bench.open()
    bench.put(log, ("k", "1"))
    bench.clock.advance(1500)
    bench.put(log, ("k", "2"))
    assert len(log.segments) == 2


async def test_a_reader_keeps_the_bytes_of_a_replaced_segment(bench: CompactedBench) -> None:
    """Pitfall 1: a fetch that was built before a segment is replaced or deleted sends the bytes
    that it was built from; it holds the file, not the name."""
    log = bench.open()
    for number in range(20):
        bench.put(log, ("k", f"{number}"))
    found = log.read(0, 300)
    expected = found.read()
    assert await bench.compact(log) == 1
    assert found.read() == expected
    assert log.read(0, 300).read() != expected
    log.delete_records(log.log_end_offset)
    assert found.read() == expected


async def test_every_crash_leaves_a_log_with_the_same_table(seed: int) -> None:
    """Killed, or without power, at every call of the disk in turn: what a reader knows who reads
    all of the log is the same, no offset has another record, and a next compaction works."""
    random = Random(seed)
    at = 0
    finished = False
    while not finished:
        at += 1
        bench = CompactedBench()
        bench.overrides["delete.retention.ms"] = "0"
        log = bench.open()
        bench.fill(log, Random(seed), 40, keys=25)
        await bench.compact(log)
        bench.fill(log, Random(seed + 1), 20, keys=25)
        log.flush()
        before = content(log)
        assert isinstance(bench.files, CountingFiles)
        bench.files.killed_at = bench.files.calls + at
        try:
            await bench.compact(log)
            finished = True
        except KilledError:
            pass
        holes = log.recovery_point
        bench.files = bench.files.kill() if random.random() < 0.5 else bench.files.power_cut(random)
        point = random.choice([holes, 0])
        again = bench.open(recovery_point=point)
        assert again.recovered.cut is None, again.recovered.cut
        after = content(again)
        assert again.log_end_offset == log.log_end_offset
        assert all(before[offset] == record for offset, record in after.items())
        assert table_of(list(after.values())) == table_of(list(before.values()))
        offsets = [b.base_offset for segment in again.segments for b in segment.batches()]
        assert offsets == sorted(set(offsets)), "no replaced segment is left beside the new one"
        names = bench.files.names(bench.directory)
        assert not any(n.endswith((".swap", ".cleaned", ".deleted")) for n in names), names
        await bench.compact(again)
        assert table_of(read_all(again)) == table_of(list(before.values()))
    assert at > 20, "there were many calls to be killed at"


async def test_random_logs_hold_what_a_plain_model_says(seed: int) -> None:
    """Of closed segments exactly those records stay that no later one of the same key replaces in
    what was compacted; tombstones at least until they are seen by a compaction."""
    random = Random(seed)
    for _ in range(30):
        bench = CompactedBench()
        bench.map_bytes = random.choice([500, 2000, 1 << 20])
        bench.overrides["segment.bytes"] = str(random.choice([300, 900]))
        log = bench.open()
        everything = {}
        for _ in range(random.randint(1, 4)):
            bench.fill(log, random, random.randint(5, 40), keys=random.choice([2, 8, 50]))
            everything |= content(log)
            await bench.compact(log)
            clean_end = log.cleaned.first_dirty
            last = {r.key: o for o, r in everything.items() if o < clean_end}
            expected = {o for o, r in everything.items() if o >= clean_end or last[r.key] == o}
            assert set(content(log)) == expected
            assert all(everything[o] == r for o, r in content(log).items())
        if random.random() < 0.5:
            log = bench.reopen_cleanly(log)
        else:
            log = bench.reopen_after_kill(log)
        assert set(content(log)) == expected


async def test_a_damaged_checkpoint_compacts_everything_again(bench: CompactedBench) -> None:
    log = bench.open()
    for number in range(30):
        bench.put(log, ("k", f"{number}"))
    await bench.compact(log)
    bench.files.put(bench.directory / "cleaner-checkpoint", b"garbage")
    end = log.log_end_offset
    bench.files = bench.files.kill()
    again = bench.open(recovery_point=0)
    assert again.recovered.cut is None
    assert again.log_end_offset == end
    assert read_cleaner_checkpoint(bench.files, bench.directory).first_dirty == 0


async def test_transactions_are_compacted_as_a_committed_reader_sees_them(seed: int) -> None:
    """Aborted records go, and replace nothing; what is undecided is left alone; markers stay as
    long as their transaction has records, and a while after."""
    random = Random(seed)
    for _ in range(25):
        bench = CompactedBench()
        bench.overrides["delete.retention.ms"] = "50"
        bench.map_bytes = random.choice([700, 1 << 20])
        log = bench.open()
        transactions = Transactions(bench, log, random)
        for _ in range(4):
            transactions.work(40)
            before = committed(log)
            assert not transactions.aborted & set(before)
            await bench.compact(log)
            after = committed(log)
            assert all(before[offset] == record for offset, record in after.items())
            assert table_of(list(after.values())) == table_of(list(before.values()))
            compacted = {o for o in content(log) if o < log.cleaned.first_dirty}
            assert not compacted & transactions.aborted, "aborted records are gone"
            stable = log.last_stable_offset
            end = log.log_end_offset
            log = transactions.log = bench.reopen_after_kill(log)
            assert (log.last_stable_offset, log.log_end_offset) == (stable, end)
            assert committed(log) == after
