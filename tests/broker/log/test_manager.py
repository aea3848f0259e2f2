"""The manager of all logs of a data directory, asked directly: opening, closing, loading."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from random import Random

import pytest
from manager_directory import CLEAN, DATA, OTHER_ID, POINTS, STARTS, T0, T1, TOPIC_ID, Directory

from penstock_broker.config import LogConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.data_directory import DataDirectoryTakenError, read_topic_id
from penstock_broker.log.files import OsFiles
from penstock_broker.log.keys import TopicPartition
from penstock_broker.log.log import Log
from penstock_broker.log.manager import LogManager
from penstock_broker.metrics import Metrics
from penstock_broker.testing import SimClock

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
