"""DeleteRecords: the start of the log moves, and files go."""

from __future__ import annotations

import errno

import pytest
from log_bench import Bench, read_all, values_of

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.owner import NoOwner


def test_the_start_moves_and_older_reads_are_out_of_range(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", "b", "c", "d")
    assert log.delete_records(2) == 2
    assert log.log_start_offset == 2
    assert values_of(read_all(log)) == ["c", "d"]
    with pytest.raises(KafkaError) as error:
        log.read(1, 100)
    assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_whole_segments_below_are_deleted_from_the_disk(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "200"}
    log = bench.open()
    for number in range(10):
        bench.append(log, f"value {number}")
    before = {name for name in bench.files.names(bench.directory) if name.endswith(".log")}
    bases = [segment.base_offset for segment in log.segments]
    log.delete_records(bases[2] + 1)
    after = {name for name in bench.files.names(bench.directory) if name.endswith(".log")}
    assert len(before - after) == 2
    assert [segment.base_offset for segment in log.segments] == bases[2:]
    left = bench.files.names(bench.directory)
    assert not [n for n in left if "index" in n and int(n[:20]) < bases[2]]
    assert values_of(read_all(log))[0] == f"value {bases[2] + 1}"


def test_deleting_everything_leaves_an_empty_log_that_continues(bench: Bench) -> None:
    """Pitfall 43: the start may be the end; a fetch there is empty and no error."""
    log = bench.open()
    bench.append(log, "a", "b")
    assert log.delete_records(2) == 2
    assert log.size_bytes == 0
    assert log.read(2, 100).size == 0
    assert not log.flush_is_due(bench.clock.now_ms()), "there is nothing to sync"
    assert bench.append(log, "c").base_offset == 2
    assert values_of(read_all(log)) == ["c"]


def test_the_start_never_goes_back(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", "b", "c")
    log.delete_records(2)
    assert log.delete_records(1) == 2
    with pytest.raises(KafkaError) as error:
        log.delete_records(4)
    assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert str(error.value) == "Offset 4 is above the end, 3."
    assert log.log_start_offset == 2


def test_the_start_is_written_down_before_files_go(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    seen: list[tuple[int, int]] = []

    class Owner(NoOwner):
        def start_advanced(self) -> None:
            seen.append((log.log_start_offset, len(log.segments)))

    log.owner = Owner(bench.files)
    log.delete_records(2)
    assert seen == [(2, 3)]
    assert len(log.segments) == 1


def test_segments_that_a_crash_left_are_behind_the_start(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    assert log.advance_start(2)
    bench.files = bench.files.kill()
    log = bench.open(log_start_offset=2)
    assert log.log_start_offset == 2
    assert values_of(read_all(log)) == ["c"]
    log.delete_old_segments()
    assert len(log.segments) == 1


def test_sequences_are_known_after_their_batches_are_deleted(bench: Bench) -> None:
    """Pitfall 25: otherwise the next batch of a live producer would be out of order."""
    log = bench.open()
    log.append([bench.batch(["a"], producer=(1, 0, 0))], 0)
    log.delete_records(1)
    for reopen in (bench.reopen_cleanly, bench.reopen_after_kill):
        log = reopen(log)
        assert log.append([bench.batch(["a"], producer=(1, 0, 0))], 0).duplicate


def test_epochs_of_deleted_offsets_go(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    for epoch in range(4):
        bench.append(log, "x", epoch=epoch)
    log.delete_records(2)
    assert log.epochs.entries() == [(2, 2), (3, 3)]
    assert log.epoch_of(2) == 2
    bench.append(log, "x", epoch=3)
    log.delete_records(4)
    assert log.epochs.entries() == [(3, 4)]


def test_files_that_cannot_be_deleted_take_the_log_offline(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    bench.files.fail("remove", errno.EIO)
    with pytest.raises(KafkaError) as error:
        log.delete_records(2)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None
