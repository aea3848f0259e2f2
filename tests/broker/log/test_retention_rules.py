"""What retention and the trash do, one log and one file at a time."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from log_bench import Bench

from penstock_broker.log.log import Log
from penstock_broker.log.retention import Retention
from penstock_broker.log.trash import Trash
from penstock_broker.metrics import Metrics
from penstock_broker.testing import MemFiles, SimClock

D = Path("/d")


def log_of(bench: Bench, **settings: str) -> Log:
    """Five segments of one record each, a second apart; the newest is of now."""
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    for number in range(5):
        bench.append(log, f"value {number}")
        bench.clock.advance(1_000 if number < 4 else 0)
    assert len(log.segments) == 5
    bench.overrides |= {name.replace("_", "."): value for name, value in settings.items()}
    log.update_config(log.config.with_overrides(bench.overrides))
    return log


def enforce(bench: Bench, *logs: Log) -> tuple[int, Metrics, int]:
    """How many segments went, what is counted, and how often the starts were written down."""
    metrics, jobs = Metrics(), 0

    def starts_job() -> Callable[[], None]:
        def job() -> None:
            nonlocal jobs
            jobs += 1

        return job

    retention = Retention(lambda: logs, starts_job, bench.clock, metrics)
    return retention.enforce(), metrics, jobs


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_time_and_size_are_counted_each_by_itself(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log = log_of(bench, retention_ms="2500")
    size = log.segments[0].size
    log.update_config(log.config.with_overrides({"retention.bytes": str(2 * size)}))
    count, metrics, jobs = enforce(bench, log)
    assert (count, bases(log), jobs) == (3, [3, 4], 1)
    for reason, segments in (("time", 2), ("size", 1)):
        assert metrics.retention_segments.labels(reason).value == segments
        assert metrics.retention_bytes.labels(reason).value == segments * size
    assert "/data/t-0: retention deletes offsets 0 to 3, 3 segments (2 by time)" in caplog.text


@pytest.mark.parametrize(
    ("settings", "gone", "left"),
    [
        ({}, 0, [0, 1, 2, 3, 4]),
        ({"retention_ms": "-1"}, 0, [0, 1, 2, 3, 4]),
        ({"retention_ms": "1000"}, 3, [3, 4]),
        ({"retention_ms": "999"}, 4, [4]),
        ({"retention_ms": "-1", "retention_bytes": "0"}, 5, [5]),
        ({"retention_ms": "0", "cleanup_policy": "compact"}, 0, [0, 1, 2, 3, 4]),
        ({"retention_ms": "0", "cleanup_policy": "compact,delete"}, 4, [4]),
    ],
    ids=str,
)
def test_which_logs_are_swept(
    bench: Bench, settings: dict[str, str], gone: int, left: list[int]
) -> None:
    log = log_of(bench, **settings)
    count, _, jobs = enforce(bench, log)
    assert (count, bases(log), log.log_start_offset) == (gone, left, left[0])
    assert jobs == (1 if gone else 0)


def test_a_log_that_is_offline_is_left_alone(bench: Bench) -> None:
    log = log_of(bench, retention_ms="0")
    log.fail("a test says so")
    assert enforce(bench, log)[::2] == (0, 0)
    assert bases(log) == [0, 1, 2, 3, 4]


def test_only_some_logs(bench: Bench) -> None:
    log = log_of(bench, retention_ms="0")
    retention = Retention(lambda: [log], lambda: lambda: None, bench.clock, Metrics())
    assert retention.enforce([]) == 0
    assert retention.enforce([log]) > 0


def test_a_log_whose_segments_cannot_be_looked_at_goes_offline(bench: Bench) -> None:
    log = log_of(bench, retention_ms="0")
    log = bench.reopen_cleanly(log)
    bench.files.fail("open", errno.EIO, path_part=".timeindex", times=100)
    assert enforce(bench, log)[0] == 0
    assert (log.failure or "").startswith("cannot look at its segments")


def test_a_log_whose_later_segments_cannot_be_looked_at_goes_offline(bench: Bench) -> None:
    log = bench.reopen_cleanly(log_of(bench, retention_ms="0"))
    bench.files.fail("open", errno.EIO, path_part=f"{1:020d}.timeindex", times=100)
    assert enforce(bench, log)[::2] == (0, 0)
    assert (log.failure or "").startswith("cannot look at its segments")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"retention_ms": "-1"}, True),
        ({"retention_ms": "-1", "retention_bytes": "0"}, True),
        ({"retention_ms": "0"}, False),
    ],
    ids=str,
)
def test_the_oldest_segment_is_looked_at_where_time_counts(
    bench: Bench, settings: dict[str, str], expected: bool
) -> None:
    log = bench.reopen_cleanly(log_of(bench, **settings))
    bench.files.fail("open", errno.EIO, path_part=f"{0:020d}.timeindex", times=100)
    is_limited = settings != {"retention_ms": "-1"}
    assert Retention.wants(log) is (expected and is_limited)
    assert (log.failure is None) is expected
    log.fail("a test says so")
    assert Retention.wants(log) is False


def test_indexes_that_are_not_in_memory_are_read_in_another_thread(bench: Bench) -> None:
    log = bench.reopen_cleanly(log_of(bench, retention_ms="0"))
    retention = Retention(lambda: [log], lambda: lambda: None, bench.clock, Metrics())
    assert Retention.wants(log), "which reads the first one"
    waits: list[str] = []
    bench.files.is_cold = True
    bench.files.on_wait = lambda operation, path: waits.append(operation)
    steps, prefetched = retention.enforcing(), 0
    try:
        while True:
            step = next(steps)
            assert "read" not in waits
            assert callable(step)
            step()
            prefetched += "prefetch" in waits
            waits.clear()
    except StopIteration as end:
        assert end.value == 4
    assert "read" not in waits
    assert prefetched >= 3


def test_indexes_that_another_thread_cannot_read_are_read_here(bench: Bench) -> None:
    """Which says what is wrong, or that it was wrong for a moment."""
    log = bench.reopen_cleanly(log_of(bench, retention_ms="0"))
    assert Retention.wants(log)
    bench.files.is_cold = True
    bench.files.fail("prefetch", errno.EIO, times=3)
    assert enforce(bench, log)[0] == 4
    with pytest.raises(OSError, match="Input/output"):
        log.segments[-1].file.prefetch(0, 1)


def test_a_log_that_cannot_begin_a_segment_keeps_what_it_has(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """With a full disk: retention continues with the next log, and comes again."""
    log = log_of(bench, retention_ms="0")
    bench.clock.advance(1)
    bench.files.fail("open", errno.ENOSPC, path_part=f"{5:020d}")
    assert enforce(bench, log)[::2] == (0, 0)
    assert bases(log) == [0, 1, 2, 3, 4] and log.failure is None
    assert "cannot begin a segment" in caplog.text
    assert enforce(bench, log)[0] == 5
    assert (bases(log), log.log_start_offset) == ([5], 5)


def test_files_that_cannot_be_deleted_are_said(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(bench, retention_ms="1000")
    bench.files.fail("remove", errno.EIO)
    enforce(bench, log)
    assert "cannot delete segments" in caplog.text
    logged = [r.getMessage() for r in caplog.records if r.name == "penstock_broker.log.retention"]
    assert logged == [str(log.offline())]


# -- the trash


def trash_of(*names: str) -> tuple[MemFiles, SimClock, Trash]:
    clock = SimClock()
    files = MemFiles(clock)
    files.make_directory(D)
    for name in names:
        files.put(D / name, b"x")
    return files, clock, Trash(files, clock)


def test_what_is_put_away_is_renamed_and_goes_when_its_time_has_come() -> None:
    files, clock, trash = trash_of("a", "b", "c.deleted", "d")
    trash.put([D / "a", D / "missing"], 100)
    trash.put([D / "b"], 50)
    trash.put([D / "c.deleted"], 70)
    trash.put([], 0)
    assert len(trash) == 3
    assert sorted(files.names(D)) == ["a.deleted", "b.deleted", "c.deleted", "d"]
    for ms, count, left in (
        (49, 0, ["a.deleted", "b.deleted", "c.deleted", "d"]),
        (1, 1, ["a.deleted", "c.deleted", "d"]),
        (50, 2, ["d"]),
    ):
        clock.advance(ms)
        assert trash.empty() == count
        assert sorted(files.names(D)) == left
    assert len(trash) == 0


def test_what_is_due_at_the_same_time_goes_in_the_order_in_which_it_came() -> None:
    files, clock, trash = trash_of("a", "b", "c")
    removed: list[str] = []
    files.remove = lambda path: removed.append(path.name)  # type: ignore[method-assign]
    for name in "bca":
        trash.put_renamed([D / name], 10)
    clock.advance(10)
    assert trash.empty() == 3
    assert removed == ["b", "c", "a"]


def test_trees_go_whole() -> None:
    files, _, trash = trash_of()
    files.make_directory(D / "t-0")
    files.put(D / "t-0" / "a", b"x")
    trash.put_renamed([D / "t-0"], 0)
    assert not files.exists(D / "t-0")


def test_a_name_outlives_a_power_cut_only_synced() -> None:
    files, _, trash = trash_of("a")
    files.sync_directory(D)
    trash.put([D / "a"], 1_000)
    assert files.power_cut(Random(1)).names(D) == ["a.deleted"]


def test_jobs_run_one_at_a_time_and_in_their_order() -> None:
    """One thread works until nothing is left; the next job begins another."""
    files, _, trash = trash_of("a", "b", "c")
    started: list[Callable[[], None]] = []
    trash.run_in_background = started.append
    for name in "ab":
        trash.put([D / name], 0)
    assert len(started) == 1
    started.pop()()
    assert files.names(D) == ["c"]
    trash.put([D / "c"], 0)
    assert len(started) == 1
    started.pop()()
    assert files.names(D) == []


def test_a_directory_that_is_given_up_is_not_touched() -> None:
    files, _, trash = trash_of("a")
    files.make_directory(Path("/e"))
    files.put(Path("/e/a"), b"x")
    started: list[Callable[[], None]] = []
    trash.run_in_background = started.append
    trash.put([D / "a"], 1_000)
    trash.put([Path("/e/a")], 1_000)
    trash.give_up(D)
    started.pop()()
    assert (files.names(D), files.names(Path("/e"))) == (["a"], ["a.deleted"])
    assert not trash._renames, "nothing is held of what has been done"


@pytest.mark.parametrize("operation", ["rename", "remove"])
def test_what_cannot_be_done_is_said_and_the_rest_continues(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    files, _, trash = trash_of("a", "b")
    files.fail(operation, errno.EIO)
    trash.put([D / "a"], 0)
    trash.put([D / "b"], 0)
    assert files.names(D) == ["a" if operation == "rename" else "a.deleted"]
    assert caplog.text.count("a deleted file remains until the next start") >= 1
