"""Which segments are asked for aborted transactions, and what happens where an index is damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from penstock_broker.log import isolation
from penstock_broker.log.index_file import IndexDamagedError
from penstock_broker.log.isolation import aborted_transactions, end_of_slice, has_aborted
from penstock_broker.log.open_transactions import AbortedTransaction
from penstock_broker.log.segment import Segment
from penstock_broker.log.slice import FileSlice, LogSlice

BASES = (10, 20, 30)


def aborted(first: int, marker: int, stable: int | None = None) -> AbortedTransaction:
    return AbortedTransaction(7, first, marker, marker + 1 if stable is None else stable)


class Piece:
    """A segment, its index of aborted transactions, and its index of offsets."""

    def __init__(self, base_offset: int, *entries: AbortedTransaction) -> None:
        self.base_offset = base_offset
        self.aborted = self.offset_index = self
        self.entries = entries
        self.is_damaged = False
        self.asked: list[tuple[int, int]] = []
        self.places: dict[int, int | None] = {}
        """The relative offset of the first entry at or behind a position."""

    def _look(self) -> None:
        if self.is_damaged:
            raise IndexDamagedError("its checksum")

    def has_entries(self) -> bool:
        self._look()
        return bool(self.entries)

    def find(self, first: int, upper: int) -> tuple[list[AbortedTransaction], bool]:
        self._look()
        self.asked.append((first, upper))
        behind = [entry for entry in self.entries if entry.last_offset >= first]
        is_complete = any(entry.last_stable_offset >= upper for entry in behind)
        return [entry for entry in behind if entry.first_offset < upper], is_complete

    def first_at_or_behind(self, position: int) -> int | None:
        self._look()
        return self.places[position]


def segments(*entries: Sequence[AbortedTransaction]) -> tuple[list[Piece], list[Segment]]:
    pieces = [Piece(base, *some) for base, some in zip(BASES, entries, strict=True)]
    return pieces, cast(list[Segment], pieces)


ENTRIES = ([aborted(11, 14)], [aborted(13, 22, 21), aborted(21, 25, 24)], [aborted(24, 31)])


@pytest.mark.parametrize(
    ("first", "upper", "found", "asked"),
    [
        (5, 12, [11], [1, 0, 0]),
        (10, 15, [11], [1, 0, 0]),
        (10, 20, [11, 13], [1, 1, 0]),
        (15, 21, [13], [1, 1, 0]),
        (19, 24, [13, 21], [1, 1, 0]),
        (20, 25, [13, 21, 24], [0, 1, 1]),
        (29, 40, [24], [0, 1, 1]),
        (30, 40, [24], [0, 0, 1]),
        (99, 200, [], [0, 0, 1]),
    ],
)
def test_the_segments_are_asked_from_the_first_offset_until_all_is_known(
    first: int, upper: int, found: list[int], asked: list[int]
) -> None:
    pieces, given = segments(*ENTRIES)
    answer = aborted_transactions(given, BASES, first, upper)
    assert [entry.first_offset for entry in answer] == found
    assert [len(piece.asked) for piece in pieces] == asked


def test_they_come_in_the_order_of_their_first_offsets() -> None:
    _, given = segments([aborted(15, 17), aborted(11, 18)], [aborted(12, 21)], [])
    answer = aborted_transactions(given, BASES, 10, 30)
    assert [entry.first_offset for entry in answer] == [11, 12, 15]
    answer = aborted_transactions(given, BASES, 10, 18)
    assert [entry.first_offset for entry in answer] == [11, 15]


def test_damaged_indexes_are_made_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pieces, given = segments(*ENTRIES)
    pieces[1].is_damaged = True

    def rebuild(some: Sequence[Any]) -> None:
        assert list(some) == pieces
        pieces[1].is_damaged = False

    monkeypatch.setattr(isolation, "rebuild", rebuild)
    answer = aborted_transactions(given, BASES, 20, 25)
    assert [entry.first_offset for entry in answer] == [13, 21, 24]
    assert "rebuilding the indexes of aborted transactions: its checksum" in caplog.text


@pytest.mark.parametrize(
    ("counts", "first", "expected"),
    [
        ((0, 0, 0), 10, False),
        ((1, 0, 0), 10, True),
        ((1, 0, 0), 5, True),
        ((1, 0, 0), 19, True),
        ((1, 0, 0), 20, False),
        ((0, 1, 0), 10, True),
        ((0, 0, 1), 29, True),
        ((0, 1, 0), 30, False),
        ((0, 0, 1), 99, True),
    ],
)
def test_whether_any_may_have_been_aborted(
    counts: Sequence[int], first: int, expected: bool
) -> None:
    _, given = segments(*([aborted(0, 1)] * count for count in counts))
    assert has_aborted(given, BASES, first) is expected


def test_a_damaged_index_may_have_some() -> None:
    pieces, given = segments([], [], [])
    pieces[2].is_damaged = True
    assert has_aborted(given, BASES, 10) is True


# -- where a slice ends --------------------------------------------------------------------------


def part(position: int, size: int) -> FileSlice:
    return FileSlice(cast(Any, None), position, size)


@pytest.mark.parametrize(
    ("base_offset", "parts", "number", "place", "expected"),
    [
        (12, [part(40, 60)], 0, 7, 17),
        (12, [part(40, 60)], 0, None, 20),
        (20, [part(40, 60)], 1, 3, 23),
        (19, [part(40, 90), part(0, 100)], 1, 3, 23),
        (19, [part(40, 90), part(0, 100)], 1, None, 30),
        (12, [part(40, 90), part(0, 50), part(0, 100)], 2, 3, 33),
        (30, [part(40, 60)], 2, None, 2**63 - 1),  # above every offset
        (25, [part(0, 90), part(0, 50), part(0, 100)], 2, 3, 33),  # one has gone meanwhile
        (5, [part(40, 60)], 0, 7, 17),
        (5, [part(0, 50), part(40, 60)], 1, 7, 27),
    ],
)
def test_the_index_of_its_last_segment_says_where_a_slice_ends(
    base_offset: int, parts: list[FileSlice], number: int, place: int | None, expected: int
) -> None:
    pieces, given = segments([], [], [])
    pieces[number].places = {100: place}
    assert end_of_slice(given, LogSlice(tuple(parts), 1, base_offset)) == expected


def test_a_damaged_index_of_offsets_says_nothing() -> None:
    pieces, given = segments([], [], [])
    pieces[1].is_damaged = True
    assert end_of_slice(given, LogSlice((part(0, 9),), 9, 20)) == 30
