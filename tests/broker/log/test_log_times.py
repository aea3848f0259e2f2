"""Finding records by time, and whose time a record carries."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import Any

import pytest
from log_bench import Bench, read_all
from test_log_manager import Broker

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.files import OsFiles
from penstock_broker.log.index_file import IndexFile
from penstock_broker.log.log import Log
from penstock_broker.log.lookup import TimestampOffset
from penstock_broker.testing import MemFiles
from penstock_broker.wire import compression
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import NO_TIMESTAMP, RecordBatch


@pytest.mark.parametrize("codec", list(Codec))
def test_the_first_record_of_a_batch_that_is_late_enough(bench: Bench, codec: Codec) -> None:
    """Pitfall 12: the answer is a record, not a batch, also inside compressed batches."""
    log = bench.open()
    bench.append(log, "a", "b", "c", "d", timestamps=[100, 300, 200, 400], codec=codec, epoch=3)
    for time, offset, found_time in ((0, 0, 100), (101, 1, 300), (301, 3, 400), (400, 3, 400)):
        found = log.offset_for_timestamp(time)
        assert found == (offset, found_time, 3), f"time {time}"
    assert log.offset_for_timestamp(401) is None


def test_timestamps_that_go_back(bench: Bench) -> None:
    """Pitfall 12: first in offset order; the running maximum leads there, not raw values."""
    log = bench.open()
    for time in (500, 100, 900, 200, 900, 950):
        bench.append(log, "x", timestamps=[time])
    expected = {0: 0, 500: 0, 501: 2, 900: 2, 901: 5, 950: 5}
    for time, offset in expected.items():
        found = log.offset_for_timestamp(time)
        assert found is not None and found.offset == offset, f"time {time}"


def test_nothing_late_enough_is_no_error(bench: Bench) -> None:
    """Pitfall 13: no answer, which the api layer writes as -1."""
    log = bench.open()
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None
    bench.append(log, "x", timestamps=[5])
    assert log.offset_for_timestamp(6) is None


def test_an_answer_at_or_past_the_limit_is_none(bench: Bench) -> None:
    """Pitfall 14: by-time answers at or past the last stable offset are no answers."""
    log = bench.open()
    bench.append(log, "a", timestamps=[100])
    bench.append(log, "b", timestamps=[200])
    assert log.offset_for_timestamp(150, 1) is None
    found = log.offset_for_timestamp(150, 2)
    assert found is not None and found.offset == 1
    bench.append(log, "c", "d", timestamps=[200, 300])
    assert log.offset_for_timestamp(250, 3) is None


def test_deleted_records_do_not_answer(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", "b", "c", timestamps=[900, 100, 500])
    log.delete_records(1)
    found = log.offset_for_timestamp(50)
    assert found is not None and found[:2] == (1, 100)
    assert log.offset_for_timestamp(600) is None
    largest = log.max_timestamp()
    assert largest is not None and largest[:2] == (2, 500)


def test_the_largest_timestamp_is_that_of_its_first_record(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", "b", timestamps=[100, 300])
    bench.append(log, "c", "d", timestamps=[300, 200])
    assert log.max_timestamp() == (1, 300, 0)


def test_log_append_time_is_the_brokers_and_the_crc_is_right(bench: Bench) -> None:
    """Pitfall 16: maxTimestamp and attribute are rewritten, the CRC again; the answer says so."""
    bench.overrides = {"message.timestamp.type": "LogAppendTime"}
    log = bench.open()
    now_ms = bench.clock.now_ms()
    result = bench.append(log, "a", "b", timestamps=[1, 2], codec=Codec.LZ4)
    assert result.log_append_time_ms == now_ms
    stored = RecordBatch(memoryview(log.read(0, 1 << 20).read()))
    assert stored.crc_is_valid()
    assert stored.is_log_append_time
    assert [record.timestamp for record in read_all(log)] == [now_ms, now_ms]
    found = log.offset_for_timestamp(now_ms)
    assert found == (0, now_ms, 0)
    assert log.offset_for_timestamp(now_ms + 1) is None


def test_a_repeated_batch_has_the_append_time_of_the_first(bench: Bench) -> None:
    bench.overrides = {"message.timestamp.type": "LogAppendTime"}
    log = bench.open()
    first = log.append([bench.batch(["a"], producer=(1, 0, 0))], 0)
    bench.clock.advance(500)
    again = log.append([bench.batch(["a"], producer=(1, 0, 0))], 0)
    assert again.log_append_time_ms == first.log_append_time_ms
    log = bench.reopen_after_kill(log)
    again = log.append([bench.batch(["a"], producer=(1, 0, 0))], 0)
    assert again.log_append_time_ms == first.log_append_time_ms


def test_create_time_is_the_producers(bench: Bench) -> None:
    log = bench.open()
    assert bench.append(log, "a", timestamps=[123]).log_append_time_ms == -1
    assert read_all(log)[0].timestamp == 123


def test_timestamps_outside_the_bounds_are_refused() -> None:
    bounds = {"message.timestamp.after.max.ms": "1000", "message.timestamp.before.max.ms": "5000"}
    broker = Broker(MemFiles())
    broker.replicas.create_topic("t", 1, bounds)
    partition, now_ms = broker.replicas.partition("t", 0), broker.clock.now_ms()

    def append(*times: int) -> None:
        data = build_batch([NewRecord(None, b"x", time) for time in times])
        partition.append(memoryview(data))

    append(now_ms - 5000, now_ms + 1000)
    append(NO_TIMESTAMP, now_ms)
    for times in ([now_ms, now_ms + 1001], [now_ms - 5001, now_ms], [now_ms, now_ms - 5001]):
        with pytest.raises(KafkaError) as error:
            append(*times)
        assert error.value.code is ErrorCode.INVALID_TIMESTAMP
    assert partition.log_end_offset == 4


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD], ids=["LZ4", "ZSTD"])
def test_records_are_decompressed_once_where_each_timestamp_is_looked_at(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first of them has none, and so may be too old."""
    broker = Broker(MemFiles())
    broker.replicas.create_topic("t", 1, {"message.timestamp.before.max.ms": "5000"})
    partition, now_ms = broker.replicas.partition("t", 0), broker.clock.now_ms()
    records = [NewRecord(None, b"x", time) for time in (NO_TIMESTAMP, now_ms)]
    data = memoryview(build_batch(records, codec=codec))
    count = 0
    decompress = compression._decompress_growing

    def counted(codec: Any, data: Any, bytes_max: int) -> bytes:
        nonlocal count
        count += 1
        return decompress(codec, data, bytes_max)

    monkeypatch.setattr(compression, "_decompress_growing", counted)
    assert partition.append(data).last_offset == 1
    assert count == 1


