"""The manager of all logs of a data directory, asked directly: one rule a test."""

from __future__ import annotations

import errno
import json
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import cast

import pytest
from log_bench import Bench

from penstock_broker.config import LogConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.data_directory import DataDirectoryTakenError, read_topic_id
from penstock_broker.log.files import Files, OsFiles
from penstock_broker.log.keys import TopicPartition
from penstock_broker.log.log import Log
from penstock_broker.log.manager import LogManager
from penstock_broker.metrics import Metrics
from penstock_broker.testing import MemFiles, SimClock

DATA = Path("/data")
POINTS, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"
CLEAN = "clean-shutdown"
TOPIC_ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)
T0, T1 = ("t", 0), ("t", 1)


class Directory:
    """A data directory on a simulated disk, and the process that serves it."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.files = MemFiles(self.clock)
        self.metrics = Metrics()
        self.bench = Bench()  # for its batches
        self.logs = self.manager()
        self.logs.open()

    def manager(self, files: Files | None = None, data_dir: Path = DATA) -> LogManager:
        return LogManager(data_dir, self.clock, files or self.files, self.metrics)

    def create(self, *keys: TopicPartition, config: LogConfig | None = None) -> list[Log]:
        return [self.logs.create(*key, TOPIC_ID, config or LogConfig()) for key in keys]

    def filled(self, key: TopicPartition, records: int = 3, **settings: str) -> Log:
        """A new log with some records, one a batch."""
        overrides = {name.replace("_", "."): value for name, value in settings.items()}
        (log,) = self.create(key, config=LogConfig().with_overrides(overrides))
        for number in range(records):
            self.append(log, f"value {number}")
        return log

    def append(self, log: Log, value: str) -> AppendResult:
        return self.bench.append(log, value)

    def restart(self, *, how: str = "kill", open_it: bool = True) -> None:
        """End the process, properly ("close") or not, and start the next."""
        if how == "close":
            self.logs.close()
        self.files = self.files.power_cut(Random(1)) if how == "cut" else self.files.kill()
        self.logs = self.manager()
        if open_it:
            self.logs.open()

    def load(self, key: TopicPartition, config: LogConfig | None = None) -> Log:
        return self.logs.load(*key, config or LogConfig())

    def written(self, name: str) -> list[str]:
        """The entries of a checkpoint."""
        path = DATA / name
        return self.files.get(path).decode().splitlines()[2:] if self.files.exists(path) else []

    def report(self) -> list[dict[str, object]]:
        path = DATA / "recovery-report.jsonl"
        if not self.files.exists(path):
            return []
        return [json.loads(line) for line in self.files.get(path).splitlines()]

    def names(self) -> list[str]:
        """The directories in it."""
        names = self.files.names(DATA)
        return [name for name in names if self.files.is_directory(DATA / name)]

    def cut(self, key: TopicPartition, size: int = 1) -> None:
        """Tear the last bytes off a log's first segment."""
        path = DATA / f"{key[0]}-{key[1]}" / f"{0:020d}.log"
        self.files.put(path, self.files.get(path)[:-size])


@pytest.fixture
def directory() -> Directory:
    return Directory()


# -- opening -------------------------------------------------------------------------------------


def test_a_new_directory_counts_as_closed(directory: Directory) -> None:
    assert directory.logs.was_clean is True
    directory.restart()
    assert directory.logs.was_clean, "there is still no log"
    assert directory.manager().was_clean


def test_a_directory_with_logs_was_closed_only_if_that_was_said(directory: Directory) -> None:
    directory.create(T0)
    directory.restart()
    assert not directory.logs.was_clean
    directory.restart(how="close")
    assert directory.logs.was_clean
    directory.restart()
    assert not directory.logs.was_clean, "the start has taken it back"


@pytest.mark.parametrize("seed", range(8))
def test_that_it_was_closed_is_taken_back_on_the_disk(directory: Directory, seed: int) -> None:
    directory.create(T0)
    directory.logs.sync_names()
    directory.restart(how="close")
    directory.files = directory.files.power_cut(Random(seed))
    directory.logs = directory.manager()
    directory.logs.open()
    assert not directory.logs.was_clean


