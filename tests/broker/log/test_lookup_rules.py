"""Lookups by time where it gets difficult: cold or wrong indexes, unreadable batches."""

from __future__ import annotations

from functools import partial

import pytest
from log_bench import Bench
from segment_bench import BASE, new_segment

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.index_file import IndexFile
from penstock_broker.log.log import Log
from penstock_broker.log.lookup import Lookup, TimestampOffset, first_at_or_after, run
from penstock_broker.wire.compression import Codec


def closed_log(bench: Bench, *segments: list[int]) -> Log:
    """A log with a record of each of these times in a batch of its own, by segment."""
    log = bench.open()
    for number, times in enumerate(segments):
        if number:
            log.roll()
        for time in times:
            bench.append(log, "value", timestamps=[time])
    return log


def drive(bench: Bench, lookup: Lookup, *, prefetches: bool) -> tuple[object, int, bool]:
    """What it finds, after how many prefetches, and whether the event loop has read the disk."""
    waits: list[str] = []
    bench.files.is_cold = True
    bench.files.on_wait = lambda operation, path: waits.append(operation)
    count, has_read = 0, False
    while True:
        waits.clear()
        try:
            step = next(lookup)
        except StopIteration as end:
            return end.value, count, has_read or "read" in waits
        has_read |= "read" in waits
        if isinstance(step, partial):
            count += 1
            if not prefetches:
                continue
        step()


@pytest.mark.parametrize("prefetches", [True, False], ids=["", "memory is too short"])
def test_cold_indexes_are_read_in_another_thread_first(bench: Bench, prefetches: bool) -> None:
    log = bench.reopen_cleanly(closed_log(bench, [1, 2], [3, 4], [5, 6]))
    found, count, has_read = drive(bench, log.looking_for_timestamp(4), prefetches=prefetches)
    assert found == TimestampOffset(3, 4, 0)
    assert count > 0
    assert has_read is not prefetches


@pytest.mark.parametrize(("segments", "deleted", "expected"), [
    (([5], [9], [1]), 0, (1, 9)),
    (([3, 5], [9]), 1, (2, 9)),
    (([9, 5], [5]), 1, (1, 5)),
    (([9, 3], [5]), 1, (2, 5)),
    (([9, 5], [3]), 1, (1, 5)),
])  # fmt: skip
def test_the_latest_of_several_segments(
    bench: Bench, segments: tuple[list[int], ...], deleted: int, expected: tuple[int, int]
) -> None:
    log = closed_log(bench, *segments)
    log.delete_records(deleted)
    assert log.max_timestamp() == (*expected, 0)


def test_the_latest_in_a_batch_that_holds_the_start(bench: Bench) -> None:
    """A record below had a later time than all of it."""
    log = bench.open()
    bench.append(log, "a", timestamps=[900])
    bench.append(log, "b", "c", "d", timestamps=[800, 300, 500])
    log.delete_records(2)
    assert log.max_timestamp() == (3, 500, 0)


def unreadable(bench: Bench, log: Log, count: int, time: int, epoch: int = 0) -> None:
    """Append a batch whose compressed part is garbage."""
    batch = bench.batch(["x"] * count, timestamps=[time] * count)
    log.append([batch.with_payload(Codec.LZ4, b"\xfe" * 40)], epoch)


def test_a_batch_that_cannot_be_read_answers_with_its_beginning(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", timestamps=[100])
    unreadable(bench, log, 3, 500, epoch=2)
    bench.append(log, "b", timestamps=[700], epoch=2)
    for time, expected in ((100, (0, 100, 0)), (101, (1, 500, 2)), (500, (1, 500, 2)),
                           (501, (4, 700, 2))):  # fmt: skip
        assert log.offset_for_timestamp(time) == expected
    log.delete_records(2)
    assert log.offset_for_timestamp(500) == (2, 500, 2), "not below the start"


def test_the_latest_in_a_batch_that_cannot_be_read(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", timestamps=[900])
    unreadable(bench, log, 3, 500)
    bench.append(log, "b", timestamps=[400])
    log.delete_records(2)
    assert log.max_timestamp() == (2, 500, 0)


def test_the_latest_is_in_a_batch_that_cannot_be_read_alone(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", timestamps=[900])
    unreadable(bench, log, 3, 500)
    log.delete_records(2)
    assert log.max_timestamp() == (2, 500, 0)


def test_a_batch_below_the_start_that_cannot_be_read_answers_nothing(bench: Bench) -> None:
    log = bench.open()
    unreadable(bench, log, 3, 500)
    bench.append(log, "a", timestamps=[400])
    log.delete_records(3)
    assert log.offset_for_timestamp(450) is None
    assert log.offset_for_timestamp(400) == (3, 400, 0)


def test_the_batches_of_a_small_segment_are_looked_at_in_one_step(bench: Bench) -> None:
    log = closed_log(bench, list(range(10)))
    lookup, steps = log.looking_for_timestamp(9), 0
    with pytest.raises(StopIteration) as end:
        while True:
            next(lookup)()
            steps += 1
    assert (end.value.value, steps) == (TimestampOffset(9, 9, 0), 1)


def test_a_segment_without_batches_has_no_record_of_any_time() -> None:
    """Compaction may leave such a one."""
    segment, _ = new_segment()
    assert run(first_at_or_after([segment], -5, BASE, BASE + 10)) is None


def test_an_empty_log_has_no_record_of_any_time(bench: Bench) -> None:
    assert bench.open().offset_for_timestamp(-5) is None


def test_a_log_that_is_damaged_is_looked_through_once_more(bench: Bench) -> None:
    """Another index does not help."""
    log = bench.reopen_cleanly(closed_log(bench, list(range(10)), [100]))
    path, size = log.segments[0].path, log.segments[0].size // 10
    data = bytearray(bench.files.get(path))
    data[5 * size + 8 : 5 * size + 12] = bytes(4)  # its length
    bench.files.put(path, bytes(data))
    with pytest.raises(KafkaError) as error:
        log.offset_for_timestamp(9)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("shift", [3, 100], ids=["another batch", "behind the end"])
def test_an_index_that_leads_too_far_is_made_again(bench: Bench, shift: int) -> None:
    """Whole as it is, it names a batch that is not there: records would be missed."""
    bench.overrides = {"index.interval.bytes": "1"}
    log = bench.reopen_cleanly(closed_log(bench, list(range(10)), [100]))
    size = log.segments[0].size // 10
    wrong = IndexFile(bench.files, log.segments[0].offset_index.path, "I")
    for number in range(7):
        wrong.append(number, min(number + shift, 10) * size)
    wrong.save()
    for time in range(10):
        assert log.offset_for_timestamp(time) == (time, time, 0)
    assert log.failure is None
