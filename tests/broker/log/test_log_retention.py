"""Retention by time and size, and how deleted files go."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from log_bench import Bench
from storage_broker import DATA_DIR, Broker

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.files import OsFiles
from penstock_broker.log.trash import Trash
from penstock_broker.testing import MemFiles, SimClock


@pytest.fixture
def broker() -> Broker:
    return Broker(MemFiles(), log_segment_delete_delay_ms="1000")


def fill(broker: Broker, count: int = 20) -> None:
    for number in range(count):
        broker.append("t", 0, f"{number}")
        broker.clock.advance(10)


def test_segments_go_by_time(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"segment.bytes": "200", "retention.ms": "1000"})
    fill(broker)
    assert broker.logs.retention.enforce() == 0
    broker.clock.advance(900)
    gone = broker.logs.retention.enforce()
    partition = broker.replicas.partition("t", 0)
    assert gone > 1
    assert partition.log_start_offset > 0
    assert broker.values("t") == [str(n) for n in range(partition.log_start_offset, 20)]
    assert broker.logs.metrics.retention_segments.labels("time").value == gone

    broker.clock.advance(5000)
    broker.logs.retention.enforce()
    assert partition.log_start_offset == partition.log_end_offset == 20, "the active one, too"
    assert broker.append("t", 0, "next") == 20, "offsets continue"
    broker.kill()
    assert broker.values("t") == ["next"]


def test_segments_go_by_size(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"segment.bytes": "200", "retention.bytes": "500"})
    fill(broker)
    assert broker.logs.retention.enforce() > 0
    size = broker.replicas.partition("t", 0).size_bytes
    assert 500 <= size < 700, "as little as is still at least retention.bytes"
    assert broker.logs.retention.enforce() == 0


def test_a_live_change_of_the_setting_counts(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"segment.bytes": "200", "retention.ms": "-1"})
    fill(broker)
    broker.clock.advance(10**9)
    assert broker.logs.retention.enforce() == 0
    broker.replicas.set_configs("t", {"segment.bytes": "200", "retention.ms": "1000"})
    assert broker.logs.retention.enforce() > 0


def test_records_of_the_future_stay(broker: Broker) -> None:
    """Kafka's rule: the newest timestamp of a segment decides, of any producer."""
    broker.replicas.create_topic("t", 1, {"retention.ms": "1000"})
    broker.append("t", 0, "x")
    broker.clock.jump(-3_000_000)
    assert broker.logs.retention.enforce() == 0


def test_compacted_topics_are_not_swept_but_both_are(broker: Broker) -> None:
    configs = {"segment.bytes": "200", "retention.ms": "1000"}
    broker.replicas.create_topic("t", 1, configs | {"cleanup.policy": "compact"})
    fill(broker)
    broker.clock.advance(10**7)
    assert broker.logs.retention.enforce() == 0
    broker.replicas.set_configs("t", configs | {"cleanup.policy": "compact,delete"})
    assert broker.logs.retention.enforce() > 0


def test_files_are_renamed_first_and_removed_after_the_delay(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"segment.bytes": "200", "file.delete.delay.ms": "500"})
    fill(broker)
    reader = broker.replicas.partition("t", 0).fetch(0, 150)
    expected = reader.read()
    broker.replicas.delete_records({("t", 0): 15})
    directory = DATA_DIR / "t-0"
    deleted = [n for n in broker.files.names(directory) if n.endswith(".deleted")]
    assert "00000000000000000000.log.deleted" in deleted
    broker.clock.advance(499)
    assert broker.logs.empty_trash() == 0
    broker.clock.advance(1)
    assert broker.logs.empty_trash() == 1
    assert not [n for n in broker.files.names(directory) if n.endswith(".deleted")]
    assert reader.read() == expected, "who reads it keeps it"


def test_what_a_kill_leaves_is_removed_at_the_start(broker: Broker) -> None:
    """Also when the rename itself failed: the start of the log is on the disk."""
    broker.replicas.create_topic("t", 1, {"segment.bytes": "200"})
    fill(broker)
    broker.logs.run_in_background = lambda job: None  # killed before it ran
    broker.replicas.delete_records({("t", 0): 15})
    broker.kill()
    names = broker.files.names(DATA_DIR / "t-0")
    assert "00000000000000000000.log" not in names
    broker.clock.advance(60_000)
    broker.logs.empty_trash()
    broker.kill()
    assert not [n for n in broker.files.names(DATA_DIR / "t-0") if n.endswith(".deleted")]
    assert broker.values("t") == [str(n) for n in range(15, 20)]


