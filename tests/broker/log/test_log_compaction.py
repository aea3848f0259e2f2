"""Compaction: the last record of each key stays, offsets never change, no crash loses anything."""

from __future__ import annotations

import errno
from random import Random

import pytest
from compaction_bench import CompactedBench, CountingFiles, KilledError, content, table_of
from log_bench import read_all

from penstock_broker.log.compaction import (
    Aborted,
    SealedSegment,
    TransactionTracker,
    cleanable_end,
    group_segments,
    parse_records,
)
from penstock_broker.log.compaction_worker import WorkerProcess
from penstock_broker.log.files import OsFiles
from penstock_broker.log.log import Log
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.log.swap import read_cleaner_checkpoint
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import Record, RecordBatch, iter_batches, validate_batches

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


async def test_a_full_map_takes_several_passes(bench: CompactedBench) -> None:
    """Memory for keys is bounded: what does not fit is left to the next pass."""
    bench.map_bytes = 700
    bench.overrides["min.cleanable.dirty.ratio"] = "0.0"
    log = bench.open()
    for number in range(40):
        bench.put(log, (f"k{number % 8}", f"{number}"))
    before = content(log)
    passes = await bench.compact(log)
    assert passes > 1
    assert table_of(read_all(log)) == table_of(list(before.values()))
    assert len(content(log)) < len(before) / 2


async def test_waits_for_lag_and_ratio(bench: CompactedBench) -> None:
    bench.overrides |= {"min.cleanable.dirty.ratio": "0.6", "min.compaction.lag.ms": "1000"}
    log = bench.open()
    for number in range(20):
        bench.put(log, ("k", f"{number}"))
    assert await bench.compact(log) == 0, "everything is younger than min.compaction.lag.ms"
    bench.clock.advance(5000)
    assert await bench.compact(log) == 1
    for number in range(12):
        bench.put(log, (f"new{number}", "x"))
    bench.clock.advance(5000)
    bench.overrides["min.cleanable.dirty.ratio"] = "1.0"
    log = bench.reopen_cleanly(log)
    assert await bench.compact(log) == 0, "not dirty enough"
    log.update_config(log.config.with_overrides({"max.compaction.lag.ms": "4000"}))
    assert await bench.compact(log) == 1, "overdue"


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


@pytest.mark.parametrize(("at", "text"), [(65, "no intact batch"), (70, "offsets 7205759")])
async def test_damage_is_named_and_left_alone(
    bench: CompactedBench, caplog: pytest.LogCaptureFixture, at: int, text: str
) -> None:
    """Under the checksum, and where it does not reach: the base offset."""
    log = bench.open()
    for number in range(20):
        bench.put(log, ("k", f"{number}"))
    log.flush()
    path = log.segments[0].path
    data = bytearray(bench.files.get(path))
    data[at] ^= 1
    bench.files.put(path, bytes(data))
    before = bench.files.names(bench.directory)
    cleaner = bench.cleaner(log)
    assert await cleaner.clean_all() == 0
    assert await cleaner.clean_all() == 0, "it is not tried again"
    assert text in caplog.text
    assert list(cleaner.refused()) == [str(bench.directory)]
    assert bench.files.names(bench.directory) == before
    assert log.failure is None, "consumers can go on"


async def test_a_full_disk_is_tried_again(bench: CompactedBench) -> None:
    log = bench.open()
    for number in range(20):
        bench.put(log, ("k", f"{number}"))
    log.flush()
    cleaner = bench.cleaner(log)
    bench.files.fail("write", errno.ENOSPC, path_part=".cleaned")
    assert await cleaner.clean_all() == 0
    assert not any(name.endswith(".cleaned") for name in bench.files.names(bench.directory))
    assert await cleaner.clean_all() == 1


async def test_a_log_that_always_fails_takes_nothing_from_the_others(
    bench: CompactedBench,
) -> None:
    """It is the dirtiest, so it would be chosen each time."""
    logs = []
    for name in ("bad", "good"):
        bench.directory = bench.directory.with_name(f"{name}-0")
        bench.files.make_directory(bench.directory)
        log = bench.open()
        if name == "good":
            for number in range(20):
                bench.put(log, (f"u{number}", "x"))
            await bench.compact(log)
        for number in range(20):
            bench.put(log, ("k", f"{number}"))
        log.flush()
        logs.append(log)
    bench.files.fail("write", errno.ENOSPC, path_part="bad-0", times=100)
    cleaner = bench.cleaner(*logs)
    assert await cleaner.clean_all() == 1
    assert logs[1].cleaned.first_dirty == logs[1].segments[-1].base_offset
    assert not cleaner.refused()
    for number in range(20):
        bench.put(logs[1], ("k", f"{number}"))
    logs[1].flush()
    assert await cleaner.clean_all() == 1, "and again"
    bench.files.heal()
    assert await cleaner.clean_all() == 1
    assert logs[0].cleaned.first_dirty == logs[0].segments[-1].base_offset


