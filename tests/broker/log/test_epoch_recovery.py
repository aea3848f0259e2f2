"""Leader epochs after a crash: cut with the log, found again in it, and written down."""

from __future__ import annotations

from random import Random

import pytest
from checkpoint_bench import checkpoint
from log_bench import Bench

from penstock_broker.log.epoch_file import EPOCHS_FILE


def test_leader_epochs_follow_the_cut(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", epoch=1)
    size = log.size_bytes
    bench.append(log, "b", epoch=4)
    assert log.end_of_epoch(3) == (1, 1)
    assert log.end_of_epoch(4) == (4, 2)
    path = log.segments[-1].path
    bench.files.put(path, bench.files.get(path)[: size + 10])
    log = bench.reopen_after_kill(log)
    assert log.epochs.entries() == [(1, 0)]
    assert log.end_of_epoch(4) == (1, 1)


def test_leader_epochs_are_found_again_in_the_log(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", epoch=1)
    bench.append(log, "b", epoch=4)
    bench.files.put(bench.directory / "leader-epoch-checkpoint", b"damaged")
    log = bench.reopen_after_kill(log)
    assert log.epochs.entries() == [(1, 0), (4, 1)]


def test_epochs_that_a_start_finds_are_there_at_the_next(bench: Bench) -> None:
    """A power cut may have left the file as it was before the last epoch began."""
    bench.overrides = {"segment.bytes": "200"}
    log = bench.open()
    bench.append(log, "a")
    before = bench.files.get(bench.directory / EPOCHS_FILE)
    for value in "bcdefg":
        bench.append(log, value, epoch=3)
    expected = [(0, 0), (3, 1)]
    assert log.epochs.entries() == expected
    bench.files = bench.files.kill()
    bench.files.put(bench.directory / EPOCHS_FILE, before)
    log = bench.open()
    assert log.epochs.entries() == expected
    assert bench.reopen_cleanly(log).epochs.entries() == expected


@pytest.mark.parametrize("cut", range(8))
def test_epochs_outlive_a_kill_and_a_power_cut_behind_it(bench: Bench, cut: int) -> None:
    """The first flush syncs the file that the killed process wrote: else all of the log is read."""
    log = bench.open()
    bench.append(log, "a")
    log.flush()
    bench.append(log, "b", epoch=3)
    log = bench.reopen_after_kill(log)
    log.flush()
    known = bench.files.get(bench.directory / EPOCHS_FILE)
    bench.files = bench.files.power_cut(Random(cut))
    assert bench.files.get(bench.directory / EPOCHS_FILE) == known
    log = bench.open(recovery_point=log.recovery_point)
    assert log.epochs.entries() == [(0, 0), (3, 1)]


def test_epochs_are_kept_where_retention_has_cut_them(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "200"}
    log = bench.open()
    for value in "abcdefg":
        bench.append(log, value)
    log.delete_records(log.segments[-1].base_offset - 1)
    entries = log.epochs.entries()
    assert entries[0][1] == log.log_start_offset > log.segments[0].base_offset
    log.begin_epoch(4, log.log_end_offset)
    log = bench.reopen_cleanly(log)
    assert log.epochs.entries() == [*entries, (4, log.log_end_offset)]


def test_epochs_that_are_lost_are_made_again_and_written_down(bench: Bench) -> None:
    log = bench.open()
    for epoch in (0, 2, 2, 5):
        bench.append(log, "x", epoch=epoch)
    log.close()
    known = bench.files.get(bench.directory / EPOCHS_FILE)
    bench.files.remove(bench.directory / EPOCHS_FILE)
    log = bench.open(recovery_point=4, clean=True)
    assert log.epochs.entries() == [(0, 0), (2, 1), (5, 3)]
    assert bench.files.get(bench.directory / EPOCHS_FILE) == known


def test_leader_epochs_that_recovery_finds_outlive_a_checkpoint(bench: Bench) -> None:
    """A power cut may leave their file as it was before an epoch began whose batches it kept."""
    log = bench.open()
    bench.append(log, "a", epoch=1)
    path = bench.directory / "leader-epoch-checkpoint"
    old = bench.files.get(path)
    bench.append(log, "b", epoch=4)
    bench.files.put(path, old)
    log = bench.reopen_after_kill(log)
    checkpoint(log)
    log = bench.reopen_after_kill(log)
    assert log.recovered.bytes_checked == 0
    assert log.epochs.entries() == [(1, 0), (4, 1)]