def test_files_without_a_delay_are_removed_though_threads_are_in_no_hurry() -> None:
    """The removal must not come before the rename, however many threads there are."""
    clock = SimClock()
    files = MemFiles(clock)
    files.make_directory(Path("/d"))
    for number in range(3):
        files.put(Path(f"/d/{number}.log"), b"x")
    trash = Trash(files, clock)
    jobs: list[Callable[[], None]] = []
    trash.run_in_background = jobs.append
    for number in range(3):
        trash.put([Path(f"/d/{number}.log")], 0)
    for job in reversed(jobs):
        job()
    assert files.names(Path("/d")) == []


def test_a_rename_that_comes_late_touches_no_topic_of_the_same_name(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"segment.bytes": "200"})
    fill(broker)
    jobs: list[Callable[[], None]] = []
    broker.logs.run_in_background = jobs.append
    broker.replicas.delete_records({("t", 0): 15})
    broker.replicas.delete_topic("t")
    broker.replicas.create_topic("t", 1, {"segment.bytes": "200"})
    fill(broker)
    before = broker.files.names(DATA_DIR / "t-0")
    broker.replicas.delete_records({("t", 0): 1})  # within a segment: nothing goes
    for job in jobs:
        job()
    assert broker.files.names(DATA_DIR / "t-0") == before
    broker.kill()
    assert broker.values("t") == [str(n) for n in range(1, 20)]


def test_a_deleted_topic_gives_its_disk_back_while_its_log_is_held(tmp_path: Path) -> None:
    """A connection may remember it for long after its last request."""
    files = OsFiles()
    broker = Broker(files, tmp_path / "data")
    before = files.open_files
    broker.replicas.create_topic("t", 1, {"segment.bytes": "200", "file.delete.delay.ms": "0"})
    fill(broker)
    log = broker.replicas.partition("t", 0).log
    assert broker.values("t")
    assert files.open_files > before
    broker.replicas.delete_topic("t")
    assert files.open_files == before
    with pytest.raises(KafkaError) as error:
        log.read(0, 100)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_file_that_cannot_be_removed_is_said(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock()
    files = MemFiles(clock)
    files.make_directory(Path("/d"))
    files.put(Path("/d/1.log"), b"x")
    files.fail("remove", errno.EIO)
    trash = Trash(files, clock)
    trash.put([Path("/d/1.log")], 0)
    assert "remains until the next start" in caplog.text
    assert files.exists(Path("/d/1.log.deleted"))


def test_deleting_a_topic_with_many_segments_does_little_at_once(broker: Broker) -> None:
    """One rename a partition on the event loop; the rest is for a thread."""
    broker.replicas.create_topic("t", 1, {"segment.bytes": "100"})
    fill(broker, 300)
    jobs: list[object] = []
    broker.logs.run_in_background = jobs.append
    calls: list[str] = []
    assert isinstance(broker.files, MemFiles)
    check = broker.files.check
    broker.files.check = lambda operation, path: (calls.append(operation), check(operation, path))[
        1
    ]  # type: ignore[method-assign, assignment]
    broker.replicas.delete_topic("t")
    assert calls.count("rename") + calls.count("remove") <= 4, "the directory, and metadata"
    broker.clock.advance(60_000)
    broker.logs.empty_trash()
    assert len(jobs) == 1


def test_segments_roll_by_the_records_time(bench: Bench) -> None:
    """As Kafka: history that is loaded in an hour is cut into the segments that it spans."""
    bench.overrides = {"segment.ms": "1000"}
    log = bench.open()
    for time in (50_000, 50_500, 51_000, 51_001, 60_000, 60_100):
        bench.append(log, "x", timestamps=[time])
    assert [segment.base_offset for segment in log.segments] == [0, 3, 4]
    again = bench.reopen_after_kill(log)
    bench.append(again, "y", timestamps=[61_001])
    assert [segment.base_offset for segment in again.segments] == [0, 3, 4, 6]