def test_any_times_are_found_as_a_linear_search_finds_them(bench: Bench, seed: int) -> None:
    """Random, unordered times over segments, codecs and restarts, against a plain loop."""
    random = Random(seed)
    bench.overrides = {"segment.bytes": "1500", "index.interval.bytes": "200"}
    log = bench.open()
    times: list[int] = []
    for step in range(120):
        batch = [random.randrange(1000) for _ in range(random.randint(1, 5))]
        bench.append(log, *(["x"] * len(batch)), timestamps=batch, codec=random.choice(list(Codec)))
        times += batch
        if random.random() < 0.05:
            log = random.choice([bench.reopen_cleanly, bench.reopen_after_kill])(log)
        if random.random() < 0.05:
            log.delete_records(random.randint(log.log_start_offset, len(times) - 1))
        wanted = random.randrange(1000)
        start = log.log_start_offset
        expected = next((n for n in range(start, len(times)) if times[n] >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (found and found.offset) == expected, f"step {step}, time {wanted}"
        latest = max(times[start:])
        largest = log.max_timestamp()
        assert largest is not None
        assert largest[:2] == (times.index(latest, start), latest)


# -- what a lookup reads -----------------------------------------------------------------------


class Reads:
    """Counts the bytes that are read of a disk, by kind of file."""

    def __init__(self, files: MemFiles) -> None:
        self.log_bytes = 0
        self.log_bytes_at_once = 0
        self.index_opens = 0
        self._open = files.open
        files.open = self.open  # type: ignore[method-assign, assignment]

    def open(self, path: Path, *, create: bool = False) -> object:
        file = self._open(path, create=create)
        self.index_opens += path.suffix == ".timeindex"
        if path.suffix != ".log":
            return file
        read = file.read

        def counted(position: int, size: int) -> bytes:
            data = read(position, size)
            self.log_bytes += len(data)
            self.log_bytes_at_once = max(self.log_bytes_at_once, len(data))
            return data

        file.read = counted  # type: ignore[method-assign]
        return file


def long_log(bench: Bench, times: list[int], **overrides: str) -> tuple[Reads, Log]:
    bench.overrides = overrides
    reads = Reads(bench.files)
    log = bench.open()
    for time in times:
        bench.append(log, "x" * 1000, timestamps=[time])
    reads.log_bytes = 0
    return reads, log


def test_the_latest_time_is_found_without_a_walk_from_the_beginning(bench: Bench) -> None:
    """The start is inside the only segment, as the sweep leaves it."""
    reads, log = long_log(bench, list(range(2000)))
    log.delete_records(1000)
    assert log.max_timestamp() == (1999, 1999, 0)
    assert reads.log_bytes < 100_000, "of two megabytes"


def test_a_time_below_the_start_is_found_without_a_walk_from_the_beginning(bench: Bench) -> None:
    reads, log = long_log(bench, list(range(2000)))
    log.delete_records(1500)
    found = log.offset_for_timestamp(3)
    assert found is not None and found.offset == 1500
    assert reads.log_bytes < 100_000


def test_a_walk_that_cannot_be_spared_is_done_in_pieces(bench: Bench) -> None:
    """A record below the start was later than all that are left: they are looked through, a piece
    at a time, each of which may be done in another thread."""
    times = [9000, *range(9000)]
    reads, log = long_log(bench, times, **{"index.interval.bytes": "100000"})
    log.delete_records(1)
    looking, pieces = log.looking_for_latest(), 0
    while True:
        try:
            piece = next(looking)
        except StopIteration as end:
            assert end.value == (9000, 8999, 0)
            break
        before = reads.log_bytes
        piece()
        assert reads.log_bytes - before < 7 << 20
        pieces += 1
    assert pieces >= 3
    assert reads.log_bytes >= 9_000_000


def test_segments_that_go_during_a_lookup(bench: Bench) -> None:
    """It starts over with what is there; a deleted file is not opened again."""
    _, log = long_log(bench, [5, 1, 2, 3, 4, 0], **{"segment.bytes": "1500"})
    log = bench.reopen_cleanly(log)
    for look, after in (
        (log.looking_for_latest, TimestampOffset(4, 4, 0)),
        (lambda: log.looking_for_timestamp(4), TimestampOffset(4, 4, 0)),
    ):
        looking = look()
        next(looking)()
        log.delete_records(log.log_start_offset + 1)
        found: TimestampOffset | None = None
        try:
            while True:
                next(looking)()
        except StopIteration as end:
            found = end.value
        assert found == after
    assert log.failure is None


def test_a_log_that_fails_during_a_lookup(bench: Bench) -> None:
    _, log = long_log(bench, [5, 1, 2], **{"segment.bytes": "1500"})
    looking = log.looking_for_timestamp(2)
    next(looking)()
    log.retire()
    with pytest.raises(KafkaError) as error:
        next(looking)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_read_error_during_a_lookup_takes_the_log_offline(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "x", timestamps=[5])
    bench.files.fail("read", errno.EIO, path_part=".log")
    with pytest.raises(KafkaError) as error:
        log.offset_for_timestamp(1)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "cannot look up a time" in (log.failure or "")


def test_a_lookup_leaves_no_index_open(tmp_path: Path, bench: Bench) -> None:
    """The first one after a start looks at the end of every closed time index."""
    bench.overrides = {"segment.bytes": "1500"}
    bench.directory = tmp_path
    files = OsFiles()
    log = bench.open(files=files)
    for time in range(30):
        bench.append(log, "x" * 1000, timestamps=[time])
    log.close()
    log = bench.open(files=files, recovery_point=30, clean=True)
    before = files.open_files
    assert log.max_timestamp() == (29, 29, 0)
    assert files.open_files <= before + 2
    assert log.offset_for_timestamp(100) is None
    assert files.open_files <= before + 2


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_damaged_is_made_again_by_a_lookup(bench: Bench, suffix: str) -> None:
    """Whether it cannot be read or, whole as it is, leads to where no such batch is."""
    overrides = {"segment.bytes": "15000", "index.interval.bytes": "1"}
    _, log = long_log(bench, list(range(40)), **overrides)
    log = bench.reopen_cleanly(log)
    first, second, third = (segment.path.with_suffix(suffix) for segment in log.segments[:3])
    if suffix == ".index":
        data = bench.files.get(first)
        short = IndexFile(bench.files, second, "I")
        for number in range(len(data) // 8 - 2):
            short.append(number, 1 + 20 * number)
        short.save()
    bench.files.put(third, b"garbage")
    for time in range(40):
        assert log.offset_for_timestamp(time) == (time, time, 0)
    assert log.failure is None
