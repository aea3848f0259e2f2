"""A segment: what is written of it, and what a start makes of its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from segment_bench import (
    ABORTED,
    BASE,
    BATCHES,
    DIRECTORY,
    END,
    OFFSET_ENTRIES,
    STARTS,
    TIME_ENTRIES,
    attached,
    damaged_file,
    disk,
    entries_of,
    filled,
    new_segment,
    placed,
    sealed,
    segment_on,
)

from penstock_broker.log.index_file import IndexDamagedError
from penstock_broker.log.scan import Checked, ScannedBatch
from penstock_broker.log.segment import Segment, offset_in_name, segment_name
from penstock_broker.testing import MemFiles

# -- names ------------------------------------------------------------------------------------


def test_the_names_of_files() -> None:
    segment = segment_on(disk())
    assert segment_name(42, ".log") == "00000000000000000042.log"
    assert segment.path == DIRECTORY / "00000000000000000100.log"
    assert segment.paths == [
        DIRECTORY / f"00000000000000000100{suffix}"
        for suffix in (".index", ".timeindex", ".txnindex", ".log")
    ]


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000042.log", 42),
        ("12345678901234567890.index", 12345678901234567890),
        ("00000000000000000042.txt", None),
        ("00000000000000000042", None),
        ("0000000000000000042.log", None),
        ("000000000000000000042.log", None),
        ("0000000000000000004x.log", None),
        ("-0000000000000000042.log", None),
        (20 * "\N{ARABIC-INDIC DIGIT FOUR}" + ".log", None),
        (19 * "0" + "\N{SUPERSCRIPT TWO}.log", None),
    ],
)
def test_the_offset_in_a_name(name: str, offset: int | None) -> None:
    assert offset_in_name(name, (".index", ".log")) == offset


# -- writing ----------------------------------------------------------------------------------


def test_a_new_segment_is_empty() -> None:
    segment, files = new_segment()
    assert files.get(segment.path) == b""
    assert (segment.size, segment.last_batch) == (0, (-1, 0))
    assert (segment.first_append_ms, segment.first_timestamp, segment.timestamp_max) == (
        None, -1, -1,
    )  # fmt: skip
    assert segment.locate(BASE) is None
    assert segment.place_for_timestamp(0, BASE) == (0, -1)
    assert list(segment.batches()) == []
    state = segment.state(BASE)
    assert (state.base_offset, state.written) == (BASE, Checked(BASE, 0, (-1, 0), -1, 0))
    segment.close(BASE)
    assert entries_of(segment.time_index) == []


def test_batches_are_written_one_after_the_other() -> None:
    segment, files = filled()
    assert files.get(segment.path) == b"".join(bytes(batch[0]) for batch in BATCHES)
    assert (segment.size, segment.last_batch) == (STARTS[5], (110, STARTS[4]))
    assert entries_of(segment.offset_index) == OFFSET_ENTRIES
    assert entries_of(segment.time_index) == TIME_ENTRIES
    assert segment.timestamp_max == 9
    found = [(batch.base_offset, batch.position) for batch in segment.batches()]
    assert found == [(batch[1], start) for batch, start in zip(BATCHES, STARTS, strict=False)]
    assert [batch.base_offset for batch in segment.batches(STARTS[3])] == [106, 110]


@pytest.mark.parametrize("at_once", [True, False])
def test_an_entry_comes_behind_more_than_the_interval(at_once: bool) -> None:
    """However many batches are written at a time."""
    batches = [placed(BASE + number, 20 - number) for number in range(8)]
    size = batches[0][2]
    for interval, numbers in (
        (2 * size - 1, [2, 4, 6]),
        (2 * size, [3, 6]),
        (2 * size + 1, [3, 6]),
    ):
        segment, _ = new_segment(interval)
        for batch in [batches] if at_once else [[batch] for batch in batches]:
            segment.append_many(batch)
        assert entries_of(segment.offset_index) == [(n, n * size) for n in numbers]
        state = segment.state(BASE + 8)
        unindexed = (8 - numbers[-1]) * size
        assert state.written == Checked(108, 8 * size, (107, 7 * size), 20, unindexed)


def test_a_state_is_a_copy_of_that_moment() -> None:
    segment, _ = filled()
    segment.aborted.add(ABORTED)
    state = segment.state(END)
    segment.append_many([placed(111, 30)])
    segment.aborted.add(ABORTED._replace(last_offset=112))
    again = segment_on(disk())
    again.offset_index.restore(state.offset_entries)
    again.time_index.restore(state.time_entries)
    again.aborted.restore(state.aborted)
    assert state.base_offset == BASE
    assert state.written == Checked(END, STARTS[5], (110, STARTS[4]), 9, BATCHES[4][2])
    assert entries_of(again.offset_index) == OFFSET_ENTRIES
    assert entries_of(again.time_index) == TIME_ENTRIES
    assert list(again.aborted.entries()) == [ABORTED]


def test_what_a_failed_write_left_is_cut_off() -> None:
    segment, files = filled()
    before, state = files.get(segment.path), segment.state(END)
    files.fail("write", partial_bytes=30)
    with pytest.raises(OSError, match="Input/output error"):
        segment.append_many([placed(111, 99), placed(112, 100)])
    assert segment.state(END) == state
    assert len(files.get(segment.path)) == len(before) + 30
    segment.cut_tail()
    assert files.get(segment.path) == before


def test_a_segment_is_cut_to_a_size() -> None:
    segment, files = filled()
    segment.truncate(STARTS[2])
    assert (segment.size, files.size(segment.path)) == (STARTS[2], STARTS[2])


def test_a_sync_is_of_its_batches() -> None:
    segment, files = filled()
    waits: list[tuple[str, Path]] = []
    files.on_wait = lambda operation, path: waits.append((operation, path))
    segment.sync()
    assert waits == [("sync", segment.path)]


def test_a_closed_segment_is_synced_with_what_was_aborted_in_it() -> None:
    segment, files = filled()
    segment.aborted.add(ABORTED)
    segment.save_indexes(END)
    assert [file.path for file in segment.to_sync()] == [segment.path], "it is in memory, too"
    segment.seal()
    assert [file.path for file in segment.to_sync()] == [segment.path, segment.aborted.path]
    files.remove(segment.aborted.path)
    assert [file.path for file in segment.to_sync()] == [segment.path]


# -- closing, and taking it up again ----------------------------------------------------------


def test_a_closed_segment_has_its_indexes_on_the_disk() -> None:
    segment, _ = sealed()
    assert segment.size == STARTS[5]
    assert entries_of(segment.offset_index) == OFFSET_ENTRIES
    assert entries_of(segment.time_index) == [(5, 3), (9, 11)], "the last one is for its end"
    assert list(segment.aborted.entries()) == [ABORTED]
    assert segment.timestamp_max == 9
    with pytest.raises(ValueError, match="is sealed"):
        segment.state(END)


def test_a_sealed_segment_does_not_save_its_indexes_again() -> None:
    segment, files = filled()
    segment.save_indexes(END)
    segment.seal()
    for index in (segment.offset_index, segment.time_index):
        with pytest.raises(ValueError, match="is sealed"):
            index.copy()
    writes = files.writes
    segment.close(END)
    attached(files).close(END)
    assert files.writes == writes


OPEN: list[Callable[[Segment], object]] = [
    lambda segment: segment.file,
    lambda segment: segment.offset_index.last(),
    lambda segment: segment.time_index.last(),
]


@pytest.mark.parametrize("use", OPEN, ids=["log", "index", "timeindex"])
@pytest.mark.parametrize("is_closed", [True, False], ids=["close", "close_files"])
def test_closing_closes_each_file(use: Callable[[Segment], object], is_closed: bool) -> None:
    segment, files = sealed()
    use(segment)
    files.fail("open")
    use(segment)
    if is_closed:
        segment.close(END)
    else:
        segment.close_files()
    with pytest.raises(OSError, match="Input/output error"):
        use(segment)
    use(segment)


def test_removing_removes_all_files() -> None:
    segment, files = sealed()
    assert len(files.names(DIRECTORY)) == 4
    for use in OPEN:
        use(segment)
    segment.remove()
    assert files.names(DIRECTORY) == []
    with pytest.raises(FileNotFoundError):
        segment.file  # noqa: B018
    for index in (segment.offset_index, segment.time_index):
        with pytest.raises(IndexDamagedError, match="is missing"):
            index.last()
    assert not segment.aborted.has_entries()


def test_a_successor_is_of_the_same_place() -> None:
    segment, _ = sealed()
    successor = segment.successor()
    successor.attach()
    assert successor is not segment
    assert successor.path == segment.path
    assert [successor.locate(offset) for offset in range(100, 112)] == [
        segment.locate(offset) for offset in range(100, 112)
    ]


@pytest.mark.parametrize("interval", [1, 200, 100_000])
def test_the_last_segment_is_taken_up_where_it_was_closed(interval: int) -> None:
    segment, files = filled(interval)
    segment.aborted.add(ABORTED)
    state = segment.state(END)
    segment.close(END)
    again = segment_on(files, interval)
    assert again.resume(END)
    found = again.state(END)
    assert found.written == state.written
    assert (found.offset_entries, found.aborted) == (state.offset_entries, state.aborted)
    assert again.time_index.last() == (9, 11)
    assert (again.first_append_ms, again.first_timestamp) == (5_000, 5)
    again.append_many([placed(111, 20)])
    assert again.locate(111) == (STARTS[5], BATCHES[4][2], 111)


def test_an_empty_segment_is_taken_up() -> None:
    segment, files = new_segment()
    segment.close(BASE)
    again = segment_on(files)
    assert again.resume(BASE)
    assert again.state(BASE).written == Checked(BASE, 0, (-1, 0), -1, 0)
    assert (again.first_append_ms, again.first_timestamp) == (None, -1)


def truncated_log(size: int) -> Callable[[MemFiles], None]:
    def damage(files: MemFiles) -> None:
        path = DIRECTORY / segment_name(BASE, ".log")
        files.put(path, files.get(path)[:size])

    return damage


def longer_log(files: MemFiles) -> None:
    path = DIRECTORY / segment_name(BASE, ".log")
    files.put(path, files.get(path) + bytes(placed(111, 3)[0]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged_file(".index"), "impossible size"),
        (damaged_file(".timeindex"), "impossible size"),
        (damaged_file(".txnindex"), "impossible size"),
        (truncated_log(STARTS[5] - 1), "torn batch"),
        (truncated_log(STARTS[4] - 1), None),
        (truncated_log(STARTS[4]), None),
        (longer_log, None),
    ],
    ids=["index", "timeindex", "txnindex", "torn", "shorter than indexed", "short", "long"],
)
def test_what_does_not_bear_out_the_end_is_to_be_recovered(
    damage: Callable[[MemFiles], None],
    message: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, files = sealed()
    damage(files)
    assert segment_on(files).resume(END) is False
    if message:
        assert f"{DIRECTORY / segment_name(BASE, '.log')}: " in caplog.text
    assert (message or "") in caplog.text
    assert len(caplog.records) == (message is not None)


@pytest.mark.parametrize("end", [END - 1, END + 1])
def test_another_end_than_its_indexes_is_to_be_recovered(end: int) -> None:
    _, files = sealed()
    assert segment_on(files).resume(end) is False


@pytest.mark.parametrize("end", [END, END + 1])
def test_indexes_of_another_end_than_the_batches_are_not_believed(end: int) -> None:
    segment, files = filled()
    segment.close(END + 1)
    assert segment_on(files).resume(end) is False


def test_an_index_of_batches_that_are_not_there_is_not_believed() -> None:
    segment, files = new_segment()
    segment.offset_index.append(2, 70)
    segment.close(BASE)
    assert segment_on(files).resume(BASE) is False


@pytest.mark.parametrize(
    ("interval", "position", "offset", "delta"), [(1, STARTS[4], 109, 1), (100_000, 0, 99, 1)]
)
def test_a_batch_below_where_the_index_leads_is_not_believed(
    interval: int, position: int, offset: int, delta: int
) -> None:
    segment, files = filled(interval)
    segment.close(END)
    file = files.open(segment.path)
    file.write(offset.to_bytes(8, "big"), position)
    file.write(delta.to_bytes(4, "big"), position + 23)
    assert segment_on(files, interval).resume(END) is False


# -- its age ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "later", "oldest", "newest"), [
    (3, 9, 3, 9), (9, 3, 9, 9), (0, 0, 0, 0), (-1, 4, 5_000, 4), (-1, -1, 5_000, 5_000),
])  # fmt: skip
def test_its_oldest_and_newest_time(first: int, later: int, oldest: int, newest: int) -> None:
    """Without a time in its records: when it was written."""
    segment, files = new_segment()
    segment.append_many([placed(100, first), placed(101, later)])
    segment.close(102)
    assert (segment.oldest_ms, segment.newest_ms) == (oldest, newest)
    closed = attached(files)
    assert (closed.oldest_ms, closed.newest_ms) == (oldest, newest)


def test_the_beginning_is_looked_at_once() -> None:
    segment, files = sealed()
    assert segment.oldest_ms == 5
    segment.close_files()
    files.fail("open")
    assert segment.oldest_ms == 5
    assert segment.first_append_ms == 5_000


# -- recovery ---------------------------------------------------------------------------------


def recovered(segment: Segment, **options: object) -> tuple[Checked, list[ScannedBatch]]:
    """With the batches that it gave out."""
    seen: list[ScannedBatch] = []
    given = {"next_offset": BASE, "check_crc_from": 0, "holes_below": END, "epoch": -1}
    found = segment.recover(**{**given, **options}, on_batch=seen.append)  # type: ignore[arg-type]
    return found, seen


@pytest.mark.parametrize("interval", [1, 200])
def test_recovery_makes_everything_again(interval: int) -> None:
    segment, files = filled(interval)
    state = segment.state(END)
    again = segment_on(files, interval)
    again.offset_index.append(77, 77)
    again.time_index.append(77, 77)
    found, _ = recovered(again)
    assert found == state.written
    assert again.state(END) == state
    assert (again.first_append_ms, again.first_timestamp) == (5_000, 5)


def test_recovery_ends_at_the_first_bad_batch() -> None:
    segment, files = filled()
    files.open(segment.path).write(b"\xff", STARTS[4] - 1)
    found, _ = recovered(segment)
    assert found[:2] == (104, STARTS[3])
    assert found.bad is not None
    assert (segment.size, segment.last_batch) == (STARTS[3], (103, STARTS[2]))
    assert recovered(segment, check_crc_from=108)[0].end_offset == END
    assert recovered(segment, holes_below=105, check_crc_from=108)[0].end_offset == 108
    assert recovered(segment, next_offset=101)[0].end_offset == 101


def test_recovery_continues_where_a_state_was_taken() -> None:
    segment, files = new_segment()
    segment.append_many(BATCHES[:3])
    segment.aborted.add(ABORTED)
    state = segment.state(104)
    segment.append_many(BATCHES[3:])
    expected = segment.state(END)
    path = segment.path
    files.put(path, bytes(STARTS[2]) + files.get(path)[STARTS[2] :])  # is not read again
    files.open(path).write(bytes(BATCHES[0][0]), 0)
    again = segment_on(files)
    assert recovered(again, begin=state)[0] == expected.written
    assert again.state(END) == expected


def test_recovery_gives_out_what_the_log_keeps_account_of() -> None:
    segment, _ = filled()
    _, seen = recovered(segment, epoch=-2)
    assert [batch.base_offset for batch in seen] == [100]
    assert recovered(segment, epoch=-1)[1] == []


def test_a_segment_that_is_recovered_is_written_on() -> None:
    """It had been closed."""
    segment, files = sealed()
    recovered(segment)
    segment.append_many([placed(111, 20)])
    segment.close(112)
    assert attached(files).timestamp_max == 20
