"""A disk that is full or broken: every outcome is defined, and the process lives."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from log_bench import Bench, read_all, values_of

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.files import OsFiles, replace_file
from penstock_broker.log.log import Log
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.wire.records import RecordBatch


def storage_error(bench: Bench, log: Log, *values: str) -> str:
    with pytest.raises(KafkaError) as error:
        bench.append(log, *values)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return str(error.value)


def test_a_full_disk_refuses_and_takes_again_when_there_is_space(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    size = log.size_bytes
    bench.files.capacity_bytes = size + 200
    assert "No space left" in storage_error(bench, log, "b" * 500)
    assert bench.files.size(log.segments[-1].path) == size, "the part that was written is cut off"
    assert values_of(read_all(log)) == ["a"]
    bench.files.capacity_bytes = None
    assert bench.append(log, "c").base_offset == 1
    log = bench.reopen_after_kill(log)
    assert log.recovered.cut is None
    assert values_of(read_all(log)) == ["a", "c"]


def test_a_retry_after_a_full_disk_is_no_repetition(bench: Bench) -> None:
    """What was not stored is not remembered either."""
    log = bench.open()
    bench.append(log, "x")
    bench.files.fail("write", errno.ENOSPC, partial_bytes=30)
    with pytest.raises(KafkaError):
        log.append([bench.batch(["a"], producer=(1, 0, 0))], 0)
    result = log.append([bench.batch(["a"], producer=(1, 0, 0))], 0)
    assert (result.duplicate, result.base_offset) == (False, 1)


def test_an_io_error_takes_the_log_offline_with_its_reason(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    bench.files.fail("write", errno.EIO, path_part=".log", partial_bytes=10)
    assert "Input/output error" in storage_error(bench, log, "b")
    bench.files.heal()
    assert "is offline" in storage_error(bench, log, "c")
    with pytest.raises(KafkaError) as error:
        log.read(0, 100)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.close()
    log = bench.reopen_after_kill(log)
    assert values_of(read_all(log)) == ["a"]


def test_a_failed_sync_is_not_tried_again(bench: Bench) -> None:
    """The kernel drops the dirty mark with the error: a second sync would lie."""
    log = bench.open()
    bench.append(log, "a")
    bench.files.fail("sync", errno.EIO)
    with pytest.raises(KafkaError):
        log.flush()
    assert log.recovery_point == 0
    assert "cannot sync" in storage_error(bench, log, "b")


def test_a_read_error_takes_the_log_offline(bench: Bench) -> None:
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    bench.files.fail("read", errno.EIO, path_part=".log")
    with pytest.raises(KafkaError) as error:
        log.read(1, 100)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_damage_in_the_middle_of_a_closed_segment_is_met_with_an_error(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "300", "index.interval.bytes": "100000"}
    log = bench.open()
    for number in range(9):
        bench.append(log, f"value {number}")
    path = log.segments[0].path
    data = bytearray(bench.files.get(path))
    data[8:12] = b"\0\0\0\0"  # the length of the first batch
    bench.files.put(path, bytes(data))
    with pytest.raises(KafkaError) as error:
        log.read(1, 100)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "length" in (log.failure or "")


def test_a_segment_that_cannot_be_begun_refuses_the_append(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "150"}
    log = bench.open()
    bench.append(log, "a")
    bench.files.capacity_bytes = sum(
        bench.files.size(bench.directory / name) for name in bench.files.names(bench.directory)
    )
    storage_error(bench, log, "b" * 40)
    assert values_of(read_all(log)) == ["a"]
    bench.files.capacity_bytes = None
    assert bench.append(log, "b" * 40).base_offset == 1
    assert values_of(read_all(bench.reopen_after_kill(log))) == ["a", "b" * 40]


def test_reading_what_was_aborted_may_fail(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    for number in range(3):
        bench.append(log, f"value {number}")
    log = bench.reopen_cleanly(log)
    bench.files.put(log.segments[0].aborted.path, b"")
    bench.files.fail("read", errno.EIO, path_part=".txnindex")
    bench.files.fail("open", errno.EIO, path_part=".txnindex")
    assert_goes_offline(log, lambda: log.aborted_transactions(0, 3), "cannot read what was aborted")


def assert_goes_offline(log: Log, use: Callable[[], object], reason: str) -> None:
    """It says so, and each use that follows does."""
    for _ in range(2):
        with pytest.raises(KafkaError, match="t-0 is offline") as error:
            use()
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.failure or "").startswith(reason)
    for other in (
        lambda: log.append_for_coordinator(marker_of(9), 0, Marker(True, 0)),
        lambda: log.advance_start(log.log_end_offset),
        lambda: log.read(log.log_start_offset, 100),
        lambda: log.offset_for_timestamp(0),
        log.max_timestamp,
    ):
        with pytest.raises(KafkaError, match="is offline"):
            other()
    assert log.flush_job() is None
    log.close()


def test_an_epoch_that_cannot_be_written_down(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    bench.files.fail("write", errno.EIO, path_part="leader-epoch")
    assert_goes_offline(
        log, lambda: bench.append(log, "b", epoch=1), "cannot write its leader epochs"
    )


def test_indexes_that_cannot_be_written_at_the_end(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    bench.files.fail("write", errno.EIO, path_part="index")
    with pytest.raises(KafkaError) as error:
        log.close()
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.failure or "").startswith("cannot close")


def test_a_lookup_that_meets_a_broken_disk(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    bench.files.fail("read", errno.EIO, path_part=".log")
    assert_goes_offline(log, lambda: log.offset_for_timestamp(0), "cannot look up a time")


def test_segments_that_cannot_be_deleted(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    for number in range(3):
        bench.append(log, f"value {number}")
    bench.files.fail("remove", errno.EIO)
    with pytest.raises(KafkaError, match="is offline"):
        log.delete_records(2)
    assert (log.failure or "").startswith("cannot delete segments")


def test_a_marker_that_cannot_be_written(bench: Bench) -> None:
    """With a full disk it may be tried again."""
    log = bench.open()
    bench.append(log, "a")
    bench.files.fail("write", errno.ENOSPC, path_part=".log")
    with pytest.raises(KafkaError) as error:
        log.append_for_coordinator(marker_of(9), 0, Marker(True, 0))
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.append_for_coordinator(marker_of(9), 0, Marker(True, 0)).base_offset == 1


def marker_of(producer_id: int) -> RecordBatch:
    return RecordBatch(memoryview(build_marker(producer_id, 0, Marker(True, 0), 5)))


def test_flush_messages_syncs_before_the_append_returns(bench: Bench) -> None:
    bench.overrides = {"flush.messages": "3"}
    log = bench.open()
    bench.append(log, "a", "b")
    assert log.recovery_point == 0
    bench.append(log, "c")
    assert log.recovery_point == 3
    bench.append(log, "d", "e")
    assert log.recovery_point == 3
    bench.append(log, "f")
    assert log.recovery_point == 6
    bench.files = bench.files.power_cut(Random(1))
    log = bench.open(recovery_point=6)
    assert values_of(read_all(log)) == list("abcdef")


def test_flush_ms_makes_a_sync_due(bench: Bench) -> None:
    bench.overrides = {"flush.ms": "1000"}
    log = bench.open()
    assert not log.flush_is_due(bench.clock.now_ms())
    bench.append(log, "a")
    bench.clock.advance(999)
    assert not log.flush_is_due(bench.clock.now_ms())
    bench.clock.advance(1)
    assert log.flush_is_due(bench.clock.now_ms())
    job = log.flush_job()
    assert job is not None
    bench.append(log, "b")  # while another thread syncs
    job.run()
    log.flushed(job)
    assert log.recovery_point == 1
    bench.clock.advance(1000)
    assert log.flush_is_due(bench.clock.now_ms()), "the second is not on the disk yet"


def test_a_closed_segment_is_due_to_be_synced(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    bench.append(log, "a")
    assert not log.flush_is_due(bench.clock.now_ms())
    bench.append(log, "b")
    assert log.flush_is_due(bench.clock.now_ms())
    log.flush()
    assert not log.flush_is_due(bench.clock.now_ms())


def test_nothing_is_synced_unless_asked(bench: Bench) -> None:
    """As in Kafka, an append does not wait for the disk."""
    log = bench.open()
    syncs = bench.files.syncs
    for _ in range(20):
        bench.append(log, "x")
    assert bench.files.syncs == syncs


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    """Segments hold what clients sent, and the metadata the verifiers of their passwords."""
    files = OsFiles()
    replace_file(files, tmp_path / "metadata.json", b"{}")
    files.lock(tmp_path / ".lock").close()
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"metadata.json": 0o600, ".lock": 0o600}
