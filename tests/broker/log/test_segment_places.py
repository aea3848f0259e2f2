"""A segment: offsets and times that are found in it, and indexes that are made again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest
from segment_bench import (
    BASE,
    BATCHES,
    END,
    OFFSET_ENTRIES,
    STARTS,
    attached,
    damaged_file,
    entries_of,
    filled,
    new_segment,
    placed,
    sealed,
)

from penstock_broker.log.files import not_waiting
from penstock_broker.log.index_file import IndexDamagedError
from penstock_broker.log.scan import BadBatchError, Checked
from penstock_broker.log.segment import PlacedBatch, Segment
from penstock_broker.testing import MemFiles
from penstock_broker.wire.batch_builder import build_batch
from penstock_broker.wire.records import HEADER_BYTES, RecordBatch

# -- finding an offset ------------------------------------------------------------------------


def expected_places(batches: Sequence[PlacedBatch]) -> list[tuple[int, int, int] | None]:
    """For each offset from BASE on, the first batch that ends there or behind."""
    ends = [RecordBatch(memoryview(batch[0])).last_offset for batch in batches]
    found: list[tuple[int, int, int] | None] = []
    for offset in range(BASE, ends[-1] + 2):
        at = next((n for n, end in enumerate(ends) if end >= offset), None)
        start = sum(batch[2] for batch in batches[:at])
        found.append(None if at is None else (start, batches[at][2], batches[at][1]))
    return found


@pytest.mark.parametrize("interval", [1, 200, 100_000])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_each_offset_is_found_with_its_batch(interval: int, is_sealed: bool) -> None:
    segment, files = filled(interval)
    if is_sealed:
        segment.close(END)
        segment = attached(files, interval)
    expected = expected_places(BATCHES)
    assert [segment.locate(offset) for offset in range(BASE, END + 1)] == expected
    assert segment.locate(BASE - 1) == expected[0]


@pytest.mark.parametrize("third", [8192 + more for more in (-61, -28, -27, -26, -1, 0, 1)])
def test_batches_are_found_across_what_is_read_at_a_time(third: int) -> None:
    """The third begins at the end of the 8192 bytes that are read first."""
    batches = [placed(100, 1), placed(101, 1, size=third - 139), placed(102, 1), placed(103, 1)]
    assert batches[0][2] + batches[1][2] == third
    batches += [placed(104, 1, size=30_000), placed(105, 1), placed(106, 1)]
    segment, _ = new_segment(100_000)
    segment.append_many(batches)
    assert [segment.locate(offset) for offset in range(BASE, 108)] == expected_places(batches)


def test_an_empty_batch_is_passed() -> None:
    """Compaction leaves them."""
    empty = build_batch([], base_offset=101)
    batches = [placed(100, 1), (empty, 101, HEADER_BYTES, -1), placed(102, 1), placed(103, 1)]
    segment, _ = new_segment(100_000)
    segment.append_many(batches)
    assert [segment.locate(offset) for offset in range(BASE, 105)] == expected_places(batches)


def test_the_newest_batch_is_found_without_a_look_at_the_disk() -> None:
    segment, files = filled()
    files.fail("read")
    assert segment.locate(110) == (STARTS[4], BATCHES[4][2], 110)
    with pytest.raises(OSError, match="Input/output error"):
        segment.locate(106)


@pytest.mark.parametrize("interval", [1, 100_000])
def test_what_is_behind_the_end_is_not_found(interval: int) -> None:
    """A write that failed left a batch there, or a part of one."""
    segment, files = filled(interval)
    data = bytes(placed(111, 3)[0])
    for kept in (26, 27, 28, len(data)):
        files.open(segment.path).write(data[:kept], segment.size)
        assert segment.locate(111) is None


@pytest.mark.parametrize("kept", [STARTS[2], STARTS[3] + 5, STARTS[3] + 30])
def test_a_file_that_has_become_shorter_is_damage(kept: int) -> None:
    segment, files = filled(100_000)
    files.open(segment.path).truncate(kept)
    with pytest.raises(BadBatchError, match="torn batch"):
        segment.locate(108)


@pytest.mark.parametrize(("length", "is_bad"), [(0, True), (48, True), (-20, True), (49, False)])
def test_a_batch_that_is_shorter_than_its_header_is_damage(length: int, is_bad: bool) -> None:
    segment, files = filled(100_000)
    files.open(segment.path).write(length.to_bytes(4, "big", signed=True), STARTS[1] + 8)
    if not is_bad:
        files.open(segment.path).write(bytes(placed(103, 1)[0]), STARTS[1] + HEADER_BYTES)
        assert segment.locate(103) == (STARTS[1] + HEADER_BYTES, BATCHES[1][2], 103)
        return
    with pytest.raises(BadBatchError, match=f"a length of {length}") as error:
        segment.locate(103)
    assert error.value.position == STARTS[1]


def wrong_index(files: MemFiles, *entries: tuple[int, int]) -> Segment:
    """The sealed segment with these entries in its index, which are whole as a file."""
    segment = attached(files)
    segment.offset_index.clear()
    for entry in entries:
        segment.offset_index.append(*entry)
    segment.offset_index.save()
    return attached(files)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ((0, STARTS[1]), f"has no batch 100 at {STARTS[1]}"),
        ((2, STARTS[2]), f"has no batch 102 at {STARTS[2]}"),
        ((3, STARTS[1]), f"has no batch 103 at {STARTS[1]}"),
        ((4, STARTS[5]), "is shorter than its index says"),
        ((4, STARTS[5] - 26), "is shorter than its index says"),
        ((4, STARTS[5] + 1), "is shorter than its index says"),
    ],
)
def test_an_index_that_leads_elsewhere_is_made_again(
    entry: tuple[int, int], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, files = sealed()
    segment = wrong_index(files, entry)
    assert [segment.locate(offset) for offset in range(BASE, END + 1)] == expected_places(BATCHES)
    path = segment.path
    assert f"rebuilding the indexes of {path}: {path} {message}" in caplog.text
    assert entries_of(attached(files).offset_index) == OFFSET_ENTRIES


# -- finding a time ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_sealed", [True, False])
def test_where_to_begin_to_look_for_a_time(is_sealed: bool) -> None:
    segment, _ = sealed() if is_sealed else filled()
    third, last = (STARTS[2], 103), (STARTS[4], 110)
    for time, start, expected in (
        (0, 0, (0, -1)), (5, 0, (0, -1)), (5, 101, (0, -1)), (5, 102, (STARTS[1], 102)),
        (6, 0, third), (6, 105, third), (6, 106, (STARTS[3], 106)), (9, 102, third),
        (10, 0, last), (0, 110, last),
    ):  # fmt: skip
        assert segment.place_for_timestamp(time, start) == expected


def test_the_largest_time_of_a_closed_segment_leaves_no_file_open() -> None:
    segment, files = sealed()
    assert segment.timestamp_max == 9
    files.fail("open")
    assert segment.timestamp_max == 9, "it is remembered"
    with pytest.raises(OSError, match="Input/output error"):
        segment.time_index.last()


def test_a_closed_segment_without_batches_has_no_largest_time() -> None:
    segment, files = new_segment()
    segment.close(BASE)
    assert attached(files).timestamp_max == -1


USES: list[Callable[[Segment], object]] = [
    lambda segment: segment.timestamp_max,
    lambda segment: segment.place_for_timestamp(6, 0),
    lambda segment: segment.locate(104),
]


@pytest.mark.parametrize(("use", "expected"), [
    (USES[0], 9), (USES[1], (STARTS[2], 103)), (USES[2], (STARTS[3], BATCHES[3][2], 106)),
], ids=["largest", "time", "offset"])  # fmt: skip
def test_a_damaged_index_is_made_again(use: Callable[[Segment], object], expected: object) -> None:
    segment, files = sealed()
    damaged_file(".timeindex")(files)
    damaged_file(".index")(files)
    assert use(segment) == expected
    again = attached(files)
    assert entries_of(again.offset_index) == OFFSET_ENTRIES
    assert entries_of(again.time_index) == [(5, 3), (9, 11)]
    with pytest.raises(ValueError, match="is sealed"):
        segment.state(END)


def test_an_index_is_made_again_where_the_event_loop_would_not_wait() -> None:
    segment, files = sealed()
    damaged_file(".index")(files)
    segment.file  # noqa: B018
    files.is_cold = True
    with not_waiting():
        segment.rebuild_indexes(IndexDamagedError("damaged"))
    files.is_cold = False
    assert entries_of(segment.offset_index) == OFFSET_ENTRIES


def test_an_index_that_cannot_be_saved_stays_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    segment, files = sealed()
    damaged_file(".index")(files)
    files.fail("write", path_part=".index")
    assert segment.locate(104) == (STARTS[3], BATCHES[3][2], 106)
    assert f"the indexes of {segment.path} stay in memory: " in caplog.text
    assert segment.state(END).written == Checked(END, STARTS[5], (110, STARTS[4]), 9, BATCHES[4][2])


def test_the_indexes_of_the_active_segment_are_made_again_in_memory() -> None:
    segment, files = filled()
    state = segment.state(END)
    writes = files.writes
    segment.rebuild_indexes(IndexDamagedError("for a test"))
    assert segment.state(END) == state
    assert files.writes == writes


def test_of_a_segment_whose_first_batch_is_damaged_nothing_is_known() -> None:
    segment, files = filled()
    files.open(segment.path).write(b"\1", 16)  # its magic
    segment.rebuild_indexes(IndexDamagedError("for a test"))
    assert (segment.last_batch, segment.timestamp_max) == ((-1, 0), -1)


def test_an_interval_counts_when_an_index_is_made_again() -> None:
    batches = [placed(BASE + number, 20 - number) for number in range(8)]
    size = batches[0][2]
    for interval in (2 * size - 1, 2 * size, 2 * size + 1):
        segment, _ = new_segment(interval)
        segment.append_many(batches)
        state = segment.state(BASE + 8)
        segment.rebuild_indexes(IndexDamagedError("for a test"))
        assert segment.state(BASE + 8) == state


def test_what_is_behind_damage_is_not_indexed(caplog: pytest.LogCaptureFixture) -> None:
    segment, files = sealed()
    files.open(segment.path).write(b"\1", STARTS[3] + 16)  # its magic
    damaged_file(".index")(files)
    assert segment.locate(103) == (STARTS[2], BATCHES[2][2], 103)
    assert entries_of(segment.offset_index) == OFFSET_ENTRIES[:2]
    assert entries_of(segment.time_index) == [(5, 3), (9, 4)]
    (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert error.getMessage() == (
        f"{segment.path} is damaged: no batch (magic 1, length {BATCHES[3][2] - 12}, delta 1)"
        f" at position {STARTS[3]}; not indexed from there on"
    )