async def test_a_log_that_is_refused_is_let_go_when_it_is_deleted(bench: CompactedBench) -> None:
    log = bench.open()
    for number in range(20):
        bench.put(log, ("k", f"{number}"))
    log.flush()
    data = bytearray(bench.files.get(log.segments[0].path))
    data[65] ^= 1
    bench.files.put(log.segments[0].path, bytes(data))
    logs = [log]
    cleaner = bench.cleaner()
    cleaner._logs = lambda: logs
    assert await cleaner.clean_all() == 0
    assert len(cleaner.refused()) == 1
    logs.clear()
    assert await cleaner.clean_all() == 0
    assert not cleaner.refused()


async def test_segments_that_are_deleted_meanwhile_are_not_brought_back(
    bench: CompactedBench,
) -> None:
    log = bench.open()
    for number in range(40):
        bench.put(log, ("k", f"{number}"), (f"u{number}", "x"))
    log.flush()
    cleaner = bench.cleaner(log)

    class Deleting:
        """Between the worker's work and the swap, DeleteRecords comes."""

        def __init__(self) -> None:
            self.work = cleaner._make_worker()

        def call(self, command: dict[str, object]) -> dict[str, object]:
            answer: dict[str, object] = self.work.call(command)
            if command["do"] == "clean":
                log.delete_records(50)
            return answer

        def close(self) -> None: ...

    assert await bench.cleaner(log, make_worker=Deleting).clean_all() == 0
    assert min(content(log)) >= 50
    assert not any(
        name.endswith((".swap", ".cleaned")) for name in bench.files.names(log.place.directory)
    )


