"""What the owner of a log does while another thread syncs it: tried at every step of the thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from log_bench import Bench
from test_log_manager import DATA_DIR, Broker

from penstock_broker.log.epoch_file import EPOCHS_FILE, read_epochs
from penstock_broker.testing import MemFiles
from penstock_broker.testing.mem_files import MemFile

STEPS = 12
"""More than a sync of one segment has."""


class SteppedFiles(MemFiles):
    """A disk that lets another thread run before a certain call of those who use it."""

    def __init__(self) -> None:
        super().__init__()
        self._steps_left = -1
        self._meanwhile: Callable[[], None] = lambda: None

    @contextmanager
    def interrupted_at(self, step: int, meanwhile: Callable[[], None]) -> Iterator[None]:
        """Call ``meanwhile`` before the call of this number, from 0, or behind the last one."""
        self._steps_left, self._meanwhile = step, meanwhile
        yield
        if self._steps_left >= 0:
            self._steps_left = -1
            meanwhile()

    def _step(self) -> None:
        self._steps_left -= 1
        if self._steps_left == -1:
            self._meanwhile()

    def check(self, operation: str, path: Path) -> None:
        self._step()
        super().check(operation, path)

    def exists(self, path: Path) -> bool:
        self._step()
        return super().exists(path)

    def open(self, path: Path, *, create: bool = False) -> MemFile:
        self._step()
        return super().open(path, create=create)


@pytest.mark.parametrize("step", range(STEPS))
def test_a_sync_of_a_deleted_log_touches_nothing_of_its_successor(step: int) -> None:
    """The topic is made again under its name, in a directory of the same name."""
    files = SteppedFiles()
    broker = Broker(files)
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "old", "old")
    job = broker.replicas.partition("t", 0).log.flush_job()
    assert job is not None

    def make_again() -> None:
        broker.replicas.delete_topic("t")
        broker.replicas.create_topic("t", 1, {})
        broker.append("t", 0, "new")

    with files.interrupted_at(step, make_again):
        try:
            job.run()
        except OSError as error:
            job.log.fail(f"cannot sync: {error}")
    log = broker.replicas.partition("t", 0).log
    found = read_epochs(files, log.place.directory)
    assert found is not None
    assert found.entries() == log.epochs.entries() == [(1, 0)]
    assert f"{EPOCHS_FILE}.tmp" not in files.names(log.place.directory)
    assert log.failure is None
    assert broker.logs.metrics.logs_failed.value == 0
    broker.kill()
    assert broker.values("t") == ["new"]


@pytest.mark.parametrize("step", range(STEPS))
def test_an_epoch_that_begins_while_a_sync_is_under_way(step: int) -> None:
    """The log stays online, and keeps both epochs over a power cut after the next sync."""
    files = SteppedFiles()
    bench = Bench()
    bench.files = files
    files.make_directory(bench.directory)
    log = bench.open()
    bench.append(log, "a", "b", epoch=1)
    job = log.flush_job()
    assert job is not None
    with files.interrupted_at(step, lambda: bench.append(log, "c", epoch=2) and None):
        job.run()
    log.flushed(job)
    assert log.recovery_point == 2
    log.flush()
    after = files.power_cut(Random(step))
    found = read_epochs(after, bench.directory)
    assert found is not None
    assert found.entries() == [(1, 0), (2, 2)]


def test_the_steps_are_enough() -> None:
    """One behind the last: nothing is interrupted any more."""
    files = SteppedFiles()
    broker = Broker(files)
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    job = broker.replicas.partition("t", 0).log.flush_job()
    assert job is not None
    interrupted: list[bool] = []
    with files.interrupted_at(STEPS - 1, lambda: interrupted.append(True)):
        job.run()
        assert not interrupted
    assert job.log.place.directory == DATA_DIR / "t-0"
