"""What the manager of all logs deletes, writes and syncs, asked directly: one rule a test."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest
from manager_directory import DATA, OTHER_ID, POINTS, STARTS, T0, T1, Directory

from penstock_broker.errors import KafkaError
from penstock_broker.log.keys import TopicPartition
from penstock_broker.log.log import Log

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
