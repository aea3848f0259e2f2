"""The list of a log's segments: which hold an offset, which go, and who notices that they went."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import cast

import pytest
from log_bench import DIRECTORY, Bench, read_all, values_of

from penstock_broker.log.lookup import Lookup, TimestampOffset
from penstock_broker.log.recovery import LogPlace
from penstock_broker.log.segment import Segment, segment_name
from penstock_broker.log.segments import SegmentList
from penstock_broker.log.swap import swap_path
from penstock_broker.testing import MemFiles

BASES = (10, 20, 30, 40)


class Piece:
    """What the list asks of a segment."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.size = 100 + base_offset
        self.calls: list[object] = []
        self.paths = [
            DIRECTORY / segment_name(base_offset, suffix) for suffix in (".index", ".log")
        ]

    def close_files(self) -> None:
        self.calls.append("files closed")

    def close(self, end_offset: int) -> None:
        self.calls.append(end_offset)

    def to_sync(self) -> list[str]:
        return [f"{self.base_offset} log", f"{self.base_offset} index"]

    def successor(self) -> Piece:
        return Piece(self.base_offset)

    def attach(self) -> None:
        self.calls.append("attached")


def pieces_of(*bases: int) -> tuple[SegmentList, list[Piece], MemFiles]:
    files = MemFiles()
    files.make_directory(DIRECTORY)
    pieces = [Piece(base) for base in bases]
    for piece in pieces:
        for path in piece.paths:
            files.put(path, b"")
    place = LogPlace(files, DIRECTORY, "t", 0, 4096)
    return SegmentList(place, cast(list[Segment], pieces)), pieces, files


def bases_of(found: SegmentList) -> list[int]:
    return [segment.base_offset for segment in found]


def test_the_segments_in_order() -> None:
    found, pieces, _ = pieces_of(*BASES)
    assert list(found) == list(found.all) == pieces
    assert (found.active, found.first_offset, found.size_bytes) == (pieces[-1], 10, 500)


@pytest.mark.parametrize(
    ("start", "gone"), [(5, 0), (10, 0), (19, 0), (20, 1), (39, 2), (40, 3), (99, 3)]
)
def test_segments_wholly_below_the_start_go(start: int, gone: int) -> None:
    """The active one stays, whatever the start."""
    found, pieces, _ = pieces_of(*BASES)
    assert found.take_below(start) == [path for piece in pieces[:gone] for path in piece.paths]
    assert bases_of(found) == list(BASES[gone:])
    assert found.first_offset == BASES[gone]
    assert [piece.calls for piece in pieces] == gone * [["files closed"]] + (4 - gone) * [[]]


def replaced(found: SegmentList, files: MemFiles, old: Sequence[Piece]) -> list[Path] | None:
    swap = swap_path(DIRECTORY, old[0].base_offset, old[-1].base_offset + 10)
    files.put(swap, b"compacted")
    return found.replace(cast(list[Segment], old), swap, DIRECTORY / "x.cleaned")


@pytest.mark.parametrize(("first", "end"), [(0, 1), (0, 2), (1, 3), (1, 2), (0, 3), (2, 3)])
def test_closed_segments_are_replaced_by_one(first: int, end: int) -> None:
    found, pieces, files = pieces_of(*BASES)
    gone = replaced(found, files, pieces[first:end])
    assert gone == [
        path.with_name(f"{path.name}.deleted")
        for piece in pieces[first:end]
        for path in piece.paths
    ]
    assert bases_of(found) == [*BASES[:first], BASES[first], *BASES[end:]]
    new = list(found)[first]
    assert new not in pieces
    assert [s for s in found if s is not new] == [*pieces[:first], *pieces[end:]]
    # The offsets by which they are found, too: a second time it is not found any more.
    assert replaced(found, files, pieces[first:end]) is None
    assert found.first_offset == 10
    assert replaced(found, files, cast(list[Piece], [new])) is not None
    found.take_below(40)
    assert (bases_of(found), found.first_offset) == ([40], 40)