async def test_every_crash_leaves_a_log_with_the_same_table(seed: int) -> None:
    """Killed, or without power, at every call of the disk in turn: what somebody knows who reads
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


async def test_the_process_does_what_the_thread_does(tmp_path: object) -> None:
    bench = CompactedBench()
    bench.files = OsFiles()  # type: ignore[assignment]
    bench.directory = tmp_path / "t-0"  # type: ignore[operator]
    bench.directory.mkdir()
    log = bench.open()
    bench.fill(log, Random(3), 60)
    before = content(log)
    assert await bench.compact(log, make_worker=WorkerProcess) == 1
    assert table_of(read_all(log)) == table_of(list(before.values()))
    assert len(content(log)) < len(before)
    assert not [n for n in bench.files.names(bench.directory) if n.endswith(".cleaned")]


async def test_a_process_that_is_killed_is_an_error_not_the_end(tmp_path: object) -> None:
    worker = WorkerProcess()
    worker.close()
    with pytest.raises(Exception, match="process"):
        worker.call({"do": "begin"})


# -- the pure parts --------------------------------------------------------------------------------


async def test_neighbours_are_merged_while_they_fit() -> None:
    segments = [SealedSegment(n * 10, n * 10 + 10, 40, 8, 0) for n in range(5)]
    groups = group_segments(segments, segment_bytes=100, index_bytes=1000)
    assert [[s.base_offset for s in group] for group in groups] == [[0, 10], [20, 30], [40]]
    by_index = group_segments(segments, segment_bytes=1000, index_bytes=24)
    assert [len(group) for group in by_index] == [3, 2]
    far = [SealedSegment(0, 2**31 - 10, 1, 1, 0), SealedSegment(2**31 - 10, 2**31 + 1, 1, 1, 0)]
    assert len(group_segments(far, segment_bytes=1000, index_bytes=1000)) == 2


async def test_undecided_and_young_segments_wait() -> None:
    segments = [SealedSegment(n * 10, n * 10 + 10, 40, 8, n * 100) for n in range(5)]
    assert cleanable_end(segments, 0, stable_offset=35, now_ms=0, min_lag_ms=0) == 30
    assert cleanable_end(segments, 10, stable_offset=99, now_ms=250, min_lag_ms=100) == 20
    assert cleanable_end(segments, 50, stable_offset=99, now_ms=250, min_lag_ms=100) == 50


async def test_aborted_records_go_and_markers_follow() -> None:
    tracker = TransactionTracker([Aborted(7, 10, 20)])
    data = RecordBatch(memoryview(_batch(10, producer_id=7, transactional=True)))
    other = RecordBatch(memoryview(_batch(11, producer_id=8, transactional=True)))
    assert tracker.is_aborted(data)
    assert not tracker.is_aborted(other)
    abort = RecordBatch(memoryview(_marker(20, 7, 0)))
    commit = RecordBatch(memoryview(_marker(21, 8, 1)))
    assert not tracker.ends_nothing(abort), "a record of it was there"
    assert not tracker.ends_nothing(commit)
    assert tracker.ends_nothing(abort)
    assert tracker.ends_nothing(commit)
    assert not tracker.is_aborted(data), "the producer's next transaction"


def _batch(offset: int, **options: object) -> bytearray:
    return build_batch([NewRecord(b"k", b"v", 5)], base_offset=offset, **options)  # type: ignore[arg-type]


def _marker(offset: int, producer_id: int, kind: int) -> bytearray:
    key = b"\0\0" + kind.to_bytes(2, "big")
    return build_batch(
        [NewRecord(key, b"\0\0\0\0\0\0", 5)],
        base_offset=offset,
        producer_id=producer_id,
        transactional=True,
        control=True,
    )


async def test_parsing_agrees_with_the_codec(seed: int) -> None:
    random = Random(seed)
    for _ in range(200):
        records = [
            NewRecord(
                random.choice([None, b"", random.randbytes(random.randrange(200))]),
                random.choice([None, b"", random.randbytes(random.randrange(200))]),
                random.randrange(-(10**12), 10**12),
                [("h", None), ("ü", b"x")][: random.randrange(3)],
            )
            for _ in range(random.randint(1, 200))
        ]
        batch = RecordBatch(memoryview(build_batch(records)))
        parsed = parse_records(bytes(batch.view[61:]), batch.records_count)
        read = list(batch.records())
        assert [(p.key, p.has_value) for p in parsed] == [
            (r.key, r.value is not None) for r in read
        ]
        assert [p.offset_delta for p in parsed] == [r.offset for r in read]
        assert [p.timestamp_delta + batch.base_timestamp for p in parsed] == [
            r.timestamp for r in read
        ]


# -- transactions ----------------------------------------------------------------------------------


class Transactions:
    """Producers whose transactions overlap in one log, and what each record became."""

    def __init__(self, bench: CompactedBench, log: Log, random: Random) -> None:
        self.bench = bench
        self.log = log
        self.random = random
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        """Offsets of records that nobody may see."""

    def write(self, producer_id: int) -> None:
        count = self.random.randint(1, 3)
        sequence = self.sequences.get(producer_id, 0)
        now_ms = self.bench.clock.now_ms()
        pairs = [
            NewRecord(
                b"k%d" % self.random.randrange(4), b"%d" % self.random.randrange(10**6), now_ms
            )
            for _ in range(count)
        ]
        data = build_batch(
            pairs,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        batches = validate_batches(memoryview(data), max_message_bytes=1 << 30)
        base = self.log.append(batches, 0, is_verified=True).base_offset
        self.sequences[producer_id] = sequence + count
        self.open.setdefault(producer_id, []).extend(range(base, base + count))

    def end(self, producer_id: int, *, commit: bool) -> None:
        offsets = self.open.pop(producer_id)
        if not commit:
            self.aborted |= set(offsets)
        marker = Marker(commit, 0)
        data = build_marker(producer_id, 0, marker, self.bench.clock.now_ms())
        self.log.append_for_coordinator(RecordBatch(memoryview(data)), 0, marker)

    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.bench.clock.advance(5)
            choice = self.random.random()
            if choice < 0.25 and self.open:
                ending = self.random.choice(list(self.open))
                self.end(ending, commit=self.random.random() < 0.5)
            elif choice < 0.75:
                self.write(self.random.randrange(4))
            else:
                self.bench.put(self.log, (f"k{self.random.randrange(4)}", "plain"))


def committed(log: Log) -> dict[int, Record]:
    """What a read_committed consumer sees: it skips by the list that a fetch carries."""
    end = log.last_stable_offset
    found: dict[int, Record] = {}
    skipping = {}
    waiting = sorted(log.aborted_transactions(0, end), key=lambda t: t.first_offset)
    position = log.log_start_offset
    while position < end:
        batches = list(iter_batches(memoryview(log.read(position, 1 << 20, end).read())))
        if not batches:
            break
        for batch in batches:
            while waiting and waiting[0].first_offset <= batch.last_offset:
                begun = waiting.pop(0)
                skipping[begun.producer_id] = begun
            if batch.is_control:
                skipping.pop(batch.producer_id, None)
            elif not (batch.is_transactional and batch.producer_id in skipping):
                found |= {r.offset: r for r in batch.records()}
        position = batches[-1].next_offset
    return found


async def test_transactions_are_compacted_as_a_committed_reader_sees_them(seed: int) -> None:
    """Aborted records go, and replace nothing; what is undecided is left alone; markers stay as
    long as their transaction has records, and a while after."""
    random = Random(seed)
    for _ in range(25):
        bench = CompactedBench()
        bench.overrides["delete.retention.ms"] = "50"
        bench.map_bytes = random.choice([700, 1 << 20])
        log = bench.open()
        house = Transactions(bench, log, random)
        for _ in range(4):
            house.work(40)
            before = committed(log)
            assert not house.aborted & set(before)
            await bench.compact(log)
            after = committed(log)
            assert all(before[offset] == record for offset, record in after.items())
            assert table_of(list(after.values())) == table_of(list(before.values()))
            compacted = {o for o in content(log) if o < log.cleaned.first_dirty}
            assert not compacted & house.aborted, "aborted records are gone"
            stable = log.last_stable_offset
            end = log.log_end_offset
            log = house.log = bench.reopen_after_kill(log)
            assert (log.last_stable_offset, log.log_end_offset) == (stable, end)
            assert committed(log) == after
