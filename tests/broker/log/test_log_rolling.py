"""A segment is closed and the next one begun, on a disk that fills up or breaks at any step."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from log_bench import Bench, read_all, values_of

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.log import Log
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.testing import MemFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch

PRODUCER = 7
BIG = "b" * 300
CHANGES = ("open", "write", "truncate", "rename", "remove", "sync", "sync_directory")


class FailingStep:
    """Lets one change to a disk fail: the one with this number, from 1."""

    def __init__(self, files: MemFiles, number: int, code: int) -> None:
        self.was_met = False
        self._number = number
        self._code = code
        self._check = files.check
        self._files = files
        files.check = self.check  # type: ignore[method-assign]

    def check(self, operation: str, path: Path) -> None:
        self._check(operation, path)
        self._number -= operation in CHANGES
        if not self._number and not self.was_met:
            self.was_met = True
            raise OSError(self._code, os.strerror(self._code), str(path))

    def heal(self) -> None:
        self._files.check = self._check  # type: ignore[method-assign]


def begin(bench: Bench) -> Log:
    """A log whose active segment has entries in all of its indexes, and no space for BIG."""
    bench.overrides = {"segment.bytes": "600", "index.interval.bytes": "1"}
    log = bench.open()
    batch = build_batch(
        [NewRecord(None, b"aborted", bench.clock.now_ms())],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.append([RecordBatch(memoryview(batch))], 0, is_verified=True)
    marker = Marker(is_commit=False, coordinator_epoch=0)
    data = build_marker(PRODUCER, 0, marker, bench.clock.now_ms())
    log.append_for_coordinator(RecordBatch(memoryview(data)), 0, marker)
    bench.append(log, "one", timestamps=[bench.clock.now_ms() + 5])
    bench.append(log, "two")
    return log


def assert_holds(log: Log, values: list[str]) -> None:
    """Every offset is read as it was acknowledged, from wherever a consumer begins."""
    found = read_all(log)
    everything = ["aborted", "abort", *values]
    assert [record.offset for record in found] == list(range(len(everything)))
    assert values_of(found[2:]) == values
    for offset in range(len(everything)):
        assert read_all(log, offset) == found[offset:]
    assert len(log.aborted_transactions(0, log.log_end_offset)) == 1
    assert log.failure is None


def assert_survives(bench: Bench, log: Log, values: list[str], *, clean: bool) -> None:
    log = bench.reopen_cleanly(log) if clean else bench.reopen_after_kill(log)
    assert log.recovered.cut is None
    assert log.recovered.clean is clean
    assert_holds(log, values)
    result = bench.append(log, "after")
    assert result.base_offset == len(values) + 2
    assert_holds(log, [*values, "after"])


def refused(bench: Bench, log: Log) -> bool:
    try:
        bench.append(log, BIG)
    except KafkaError as error:
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        return True
    return False


def refused_rolls(code: int) -> Iterator[tuple[Bench, Log]]:
    """A log for each step of a roll, after an append whose roll failed at that step."""
    for number in range(1, 100):
        bench = Bench()
        log = begin(bench)
        step = FailingStep(bench.files, number, code)
        was_refused = refused(bench, log)
        step.heal()
        if not was_refused:
            assert number > 8, "the steps of a roll were met"
            return
        yield bench, log
    raise AssertionError("a roll has no end")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("small_first", [True, False])
def test_a_disk_that_is_full_at_any_step_of_a_roll(clean: bool, small_first: bool) -> None:
    """Refused, and nothing of the attempt left: the next batches continue where the log ended."""
    for bench, log in refused_rolls(errno.ENOSPC):
        values = ["one", "two"]
        if small_first:  # it fits into a segment that was not closed
            bench.append(log, "small")
            values.append("small")
        assert_holds(log, values)
        names = {name for name in bench.files.names(bench.directory) if name.endswith(".log")}
        assert names == {segment.path.name for segment in log.segments}
        bench.append(log, BIG)
        bench.append(log, BIG)
        assert len(log.segments) > 1
        assert_survives(bench, log, [*values, BIG, BIG], clean=clean)


@pytest.mark.parametrize("clean", [True, False])
def test_a_process_that_ends_while_a_roll_is_refused(clean: bool) -> None:
    for bench, log in refused_rolls(errno.ENOSPC):
        assert_survives(bench, log, ["one", "two"], clean=clean)


@pytest.mark.parametrize("clean", [True, False])
def test_a_disk_with_space_for_a_part_of_a_roll(clean: bool) -> None:
    for space in range(0, 400, 3):
        bench = Bench()
        log = begin(bench)
        total, free = bench.files.space(bench.directory)
        bench.files.capacity_bytes = total - free + space
        assert refused(bench, log)
        assert_holds(log, ["one", "two"])
        bench.files.capacity_bytes = None
        bench.append(log, "small")
        bench.append(log, BIG)
        assert_survives(bench, log, ["one", "two", "small", BIG], clean=clean)


def test_a_broken_disk_at_any_step_of_a_roll_takes_the_log_offline() -> None:
    for bench, log in refused_rolls(errno.EIO):
        assert (log.failure or "").startswith(("cannot begin a segment", "cannot append"))
        assert_survives(bench, log, ["one", "two"], clean=False)


def test_records_deleted_up_to_the_end_while_the_disk_is_full() -> None:
    """DeleteRecords begins a segment at the end: where that fails, nothing is deleted."""
    for number in range(1, 100):
        bench = Bench()
        log = begin(bench)
        step = FailingStep(bench.files, number, errno.ENOSPC)
        try:
            log.delete_records(log.log_end_offset)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        step.heal()
        if log.log_start_offset or log.failure:
            break
        assert_survives(bench, log, ["one", "two"], clean=number % 2 == 0)
    assert number > 8, "the steps of a roll were met"


def test_an_index_that_a_full_disk_cannot_take_again_is_used_from_memory() -> None:
    """A read makes a damaged index again; that it cannot be written is no reason to refuse."""
    bench = Bench()
    log = begin(bench)
    bench.append(log, BIG)
    for suffix in (".index", ".timeindex"):
        bench.files.put(log.segments[0].path.with_suffix(suffix), b"garbage")
    total, free = bench.files.space(bench.directory)
    bench.files.capacity_bytes = total - free
    assert_holds(log, ["one", "two", BIG])
    found = log.offset_for_timestamp(bench.clock.now_ms() + 5)
    assert found is not None and found.offset == 2
    bench.files.capacity_bytes = None
    assert_survives(bench, log, ["one", "two", BIG], clean=True)
