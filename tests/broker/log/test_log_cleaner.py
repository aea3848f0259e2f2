"""The cleaner: which log it takes, when, and what a failure of one log does to the others."""

from __future__ import annotations

import errno
from random import Random

import pytest
from compaction_bench import CompactedBench, content, table_of
from log_bench import read_all

from penstock_broker.log.compaction_worker import WorkerProcess
from penstock_broker.log.files import OsFiles

pytestmark = pytest.mark.asyncio


@pytest.fixture
def bench() -> CompactedBench:
    return CompactedBench()


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
    assert log.failure is None, "consumers can continue"


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


async def test_a_log_that_is_refused_is_closed_when_it_is_deleted(bench: CompactedBench) -> None:
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
