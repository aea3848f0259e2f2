"""What a log asks of its owner: to sync it, to write its start down, to remove its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from log_bench import Bench, read_all, values_of

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.log import Log
from penstock_broker.log.swap import CleanerCheckpoint, swap_path, write_cleaner_checkpoint


class Owner:
    """Writes down what it is asked to do."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def start_advanced(self) -> None:
        self.asked.append("write the start down")

    def start_moved(self, log: Log) -> None:
        self.asked.append(f"begins at {log.log_start_offset}")

    def flush_due(self, log: Log) -> None:
        self.asked.append(f"flush to {log.log_end_offset}")

    def failed(self, log: Log) -> None:
        self.asked.append(f"failed: {log.failure}")

    def discard(self, paths: Sequence[Path], delay_ms: int) -> None:
        logs = [path.name for path in paths if ".log" in path.suffixes]
        self.asked.append(f"remove {len(logs)} after {delay_ms}")


def log_of(bench: Bench, count: int) -> tuple[Log, Owner]:
    """Records in a segment each."""
    bench.overrides |= {"segment.bytes": "100", "file.delete.delay.ms": "70"}
    log, owner = bench.open(), Owner()
    for number in range(count):
        bench.append(log, f"value {number}")
    assert [segment.base_offset for segment in log.segments] == list(range(count))
    log.owner = owner
    return log, owner


def test_the_start_is_written_down_before_files_go(bench: Bench) -> None:
    log, owner = log_of(bench, 4)
    assert log.delete_records(2) == 2
    assert owner.asked == ["begins at 2", "write the start down", "remove 2 after 70"]
    assert [segment.base_offset for segment in log.segments] == [2, 3]
    assert log.recovery_point == 2


def test_a_start_that_is_there_already_asks_for_nothing(bench: Bench) -> None:
    log, owner = log_of(bench, 2)
    log.delete_records(1)
    owner.asked.clear()
    for offset in (0, 1):
        assert log.advance_start(offset) is False
        assert log.delete_records(offset) == 1
    assert log.delete_old_segments() == 0
    assert owner.asked == []


def test_how_many_segments_go(bench: Bench) -> None:
    log, owner = log_of(bench, 5)
    assert log.advance_start(3)
    assert log.delete_old_segments() == 3
    assert owner.asked == ["begins at 3", "remove 3 after 70"]


@pytest.mark.parametrize("is_rolled", [False, True])
def test_a_log_that_is_emptied_continues_in_one_empty_segment(
    bench: Bench, is_rolled: bool
) -> None:
    log = bench.open()
    bench.append(log, "a", "b")
    if is_rolled:
        log.roll()
    assert log.delete_records(2) == 2
    assert [(segment.base_offset, segment.size) for segment in log.segments] == [(2, 0)]
    assert bench.append(log, "c").base_offset == 2
    assert values_of(read_all(bench.reopen_after_kill(log))) == ["c"]


def replacing(bench: Bench, log: Log) -> bool:
    """Replace the first segment by a compacted one."""
    old = log.segments[:1]
    swap = swap_path(bench.directory, 0, 1)
    bench.files.put(swap, bench.files.get(old[0].path))
    return log.replace_segments(old, swap, bench.directory / "x.cleaned")


def test_the_files_of_a_replaced_segment_are_removed_after_the_delay(bench: Bench) -> None:
    log, owner = log_of(bench, 3)
    first = log.segments[0]
    assert replacing(bench, log) is True
    assert owner.asked == ["remove 1 after 70"]
    assert log.segments[0] is not first
    assert values_of(read_all(log)) == [f"value {number}" for number in range(3)]


def test_segments_that_are_gone_are_not_replaced(bench: Bench) -> None:
    log, owner = log_of(bench, 3)
    old = log.segments[:1]
    log.delete_records(1)
    owner.asked.clear()
    assert log.replace_segments(old, bench.directory, bench.directory) is False
    assert (owner.asked, log.failure) == ([], None)


def test_nothing_is_replaced_in_a_log_that_is_offline(bench: Bench) -> None:
    log, owner = log_of(bench, 2)
    log.fail("a test says so")
    assert replacing(bench, log) is False
    assert owner.asked == ["failed: a test says so"]


