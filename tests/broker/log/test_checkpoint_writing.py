"""When a checkpoint is written, which ones are kept, and what a failing disk does to them."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from random import Random

import pytest
from checkpoint_bench import (
    checkpoint,
    checkpoints,
    the_checkpoint,
)
from log_bench import Bench, read_all, values_of
from storage_broker import Broker

from penstock_broker.log import manager
from penstock_broker.log.check import check_log
from penstock_broker.log.epoch_file import read_epochs
from penstock_broker.log.files import OsFiles
from penstock_broker.testing import MemFiles


def test_a_checkpoint_takes_the_place_of_all_that_was_there(bench: Bench) -> None:
    """A damaged one that could not be removed has its name, and more bytes."""
    log = bench.open()
    bench.append(log, "a")
    bench.files.put(bench.directory / f"{1:020d}.checkpoint", b"damaged" * 100)
    checkpoint(log)
    _, found = the_checkpoint(bench)
    found.check(log.segments, 0)
    assert bench.reopen_after_kill(log).recovered.bytes_checked == 0


def test_a_checkpoint_on_a_disk(bench: Bench, tmp_path: Path) -> None:
    bench.directory = tmp_path
    log = bench.open(files=OsFiles())
    bench.append(log, "a")
    checkpoint(log)
    assert (tmp_path / f"{1:020d}.checkpoint").stat().st_size > 0
    log = bench.open(files=OsFiles(), recovery_point=1)
    assert (log.recovered.bytes_checked, values_of(read_all(log))) == (0, ["a"])


def test_a_checkpoint_of_a_closed_segment_stays_until_that_is_on_the_disk(bench: Bench) -> None:
    log = bench.open()
    for value in "abcdef":
        bench.append(log, value)
    checkpoint(log)
    size = log.size_bytes
    bench.append(log, "g")
    log.roll()
    bench.append(log, "h")
    log = bench.reopen_after_kill(log)
    assert log.recovered.bytes_checked == log.size_bytes - size
    assert values_of(read_all(log)) == list("abcdefgh")
    assert checkpoints(bench) == [6]
    log.flush()
    assert checkpoints(bench) == []
    # The next start begins at the active segment, and finds the producers below it.
    assert f"{7:020d}.snapshot" in bench.files.names(bench.directory)


def test_a_roll_of_what_is_on_the_disk_takes_the_checkpoint_along(bench: Bench) -> None:
    """The closed segment may be compacted from now on: it would be that of another."""
    log = bench.open()
    bench.append(log, "a")
    checkpoint(log)
    assert checkpoints(bench) == [1]
    log.roll()
    assert checkpoints(bench) == []


def test_a_checkpoint_that_cannot_be_written_harms_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    log = bench.open()
    bench.append(log, "a")
    bench.files.fail("write", errno.ENOSPC, path_part=".checkpoint", partial_bytes=20)
    checkpoint(log)
    assert ".checkpoint cannot be written: " in caplog.text
    caplog.clear()
    assert (log.failure, log.recovery_point) == (None, 1)
    assert checkpoints(bench) == [], "a part of one takes space on a full disk"
    bench.append(log, "b")
    bench.files.fail("open", errno.EMFILE, path_part=".checkpoint")
    checkpoint(log)
    assert ".checkpoint cannot be written: " in caplog.text
    assert (log.failure, log.recovery_point) == (None, 2)
    bench.append(log, "c")
    checkpoint(log)
    assert checkpoints(bench) == [3]
    assert log.bytes_to_check == 0
    bench.append(log, "d")
    for _ in range(2):
        bench.files.fail("write", errno.ENOSPC, path_part=".checkpoint", partial_bytes=20)
        checkpoint(log)
        assert checkpoints(bench) == [3], "a part of one takes space on a full disk"
    checkpoint(log)
    assert checkpoints(bench) == [4]


def test_one_checkpoint_at_a_time_and_none_where_nothing_is_new(bench: Bench) -> None:
    log = bench.open()
    assert log.flush_job(with_checkpoint=True) is None
    bench.append(log, "a")
    first = log.flush_job(with_checkpoint=True)
    bench.append(log, "b")
    second = log.flush_job(with_checkpoint=True)
    assert first is not None and first.checkpoint is not None
    assert second is not None and second.checkpoint is None, "the other one is under way"
    for job in (first, second):
        job.run()
        log.flushed(job)
    assert (checkpoints(bench), log.bytes_to_check) == ([1], log.size_bytes // 2)
    checkpoint(log)
    assert (checkpoints(bench), log.bytes_to_check) == ([2], 0)
    assert log.flush_job(with_checkpoint=True) is None
    log.roll()
    bench.append(log, "c")
    assert log.bytes_to_check == log.segments[-1].size


@pytest.mark.parametrize("base", [0, 1], ids=["first segment", "second segment"])
def test_a_flush_that_ends_first_leaves_the_checkpoint_that_is_being_written(
    bench: Bench, base: int
) -> None:
    """With flush.messages=1 a sync for producers may overtake the one with a checkpoint."""
    log = bench.open()
    for value in "ab"[:base]:
        bench.append(log, value)
        log.roll()
    bench.append(log, "c")
    size = log.size_bytes
    first = log.flush_job(with_checkpoint=True)
    bench.append(log, "d")
    second = log.flush_job()
    assert first is not None and second is not None
    for job in (second, first):
        job.run()
        log.flushed(job)
    assert checkpoints(bench) == [base + 1]
    assert log.bytes_to_check == log.size_bytes - size
    assert bench.reopen_after_kill(log).recovered.bytes_checked == log.bytes_to_check


def test_a_checkpoint_of_a_segment_that_closes_while_it_is_written_goes(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    job = log.flush_job(with_checkpoint=True)
    assert job is not None
    log.flush()
    log.roll()
    assert checkpoints(bench) == []
    job.run()
    log.flushed(job)
    assert checkpoints(bench) == []
    bench.append(log, "b")
    assert log.bytes_to_check == log.segments[-1].size
    checkpoint(log)
    assert checkpoints(bench) == [2]


def test_a_checkpoint_that_a_start_could_not_remove_goes_with_the_next_flush(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    bench.files = bench.files.kill()
    bench.files.put(bench.directory / f"{5:020d}.checkpoint", b"damaged")
    bench.files.fail("remove", errno.EIO, path_part=".checkpoint")
    log = bench.open()
    assert checkpoints(bench) == [5]
    log.flush()
    assert checkpoints(bench) == []


def test_a_clean_stop_keeps_the_checkpoint_of_the_end_alone(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    checkpoint(log)
    log = bench.reopen_cleanly(log)
    assert (checkpoints(bench), log.bytes_to_check) == ([1], 0)
    bench.append(log, "b")
    log = bench.reopen_cleanly(log)
    assert (checkpoints(bench), log.bytes_to_check) == ([], log.size_bytes)


def test_a_checkpoint_that_cannot_be_removed_is_removed_later(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    log = bench.open()
    bench.append(log, "a")
    checkpoint(log)
    bench.append(log, "b")
    bench.files.fail("remove", errno.EIO, path_part=".checkpoint")
    checkpoint(log)
    assert f"{1:020d}.checkpoint cannot be removed: " in caplog.text
    assert (log.failure, checkpoints(bench)) == (None, [1, 2])
    bench.append(log, "c")
    checkpoint(log)
    assert checkpoints(bench) == [3]


@pytest.mark.parametrize("number", range(10))
def test_two_jobs_at_a_time_sync_names_and_epochs_each(bench: Bench, number: int) -> None:
    """The one that was made second may end first: what it says is on the disk has to be there."""
    log = bench.open()
    bench.append(log, "a", epoch=3)
    first = log.flush_job()
    bench.append(log, "b", epoch=3)
    second = log.flush_job()
    assert first is not None
    assert second is not None
    second.run()
    log.flushed(second)
    bench.files = bench.files.power_cut(Random(number))
    epochs = read_epochs(bench.files, bench.directory)
    assert epochs is not None
    assert epochs.entries() == [(3, 0)]
    assert values_of(read_all(bench.open(recovery_point=log.recovery_point))) == ["a", "b"]


def test_the_logs_with_the_most_to_check_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "TO_CHECK_MAX", 4000)
    monkeypatch.setattr(manager, "CHECKPOINT_MIN", 500)
    broker = Broker(MemFiles())
    broker.replicas.create_topic("t", 4, {})
    for partition, size in enumerate((100, 3000, 900, 600)):
        broker.append("t", partition, "x" * size)
    assert [log.place.partition for log in broker.logs.far_behind()] == [1]
    broker.append("t", 0, "x")  # as much again, but in partitions of little
    broker.append("t", 2, "x" * 2000)
    assert [log.place.partition for log in broker.logs.far_behind()] == [1, 2]
    assert [log.place.partition for log in broker.logs.far_behind(1)] == [1]
    for log in broker.logs.far_behind():
        checkpoint(log)
    assert broker.logs.far_behind() == []


def test_a_kill_after_a_clean_stop_finds_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "TO_CHECK_MAX", 1000)
    monkeypatch.setattr(manager, "CHECKPOINT_MIN", 500)
    broker = Broker(MemFiles())
    broker.replicas.create_topic("t", 1, {})
    for _ in range(3):
        broker.append("t", 0, "x" * 1000)
    broker.restart()
    assert broker.logs.far_behind() == []
    broker.append("t", 0, "y")
    broker.kill()
    assert broker.values("t") == ["x" * 1000] * 3 + ["y"]
    assert broker.report()[-1]["bytes_checked"] < 100


def test_check_log_looks_at_checkpoints(tmp_path: Path, bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    checkpoint(log)
    bench.append(log, "b")
    bench.files = bench.files.kill()
    for name in bench.files.names(bench.directory):
        (tmp_path / name).write_bytes(bench.files.get(bench.directory / name))
    out = io.StringIO()
    assert check_log(tmp_path, out) == 0, out.getvalue()
    path = tmp_path / f"{1:020d}.checkpoint"
    path.write_bytes(path.read_bytes()[:-1])
    assert check_log(tmp_path, out) == 1
    assert path.name in out.getvalue()
