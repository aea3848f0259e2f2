"""What a sync has to put on the disk, and how appends share one."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock_broker.log.files import File
from penstock_broker.log.flushing import FlushJob
from penstock_broker.log.group_flush import Done, GroupFlush, run_at_once
from penstock_broker.log.log import Log
from penstock_broker.log.segment_checkpoint import CheckpointWrite
from penstock_broker.testing import MemFiles

DIRECTORY = Path("/data/t-0")
EPOCHS = DIRECTORY / "leader-epoch-checkpoint"


class Disk(MemFiles):
    """A disk that notes what is synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.make_directory(DIRECTORY)
        self.put(EPOCHS, b"")

    def check(self, operation: str, path: Path) -> None:
        if operation.startswith("sync"):
            self.synced.append(path.name)
        super().check(operation, path)


class Table:
    """What a sync asks of a log."""

    def __init__(self, files: Disk) -> None:
        self.place = SimpleNamespace(files=files, directory=DIRECTORY)
        self.failure: str | None = None
        self.recovery_point = 0
        self.log_end_offset = 0
        self.config = SimpleNamespace(flush_messages=1)
        self.flushes: list[FlushJob] = []

    def append(self, records: int = 1) -> None:
        self.log_end_offset += records

    def flush_job(self) -> FlushJob | None:
        if self.recovery_point == self.log_end_offset:
            return None
        return job(self, self.log_end_offset)

    def flushed(self, job: FlushJob) -> None:
        self.recovery_point = job.up_to_offset
        self.flushes.append(job)

    def fail(self, reason: str) -> None:
        self.failure = reason


def job(log: Table, up_to_offset: int = 1, **options: Any) -> FlushJob:
    files = log.place.files
    for name in ("a.log", "b.log"):
        files.put(DIRECTORY / name, b"")
    opened = tuple(files.open(DIRECTORY / name) for name in ("a.log", "b.log"))
    return FlushJob(cast(Log, log), up_to_offset, cast(tuple[File, ...], opened), **options)


@pytest.fixture
def log() -> Table:
    return Table(Disk())


# -- one sync ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["t-0"]),
        ({"with_directory": False}, []),
        ({"with_directory": False, "with_epochs": True}, [EPOCHS.name, "t-0"]),
        ({"with_epochs": True}, [EPOCHS.name, "t-0"]),
    ],
)
def test_names_are_synced_behind_the_files(
    log: Table, options: dict[str, bool], names: list[str]
) -> None:
    job(log, **options).run()
    assert log.place.files.synced == ["a.log", "b.log", *names]


def test_a_job_of_which_nothing_else_is_said(log: Table) -> None:
    assert job(log).changes == (0, 0)
    assert job(log).checkpoint is None


def test_a_checkpoint_is_written_when_all_is_on_the_disk(log: Table) -> None:
    files = log.place.files
    write = SimpleNamespace(run=lambda: files.synced.append("checkpoint"))
    job(log, checkpoint=cast(CheckpointWrite, write)).run()
    assert files.synced == ["a.log", "b.log", "t-0", "checkpoint"]


def test_a_log_that_has_been_deleted_meanwhile_needs_no_names(log: Table) -> None:
    given = job(log, with_epochs=True)
    log.place.files.remove_tree(DIRECTORY)
    log.failure = "the topic has been deleted"
    given.run()
    assert log.place.files.synced == ["a.log", "b.log"]


def test_a_directory_that_has_vanished_is_an_error(log: Table) -> None:
    given = job(log)
    log.place.files.remove_tree(DIRECTORY)
    with pytest.raises(FileNotFoundError, match="No such file or directory: '/data/t-0'") as error:
        given.run()
    assert error.value.errno == errno.ENOENT


# -- sharing -------------------------------------------------------------------------------------


class Syncs:
    """Syncs that end when the test says so."""

    def __init__(self) -> None:
        self.group = GroupFlush()
        self.waiting: list[tuple[FlushJob, Done]] = []
        self.group.submit = lambda job, done: self.waiting.append((job, done))

    def request(self, log: Table) -> None:
        self.group.request(cast(Log, log))

    def end(self, error: OSError | None = None) -> None:
        _, done = self.waiting.pop(0)
        done(error)


def test_a_sync_is_done_at_once_if_nothing_else_is_said(log: Table) -> None:
    log.append()
    GroupFlush().request(cast(Log, log))
    assert log.recovery_point == 1
    assert log.place.files.synced == ["a.log", "b.log", "t-0"]


def test_what_comes_meanwhile_shares_the_next_sync(log: Table) -> None:
    syncs = Syncs()
    for _ in range(3):
        log.append()
        syncs.request(log)
    assert [given.up_to_offset for given, _ in syncs.waiting] == [1]
    syncs.end()
    assert log.recovery_point == 1
    assert [given.up_to_offset for given, _ in syncs.waiting] == [3]
    syncs.end()
    assert syncs.waiting == []
    log.append()
    syncs.request(log)
    assert [given.up_to_offset for given, _ in syncs.waiting] == [4]


@pytest.mark.parametrize(("records", "again"), [(4, False), (5, True), (6, True)])
def test_the_next_sync_waits_for_as_many_records_as_the_topic_says(
    log: Table, records: int, again: bool
) -> None:
    log.config.flush_messages = 5
    log.log_end_offset, log.recovery_point = 105, 100
    syncs = Syncs()
    syncs.request(log)
    log.append(records)
    syncs.end()
    assert len(syncs.waiting) == again


def test_logs_are_synced_at_the_same_time(log: Table) -> None:
    other, syncs = Table(Disk()), Syncs()
    for each in (log, other):
        each.append()
        syncs.request(each)
    assert [given.log for given, _ in syncs.waiting] == [log, other]


def test_what_is_on_the_disk_needs_no_sync(log: Table) -> None:
    syncs = Syncs()
    syncs.request(log)
    assert syncs.waiting == []
    log.append()
    syncs.request(log)
    assert len(syncs.waiting) == 1


def test_a_sync_that_fails_takes_the_log_offline(log: Table) -> None:
    syncs = Syncs()
    log.append()
    syncs.request(log)
    log.append()
    syncs.end(OSError(errno.EIO, "no disk"))
    assert log.failure == "cannot sync: [Errno 5] no disk"
    assert (log.recovery_point, log.flushes, syncs.waiting) == (0, [], [])


def test_an_error_of_the_disk_is_given_to_who_asked(log: Table) -> None:
    given: list[OSError | None] = []
    run_at_once(job(log), given.append)
    assert given == [None]
    log.place.files.fail("sync", errno.EIO)
    run_at_once(job(log), given.append)
    assert isinstance(given[1], OSError)