def test_a_segment_that_cannot_be_put_in_place_takes_the_log_offline(bench: Bench) -> None:
    log, _ = log_of(bench, 2)
    bench.files.fail("rename")
    with pytest.raises(KafkaError, match="cannot put a compacted segment in place: "):
        replacing(bench, log)


def test_a_log_knows_what_compaction_has_done_to_it(bench: Bench) -> None:
    assert bench.open().cleaned == CleanerCheckpoint(0, 0)
    write_cleaner_checkpoint(bench.files, bench.directory, CleanerCheckpoint(3, 5))
    assert bench.open().cleaned == CleanerCheckpoint(3, 5)


def test_no_start_is_above_the_end(bench: Bench) -> None:
    log, owner = log_of(bench, 2)
    with pytest.raises(KafkaError) as error:
        log.delete_records(3)
    assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert owner.asked == []


def test_it_fails_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    log, owner = log_of(bench, 1)
    log.fail("first")
    log.fail("second")
    assert owner.asked == ["failed: first"]
    assert [record.message for record in caplog.records] == ["/data/t-0 is offline: first"]


@pytest.mark.parametrize("at_once", [False, True])
def test_the_owner_syncs_unless_the_log_does_at_once(bench: Bench, at_once: bool) -> None:
    bench.overrides = {"flush.messages": "2"}
    log, owner = bench.open(), Owner()
    log.owner, log.flushes_at_once = owner, at_once
    for number in range(4):
        bench.append(log, f"{number}")
    due = ["flush to 2", "flush to 3", "flush to 4"]  # until it is done
    assert owner.asked == ([] if at_once else due)
    assert log.recovery_point == (4 if at_once else 0)


def test_each_file_is_synced_once(bench: Bench) -> None:
    """A flush syncs names and epochs only after they have changed."""
    log = bench.open()
    calls = []
    for epoch in (0, 0, 1, 1):
        bench.append(log, "x", epoch=epoch)
        before = bench.files.syncs
        log.flush()
        assert log.flush_job() is None, "all is on the disk"
        calls.append(bench.files.syncs - before)
    assert calls[1] == calls[3] == 1
    assert calls[0] == calls[2] == 2, "the log and its epochs"


@pytest.mark.parametrize(("is_killed", "syncs"), [(False, 1), (True, 2)])
def test_epochs_are_synced_again_after_a_kill(bench: Bench, is_killed: bool, syncs: int) -> None:
    """The process that was killed may not have come to it."""
    log = bench.open()
    bench.append(log, "a")
    log = bench.reopen_after_kill(log) if is_killed else bench.reopen_cleanly(log)
    bench.append(log, "b")
    before = bench.files.syncs
    log.flush()
    assert bench.files.syncs - before == syncs


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_log_without_epochs_is_synced(bench: Bench, is_killed: bool) -> None:
    """Its records were written before there were any."""
    log = bench.open()
    bench.append(log, "a", epoch=-1)
    if is_killed:
        log = bench.reopen_after_kill(log)
    log.flush()
    assert (log.recovery_point, log.epochs.entries()) == (1, [])


def test_the_time_to_the_next_sync_begins_with_the_next_record(bench: Bench) -> None:
    bench.overrides = {"flush.ms": "1000"}
    log = bench.open()
    notified = []
    log.on_flushed = lambda: notified.append(log.recovery_point)
    bench.append(log, "a")
    bench.clock.advance(900)
    log.flush()
    assert notified == [1]
    bench.clock.advance(900)
    assert not log.flush_is_due(bench.clock.now_ms())
    bench.append(log, "b")
    bench.clock.advance(999)
    assert not log.flush_is_due(bench.clock.now_ms())
    bench.clock.advance(1)
    assert log.flush_is_due(bench.clock.now_ms())


def test_a_log_that_is_closed_is_on_the_disk(bench: Bench, seed: int) -> None:
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    log.close()
    assert log.recovery_point == 3
    bench.files = bench.files.power_cut(Random(seed))
    log = bench.open(recovery_point=3, clean=True)
    assert values_of(read_all(log)) == ["a", "b", "c"]