def test_segments_that_are_not_all_there_are_not_replaced() -> None:
    found, pieces, files = pieces_of(*BASES)
    found.take_below(20)
    for old in (pieces[:2], pieces[:1], [pieces[1], pieces[3]], [Piece(20)]):
        assert replaced(found, files, old) is None
    assert bases_of(found) == [20, 30, 40]


def looking(found: SegmentList, starts: list[int]) -> tuple[Lookup, list[tuple[list[int], int]]]:
    """A lookup in three steps, and what each try of it began with."""
    tries: list[tuple[list[int], int]] = []

    def begin(segments: Sequence[Segment], start: int) -> Generator[None, None, TimestampOffset]:
        tries.append(([segment.base_offset for segment in segments], start))
        yield
        yield
        yield
        return TimestampOffset(7, start, 0)

    return found.looking(begin, lambda: starts[0]), tries  # type: ignore[arg-type]


def test_a_lookup_sees_the_segments_as_they_are() -> None:
    found, _, _ = pieces_of(10, 20)
    lookup, tries = looking(found, [12])
    assert len(list(lookup)) == 3
    assert tries == [([10, 20], 12)]


def test_a_lookup_starts_over_where_segments_go_or_the_start_moves() -> None:
    found, pieces, files = pieces_of(*BASES)
    starts = [12]
    lookup, tries = looking(found, starts)
    next(lookup)
    found.take_below(12)
    next(lookup)
    assert len(tries) == 1, "nothing went"
    found.take_below(20)
    next(lookup)
    assert tries[1:] == [([20, 30, 40], 12)]
    assert replaced(found, files, pieces[1:3]) is not None
    next(lookup)
    assert tries[2:] == [([20, 40], 12)]
    starts[0] = 25
    next(lookup)
    assert tries[3:] == [([20, 40], 25)]
    with pytest.raises(StopIteration) as end:
        for _ in range(4):
            next(lookup)
    assert end.value.value == TimestampOffset(7, 25, 0)
    assert len(tries) == 4


@pytest.mark.parametrize(
    ("point", "first"), [(0, 0), (9, 0), (10, 0), (19, 0), (20, 1), (35, 2), (40, 3), (99, 3)]
)
def test_what_is_past_the_recovery_point_is_synced(point: int, first: int) -> None:
    found, _, _ = pieces_of(*BASES)
    assert found.to_sync(point) == tuple(
        f"{base} {file}" for base in BASES[first:] for file in ("log", "index")
    )


def test_all_are_closed() -> None:
    found, pieces, files = pieces_of(*BASES)
    for offset in (10, 30, 40, 50):
        files.put(DIRECTORY / segment_name(offset, ".snapshot"), b"")
    found.close_files()
    found.close(55, b"producers")
    assert [piece.calls for piece in pieces] == 4 * [["files closed", 55]]
    snapshots = [name for name in files.names(DIRECTORY) if name.endswith(".snapshot")]
    assert snapshots == [segment_name(offset, ".snapshot") for offset in (40, 50, 55)]
    assert files.get(DIRECTORY / snapshots[-1]) == b"producers"


def test_a_roll_keeps_the_snapshots_that_a_start_needs(bench: Bench) -> None:
    """Those of the segments from the recovery point on, and the two newest."""
    log = bench.open()
    for number in range(6):
        bench.append(log, f"value {number}")
        if number == 2:
            log.flush()
        log.roll()
    for segment in log.segments[:-1]:
        with pytest.raises(ValueError, match="is sealed"):
            segment.state(0)
    names = [n for n in bench.files.names(bench.directory) if n.endswith(".snapshot")]
    assert names == [segment_name(offset, ".snapshot") for offset in (3, 4, 5, 6)]
    assert values_of(read_all(bench.reopen_after_kill(log))) == [f"value {n}" for n in range(6)]
