"""Crashes around a checkpoint: a start finds what one without checkpoints finds."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from checkpoint_bench import (
    Work,
    bench_for,
    checkpoint,
    checkpoints,
    survives,
)
from log_bench import Bench

from penstock_broker.testing import MemFiles

STEPS = 14


"""More calls of the disk than a flush with a checkpoint makes."""


def test_kills_and_power_cuts_find_the_same_with_checkpoints_and_without(seed: int) -> None:
    random = Random(seed)
    for _ in range(6):
        bench = bench_for(random)
        work = Work(bench, bench.open(), random)
        for _ in range(5):
            synced = point = work.log.recovery_point
            for _ in range(random.randrange(40)):
                work.step()
                if random.random() < 0.1:
                    checkpoint(work.log)
                    synced = work.log.recovery_point
                    # The recovery points are written later.
                    point = random.choice([point, synced])
                elif random.random() < 0.05:
                    work.log.flush()
                    synced = work.log.recovery_point
            end = work.log.log_end_offset
            if random.random() < 0.2:
                work.start(bench.reopen_cleanly(work.log))
                assert work.log.recovered.clean
                continue
            if random.random() < 0.5:
                bench.files, synced = bench.files.kill(), end
            else:
                bench.files = bench.files.power_cut(random)
            work.start(survives(bench, point, synced))
            assert len(checkpoints(bench)) <= 1, "what is not used goes"


class EndsAtStep(MemFiles):
    """A disk whose machine ends before a call of a certain number."""

    steps_left = -1

    def check(self, operation: str, path: Path) -> None:
        self.steps_left -= 1
        if self.steps_left == -1:
            raise InterruptedError(errno.EINTR, "the end")
        super().check(operation, path)


def _kill(files: MemFiles, random: Random) -> MemFiles:
    return files.kill()


def _cut(files: MemFiles, random: Random) -> MemFiles:
    return files.power_cut(random)


def _cut_after_the_checkpoint(files: MemFiles, random: Random) -> MemFiles:
    """The disk has written that first."""
    for name in files.names(Bench().directory):
        if name.endswith(".checkpoint"):
            path = Bench().directory / name
            files.put(path, files.get(path))
    return files.power_cut(random)


@pytest.mark.parametrize("end", [_kill, _cut, _cut_after_the_checkpoint])
@pytest.mark.parametrize("step", range(STEPS))
def test_a_crash_at_each_step_of_a_checkpoint(
    seed: int, step: int, end: Callable[[MemFiles, Random], MemFiles]
) -> None:
    """Sync of the data, of the epochs, of the names; the checkpoint's write; the old one's end; the
    recovery point, which is written after all of that or not."""
    random = Random(seed)
    for rolls in 3 * (False, True):
        bench = bench_for(random)
        bench.overrides["segment.bytes"] = "100000"
        files = EndsAtStep(bench.clock)
        files.make_directory(bench.directory)
        bench.files = files
        work = Work(bench, bench.open(), random)
        for _ in range(12):
            work.step()
        checkpoint(work.log)
        synced = work.log.recovery_point
        for _ in range(12):
            work.step()
        if rolls:
            work.log.roll()
            work.step()
        point, files.steps_left = synced, step
        try:
            checkpoint(work.log)
            point = random.choice([synced, work.log.recovery_point])
        except InterruptedError:
            pass
        else:
            synced = work.log.recovery_point
        bench.files = end(files, random)
        work.start(survives(bench, point, synced))
        for _ in range(5):
            work.step()
        bench.files = bench.files.kill()
        survives(bench, work.log.recovery_point, work.log.log_end_offset)


def test_the_steps_are_enough(bench: Bench) -> None:
    files = EndsAtStep(bench.clock)
    files.make_directory(bench.directory)
    bench.files = files
    log = bench.open()
    bench.append(log, "a")
    checkpoint(log)
    bench.append(log, "b", epoch=1)
    log.roll()
    bench.append(log, "c", epoch=2)
    files.steps_left = STEPS - 1
    checkpoint(log)