def test_a_directory_is_served_by_one_manager(directory: Directory) -> None:
    other = directory.manager()
    with pytest.raises(DataDirectoryTakenError):
        other.open()
    directory.logs.close()
    other.open()
    other.abandon()
    directory.manager().open()


def test_what_a_crash_left_of_deleted_logs_goes(directory: Directory) -> None:
    for name in ("t-0.1-delete", "t-0.2-stray", "t-1"):
        directory.files.make_directory(DATA / name)
    directory.files.put(DATA / "t-0.1-delete" / "x.log", b"")
    directory.restart()
    assert directory.names() == ["t-0.2-stray", "t-1"]


@pytest.mark.parametrize("name", [POINTS, STARTS])
def test_a_damaged_checkpoint_means_that_the_stop_was_not_clean(
    directory: Directory, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory.create(T0)
    directory.logs.close()
    directory.files.put(DATA / name, b"damaged")
    directory.restart()
    assert directory.logs.was_clean is False
    assert f"{DATA / name} is damaged: all logs are checked from their beginning" in caplog.text


# -- closing -------------------------------------------------------------------------------------


def test_a_closed_directory_says_where_its_logs_begin_and_end(directory: Directory) -> None:
    first, _ = directory.filled(T0), directory.create(T1)
    first.advance_start(2)
    directory.logs.close()
    assert directory.written(POINTS) == ["t 0 3", "t 1 0"]
    assert directory.written(STARTS) == ["t 0 2"]
    assert directory.files.exists(DATA / CLEAN)
    assert list(directory.logs.logs()) == []
    directory.logs.close()  # nothing is left to be closed


def test_logs_are_on_the_disk_when_the_directory_is_closed(directory: Directory) -> None:
    for number in range(20):
        directory.filled(("t", number))
    directory.logs.close()
    directory.restart(how="cut")
    for number in range(20):
        assert directory.load(("t", number)).log_end_offset == 3


def test_a_closed_log_is_synced_once(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory.filled(T0).segments[0].path
    done: list[tuple[object, ...]] = []
    monkeypatch.setattr(directory.files, "check", lambda *operation: done.append(operation))
    directory.logs.close()
    assert done.count(("sync", path)) == 1


@pytest.mark.parametrize("count", [1, 3])
def test_logs_of_a_real_disk_are_closed(tmp_path: Path, count: int) -> None:
    world = Directory()
    for _ in range(2):
        world.logs = world.manager(OsFiles(), tmp_path)
        world.logs.open()
        assert world.logs.was_clean
        found = world.logs.found()
        for number in range(count):
            key = ("t", number)
            log = world.load(key) if key in found else world.filled(key)
            assert (log.log_end_offset, log.recovered.clean) == (3, True)
        world.logs.close()
        for number in range(count):
            indexes = list((tmp_path / f"t-{number}").glob("*.timeindex"))
            assert len(indexes) == 1, "they are written when a log is closed"


def test_a_log_that_is_offline_leaves_the_directory_not_closed(directory: Directory) -> None:
    directory.filled(T0).fail("its disk")
    directory.filled(T1)
    directory.logs.close()
    assert not directory.files.exists(DATA / CLEAN)
    assert directory.written(POINTS) == ["t 0 0", "t 1 3"]


def test_a_log_that_cannot_be_synced_at_the_end_is_offline(directory: Directory) -> None:
    bad, good = directory.filled(T0), directory.filled(T1)
    directory.files.fail("sync", errno.EIO, path_part="t-0")
    directory.logs.close()
    path = bad.segments[0].path
    assert bad.failure == f"cannot sync: [Errno 5] Input/output error: '{path}'"
    assert good.failure is None
    assert not directory.files.exists(DATA / CLEAN)
    assert directory.written(POINTS) == ["t 0 0", "t 1 3"]


def test_a_log_that_cannot_be_closed_is_offline(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    directory.filled(T0)
    directory.filled(T1)
    directory.files.fail("open", errno.EIO, path_part=f"t-0/{3:020d}.snapshot")
    directory.logs.close()
    assert not directory.files.exists(DATA / CLEAN)
    assert "/data/t-0 is offline: cannot close" in caplog.text


def test_a_far_log_gets_a_checkpoint_when_it_is_closed(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_broker.log.manager.TO_CHECK_MAX", 150)
    monkeypatch.setattr("penstock_broker.log.manager.CHECKPOINT_MIN", 150)
    directory.filled(T0)
    directory.filled(T1, 1)
    directory.logs.close()
    found = [
        [name for name in directory.files.names(DATA / log) if name.endswith(".checkpoint")]
        for log in ("t-0", "t-1")
    ]
    assert found == [[f"{3:020d}.checkpoint"], []]


def test_an_abandoned_directory_is_not_closed(directory: Directory) -> None:
    directory.filled(T0)
    directory.logs.abandon()
    assert list(directory.logs.logs()) == []
    assert not directory.files.exists(DATA / CLEAN)
    assert directory.written(POINTS) == []
    directory.manager().open()
    directory.logs.abandon()  # nothing is left


# -- which logs there are ------------------------------------------------------------------------


def test_open_logs_are_known_by_their_names(directory: Directory) -> None:
    first, second = directory.create(T0, T1)
    assert list(directory.logs.logs()) == [first, second]
    assert directory.logs.get(*T0) is first
    assert directory.logs.get("t", 2) is None
    total, free = directory.logs.space()
    assert total >= free > 0


def test_logs_are_found_with_their_topics_ids(directory: Directory) -> None:
    directory.create(T0, ("other", 12))
    directory.files.make_directory(DATA / "u-0")
    directory.files.make_directory(DATA / "not a log")
    directory.files.put(DATA / "t-7", b"no directory")
    assert directory.logs.found() == {T0: TOPIC_ID, ("other", 12): TOPIC_ID, ("u", 0): None}


def test_the_thread_that_looks_for_logs_keeps_to_the_bound_on_files(tmp_path: Path) -> None:
    files = OsFiles()
    logs = LogManager(tmp_path, SimClock(), files)
    assert isinstance(logs.metrics, Metrics), "its own, if it is given none"
    logs.open_files.most = 77
    thread = threading.Thread(target=logs.found)
    thread.start()
    thread.join()
    assert files.open_files_max == 77
    assert files.owner == thread.ident


# -- creating ------------------------------------------------------------------------------------


def test_a_new_log_is_empty_and_says_whose_it_is(directory: Directory) -> None:
    moved: list[TopicPartition] = []
    directory.logs.on_start_moved = moved.append
    directory.logs.producers_max = 5
    log = directory.filled(T0)
    assert read_topic_id(directory.files, DATA / "t-0") == TOPIC_ID
    assert log.producers.producers_max == 5
    assert (log.log_start_offset, log.log_end_offset, log.recovered.clean) == (0, 3, True)
    log.advance_start(1)
    assert moved == [T0]


def test_a_log_that_is_there_is_not_created(directory: Directory) -> None:
    directory.filled(T0)
    with pytest.raises(FileExistsError, match="/data/t-0 is there already"):
        directory.create(T0)
    log = directory.logs.get(*T0)
    assert log is not None and log.log_end_offset == 3


def test_a_new_log_has_nothing_of_an_older_one_of_its_name(directory: Directory) -> None:
    directory.filled(T0).advance_start(2)
    directory.filled(T1)
    directory.logs.close()
    directory.files.remove_tree(DATA / "t-0")
    directory.restart()
    directory.load(T1)
    directory.create(T0)
    assert directory.written(POINTS) == ["t 1 3"], "and that is on the disk before it begins"
    assert directory.written(STARTS) == []
    log = directory.logs.get(*T0)
    assert log is not None and log.log_end_offset == log.recovery_point == 0


def test_a_lost_log_gives_no_offset_out_again(directory: Directory) -> None:
    directory.filled(T0).advance_start(2)
    directory.logs.close()
    directory.files.remove_tree(DATA / "t-0")
    directory.restart()
    log = directory.logs.create(*T0, OTHER_ID, LogConfig(), is_lost=True)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert log.recovered.clean is False
    assert directory.report()[-1]["reason"] == "all segments are missing"
    assert read_topic_id(directory.files, DATA / "t-0") == OTHER_ID


@pytest.mark.parametrize("path_part", ["partition.metadata", ".log"])
def test_nothing_remains_of_a_log_that_cannot_be_created(
    directory: Directory, path_part: str
) -> None:
    directory.files.fail("open", errno.ENOSPC, path_part=path_part)
    with pytest.raises(OSError, match="No space left"):
        directory.create(T0)
    assert directory.names() == []
    assert directory.logs.get(*T0) is None
    directory.create(T0)


# -- loading -------------------------------------------------------------------------------------


def test_a_log_that_was_closed_is_not_checked(directory: Directory) -> None:
    directory.filled(T0).advance_start(2)
    directory.restart(how="close")
    log = directory.load(T0)
    assert directory.logs.get(*T0) is log
    assert (log.recovered.clean, log.recovered.bytes_checked) == (True, 0)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (2, 3, 3)
    assert directory.logs.report.bytes_checked == 0


@pytest.mark.parametrize("what", ["kill", "no recovery point"])
def test_any_other_log_is_checked(directory: Directory, what: str) -> None:
    size = directory.filled(T0).size_bytes
    if what == "kill":
        directory.restart()
    else:
        directory.logs.close()
        directory.files.remove(DATA / POINTS)
        directory.restart()
        assert directory.logs.was_clean
    assert directory.load(T0).recovered.clean is False
    assert directory.logs.report.bytes_checked == size


def test_files_that_look_closed_are_no_clean_stop(directory: Directory) -> None:
    directory.filled(T0)
    directory.logs.close()
    directory.files.remove(DATA / CLEAN)
    directory.restart()
    assert directory.load(T0).recovered.clean is False


def test_an_empty_log_without_a_recovery_point_is_checked(directory: Directory) -> None:
    directory.create(T0)
    directory.logs.close()
    directory.files.remove(DATA / POINTS)
    directory.restart()
    assert directory.load(T0).recovered.clean is False


def test_what_was_cut_is_reported(directory: Directory) -> None:
    directory.filled(T0)
    directory.cut(T0)
    directory.restart()
    assert directory.load(T0).log_end_offset == 2
    (line,) = directory.report()
    assert (line["event"], line["topic"], line["first_offset"]) == ("cut", "t", 2)


def test_damage_below_the_recovery_point_is_an_error_of_the_disk(directory: Directory) -> None:
    directory.filled(T0, 9, segment_bytes="200")
    directory.logs.close()
    directory.files.remove(DATA / CLEAN)
    for name in directory.files.names(DATA / "t-0"):
        if name.endswith(".snapshot"):
            directory.files.remove(DATA / "t-0" / name)
    path = DATA / "t-0" / f"{0:020d}.log"
    damaged = bytearray(directory.files.get(path))
    damaged[16] ^= 0xFF
    directory.files.put(path, bytes(damaged))
    directory.restart()
    with pytest.raises(OSError, match="damaged below its recovery point: no batch") as error:
        directory.load(T0)
    assert error.value.errno == errno.EIO
    assert directory.logs.get(*T0) is None


def test_segments_below_the_start_are_deleted_when_a_log_is_loaded(directory: Directory) -> None:
    log = directory.filled(T0, 9, segment_bytes="200")
    log.advance_start(5)
    directory.restart(how="close")
    loaded = directory.load(T0)
    assert 0 < loaded.segments[0].base_offset <= 5
    assert loaded.segments[1].base_offset > 5


def test_a_log_whose_old_segments_cannot_be_deleted_is_loaded_offline(
    directory: Directory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.filled(T0)
    directory.restart(how="close")

    def fails(log: Log) -> int:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk")

    monkeypatch.setattr(Log, "delete_old_segments", fails)
    assert directory.load(T0) is directory.logs.get(*T0)
    assert caplog.messages[-1].endswith("no disk")


# -- deleting ------------------------------------------------------------------------------------


def test_a_deleted_log_is_renamed_and_later_removed(directory: Directory) -> None:
    log = directory.filled(T0, file_delete_delay_ms="1000")
    directory.logs.delete([T0])
    (name,) = directory.names()
    assert name.startswith("t-0.") and name.endswith("-delete")
    assert directory.logs.get(*T0) is None
    with pytest.raises(KafkaError):
        directory.append(log, "late")
    directory.clock.advance(999)
    assert directory.logs.empty_trash() == 0
    directory.clock.advance(1)
    assert directory.logs.empty_trash() == 1
    assert directory.names() == []


@pytest.mark.parametrize(("records", "delays"), [(0, (5,)), (1, (5, 1)), (1, (1, 5))])
def test_the_longest_delay_of_logs_with_records_counts(
    directory: Directory, records: int, delays: tuple[int, ...]
) -> None:
    for number, delay in enumerate(delays):
        directory.filled(("t", number), records, file_delete_delay_ms=f"{delay}000")
    directory.logs.delete([("t", number) for number in range(len(delays))])
    directory.clock.advance(4_999 if records else 0)
    assert len(directory.names()) == (len(delays) if records else 0)
    directory.clock.advance(1)
    directory.logs.empty_trash()
    assert directory.names() == []


def test_empty_logs_go_at_once(directory: Directory) -> None:
    directory.create(T0)
    directory.logs.delete([T0, ("unknown", 0)])
    assert directory.names() == []


@pytest.mark.parametrize("sync", [None, True, False])
def test_names_are_synced_when_a_log_is_deleted(
    directory: Directory, sync: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.filled(T0)
    synced: list[Path] = []
    monkeypatch.setattr(directory.files, "sync_directory", synced.append)
    if sync is None:
        directory.logs.delete([T0])
    else:
        directory.logs.delete([T0], sync=sync)
    assert (DATA in synced) is (sync is not False)


def test_nothing_is_written_down_of_a_deleted_log(directory: Directory) -> None:
    directory.filled(T0).advance_start(1)
    directory.logs.checkpoint_job()()
    directory.logs.delete([T0])
    directory.logs.checkpoint_job()()
    assert directory.written(POINTS) == directory.written(STARTS) == []


def test_segments_that_wait_for_their_names_are_given_up_with_the_log(
    directory: Directory,
) -> None:
    jobs: list[object] = []
    directory.logs.run_in_background = jobs.append
    log = directory.filled(T0, 9, segment_bytes="200")
    log.advance_start(5)
    log.delete_old_segments()
    directory.logs.delete([T0])
    again = directory.filled(T0)
    for job in jobs:
        job()  # type: ignore[operator]
    assert f"{0:020d}.log" in directory.files.names(DATA / "t-0")
    assert again.read(0, 1_000).size


@pytest.mark.parametrize("failing", [("t-0",), ("t-1",), ("t-1", "t-2")])
def test_a_log_that_cannot_be_deleted_does_not_keep_the_others(
    directory: Directory, failing: Iterable[str]
) -> None:
    directory.create(T0, T1, ("t", 2))
    for name in failing:
        directory.files.fail("rename", errno.EIO, path_part=name)
    with pytest.raises(OSError, match=next(iter(failing))):
        directory.logs.delete([T0, T1, ("t", 2)])
    assert directory.names() == list(failing)
    assert list(directory.logs.logs()) == []


@pytest.mark.parametrize(
    ("starts", "is_due"), [((0, 0), [True, True]), ((1, 0), [True, True])], ids=["points", "both"]
)
def test_offsets_of_deleted_logs_have_to_be_removed_from_the_disk(
    directory: Directory, starts: tuple[int, int], is_due: list[bool]
) -> None:
    for key, start in zip((T0, T1), starts, strict=True):
        directory.filled(key).advance_start(start)
    directory.logs.checkpoint_job()()
    assert directory.logs.removal_of_offsets([]) is None
    assert directory.logs.removal_of_offsets([("t", 2)]) is None
    for keys in ([T0], [T1], [("t", 2), T1], [T0, ("t", 2)]):
        assert directory.logs.removal_of_offsets(keys) is not None
    directory.logs.delete([T0])
    removal = directory.logs.removal_of_offsets([T0])
    assert removal is not None
    removal()
    assert directory.written(POINTS) == ["t 1 0"]
    assert directory.logs.removal_of_offsets([T0]) is None


def test_a_start_that_is_written_alone_has_to_be_removed_too(directory: Directory) -> None:
    directory.filled(T0).advance_start(1)
    directory.logs.checkpoint_log_starts()
    assert directory.written(POINTS) == []
    assert directory.logs.removal_of_offsets([T0]) is not None


# -- setting aside, and adopting -----------------------------------------------------------------


def test_a_log_without_a_topic_is_kept_under_another_name(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.filled(T0).advance_start(1)
    directory.logs.checkpoint_job()()
    synced: list[Path] = []
    monkeypatch.setattr(directory.files, "sync_directory", synced.append)
    directory.logs.set_aside(*T0, "no topic")
    assert synced == [DATA, DATA], "the new name, then the report"
    (name,) = directory.names()
    assert name.startswith("t-0.") and name.endswith("-stray")
    assert directory.report() == [
        {
            "event": "stray",
            "at_ms": directory.clock.now_ms(),
            "topic": "t",
            "partition": 0,
            "reason": "no topic",
            "directory": name,
        }
    ]
    assert directory.logs.get(*T0) is None
    directory.logs.checkpoint_job()()
    assert directory.written(POINTS) == directory.written(STARTS) == []
    directory.logs.set_aside(*T0, "it is not there")
    assert len(directory.report()) == 1


def test_the_name_of_a_renamed_log_fits_a_file_system(directory: Directory) -> None:
    topic = "t" * 249
    directory.create((topic, 99_999))
    directory.logs.set_aside(topic, 99_999, "no topic")
    (name,) = directory.names()
    first, rest = name.split("-", 1)
    assert first == "t" * 200
    number, _, suffix = rest.partition(".")
    assert number == "99999"
    assert len(suffix) == 32 + len("-stray")
    assert len(name) <= 255


def test_a_log_whose_id_was_lost_is_adopted(directory: Directory) -> None:
    directory.create(T0)
    directory.logs.adopt(*T0, OTHER_ID)
    assert directory.logs.found() == {T0: OTHER_ID}


def test_names_are_on_the_disk_when_they_are_synced(directory: Directory) -> None:
    directory.create(T0)
    directory.files.fail("sync_directory", errno.EIO, path_part="/data")
    with pytest.raises(OSError, match="Input/output"):
        directory.logs.sync_names()


# -- what is written down ------------------------------------------------------------------------


def test_one_job_writes_both_checkpoints(directory: Directory) -> None:
    directory.filled(T0).advance_start(2)
    directory.filled(T1).flush()
    job = directory.logs.checkpoint_job()
    assert directory.written(STARTS) == []
    job()
    assert directory.written(STARTS) == ["t 0 2"]
    assert directory.written(POINTS) == ["t 0 0", "t 1 3"]


def test_one_job_writes_where_the_logs_begin(directory: Directory) -> None:
    directory.filled(T0).advance_start(2)
    directory.logs.log_starts_job()()
    assert directory.written(STARTS) == ["t 0 2"]
    assert directory.written(POINTS) == []


def test_retention_works_on_these_logs(directory: Directory) -> None:
    log = directory.filled(T0, 9, segment_bytes="200", retention_bytes="1")
    directory.logs.retention.enforce()
    assert log.log_start_offset > 0


def test_records_are_deleted_with_one_write(directory: Directory) -> None:
    first, second = (directory.filled(key, 9, segment_bytes="200") for key in (T0, T1))
    directory.logs.delete_records({T0: 5, T1: 0})
    assert directory.written(STARTS) == ["t 0 5"]
    assert first.segments[0].base_offset > 0
    assert second.segments[0].base_offset == 0
    writes = directory.files.writes
    directory.logs.delete_records({T0: 5, T1: 0})
    assert directory.files.writes == writes


def test_a_log_whose_records_are_deleted_has_its_start_written(directory: Directory) -> None:
    directory.filled(T0).delete_records(2)
    assert directory.written(STARTS) == ["t 0 2"]


def test_only_logs_whose_start_moves_lose_segments(directory: Directory) -> None:
    log = directory.filled(T0, 9, segment_bytes="200")
    log.advance_start(5)
    directory.logs.delete_records({T0: 3})
    assert log.segments[0].base_offset == 0
    assert directory.written(STARTS) == []


def test_a_start_after_a_kill_is_summed_up(directory: Directory) -> None:
    directory.filled(T0)
    directory.logs.finish_loading()
    assert directory.report() == [], "it began with a new directory"
    directory.restart()
    directory.load(T0)
    directory.logs.finish_loading()
    (line,) = directory.report()
    assert (line["event"], line["logs"], line["cuts"]) == ("start", 1, 0)
    assert directory.written(POINTS) == ["t 0 0"]


# -- background ----------------------------------------------------------------------------------


def test_what_takes_long_runs_in_the_background(directory: Directory) -> None:
    jobs: list[object] = []
    directory.logs.run_in_background = jobs.append
    directory.create(T0)
    directory.logs.delete([T0])
    assert len(jobs) == 1
    assert len(directory.names()) == 1


def test_logs_whose_directories_vanish_go_offline(directory: Directory) -> None:
    failed: list[TopicPartition] = []
    directory.logs.on_failed = failed.append
    logs = directory.create(T0, T1, ("t", 2))
    logs[2].fail("its disk")
    assert directory.logs.vanished() == []
    for name in ("t-1", "t-2"):
        directory.files.remove_tree(DATA / name)
    assert directory.logs.vanished() == [T1]
    failed.clear()
    directory.logs.fail_vanished([T0, T1, ("gone", 0)])
    assert [log.failure for log in logs] == [None, "its directory has vanished", "its disk"]
    assert failed == [T1]


def test_logs_that_go_offline_are_counted(directory: Directory) -> None:
    (log,) = directory.create(T0)
    log.fail("its disk")
    text = b"".join(directory.metrics.render(1_000)).decode()
    assert "\nkafka_log_logmanager_offline_total 1" in text


class Behind:
    """A log of which so much would have to be checked."""

    def __init__(self, bytes_to_check: int, failure: str | None = None) -> None:
        self.bytes_to_check = bytes_to_check
        self.failure = failure


MIB = 1 << 20


@pytest.mark.parametrize(
    ("sizes", "at_most", "chosen"),
    [
        ([256 * MIB], None, []),
        ([256 * MIB + 1], None, [0]),
        ([100 * MIB, 200 * MIB], None, [1]),
        ([129 * MIB, 128 * MIB], None, [0]),
        ([128 * MIB + 1, 128 * MIB], None, [0]),
        ([128 * MIB + 1, 128 * MIB + 1], None, [0, 1]),
        ([90 * MIB, 89 * MIB, 88 * MIB], None, [0, 1]),
        ([88 * MIB, 90 * MIB, 89 * MIB], 1, [1]),
        ([64 * MIB] * 5, 2, [0, 1]),
        ([4 * MIB] * 65, None, list(range(33))),
        ([4 * MIB - 1] * 65, None, []),
        ([300 * MIB, 4 * MIB - 1], None, [0]),
        ([4 * MIB - 1] * 60 + [4 * MIB] * 5, None, list(range(60, 65))),
    ],
)
def test_the_logs_with_most_to_check_are_flushed_until_little_is_left(
    directory: Directory, sizes: list[int], at_most: int | None, chosen: list[int]
) -> None:
    logs = [Behind(size) for size in sizes]
    directory.logs._logs.update({("t", n): cast(Log, log) for n, log in enumerate(logs)})
    directory.logs._logs["offline", 0] = cast(Log, Behind(999 * MIB, "its disk"))
    found = cast(list[Behind], directory.logs.far_behind(at_most))
    assert found == [logs[number] for number in chosen]


def test_what_is_due_is_flushed(directory: Directory) -> None:
    late, never = directory.filled(T0, flush_ms="1000"), directory.filled(T1)
    directory.filled(("t", 2), 0, flush_ms="1000")
    assert directory.logs.flush_jobs() == []
    directory.clock.advance(1_001)
    (job,) = jobs = directory.logs.flush_jobs()
    assert job.log is late
    job.run()
    assert late.recovery_point == 0
    directory.logs.flushed(jobs)
    assert (late.recovery_point, never.recovery_point) == (3, 0)


def test_a_log_that_is_offline_is_not_flushed(directory: Directory) -> None:
    log = directory.filled(T0, 9, segment_bytes="200")
    assert len(directory.logs.flush_jobs()) == 1, "a segment was closed"
    log.fail("its disk")
    assert directory.logs.flush_jobs() == []


def test_a_log_that_waits_for_the_disk_is_synced_at_once(directory: Directory) -> None:
    log = directory.filled(T0, flush_messages="1")
    assert log.recovery_point == log.high_watermark == 3


def test_silent_producers_expire_in_all_logs(directory: Directory) -> None:
    for key in (T0, T1):
        (log,) = directory.create(key)
        directory.bench.append(log, "value", producer=(7, 0, 0))
    directory.clock.advance(1_000)
    assert directory.logs.expire_producers(2_000) == 0
    assert directory.logs.expire_producers(500) == 2
