"""The names of compacted segments, and what a start finishes that a crash interrupted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import cast

import pytest

from penstock_broker.log.checkpoint import read_lines, write_lines
from penstock_broker.log.segment import Segment, segment_name
from penstock_broker.log.swap import (
    CLEANED_SUFFIX,
    EVERYWHERE,
    CleanerCheckpoint,
    finish_swaps,
    put_in_place,
    read_cleaner_checkpoint,
    swap_path,
    write_cleaner_checkpoint,
)
from penstock_broker.testing import MemFiles

D = Path("/d")
CHECKPOINT = D / "cleaner-checkpoint"
SUFFIXES = (".index", ".log", ".timeindex", ".txnindex")


def disk(*names: str) -> MemFiles:
    """Each file holds its own name."""
    files = MemFiles()
    files.make_directory(D)
    for name in names:
        files.put(D / name, name.encode())
    files.sync_directory(D)
    return files


def segments(*bases: int) -> list[str]:
    return [segment_name(base, suffix) for base in bases for suffix in SUFFIXES]


def test_names() -> None:
    assert swap_path(D, 5, 20) == D / "00000000000000000005-00000000000000000020.swap"
    assert CLEANED_SUFFIX == ".cleaned"


def test_a_start_finishes_what_was_interrupted(caplog: pytest.LogCaptureFixture) -> None:
    """The old segments go that lie in the range of the new one, and nothing else."""
    caplog.set_level(logging.INFO)
    others = [
        "00000000000000000005.log.deleted",
        "00000000000000000005.snapshot",
        "00000000000000000010.checkpoint",
        "1-2.swap",
        "abc.log",
        "².log",
        "leader-epoch-checkpoint",
        "log",
    ]
    swaps = [swap_path(D, 5, 20).name, swap_path(D, 30, 31).name]
    files = disk(*segments(0, 5, 10, 20, 30), *others, *swaps)
    finish_swaps(files, D)
    left = sorted([*segments(0, 20), segment_name(5, ".log"), segment_name(30, ".log"), *others])
    assert sorted(files.names(D)) == left
    for name in left:
        number = {segment_name(5, ".log"): 0, segment_name(30, ".log"): 1}.get(name)
        expected = name if number is None else swaps[number]
        assert files.get(D / name) == expected.encode()
    assert "/d: replaced segments 5 to 20 by the compacted one" in caplog.text
    assert sorted(files.power_cut(Random(1)).names(D)) == left


def test_a_start_without_a_swap_touches_nothing() -> None:
    files = disk(*segments(0, 5))
    finish_swaps(files, D)
    assert sorted(files.names(D)) == segments(0, 5)


class Piece:
    """What a replacement asks of a segment."""

    def __init__(self, files: MemFiles, base: int) -> None:
        self.paths = [D / segment_name(base, suffix) for suffix in (*SUFFIXES[::2], ".log")]
        self.calls: list[str] = []
        self._files = files
        self._base = base

    def close_files(self) -> None:
        assert all(self._files.exists(path) for path in self.paths), "closed before"
        self.calls.append("closed")

    def successor(self) -> Piece:
        return Piece(self._files, self._base)

    def attach(self) -> None:
        assert self._files.get(self.paths[-1]) == b"compacted"
        self.calls.append("attached")


def test_a_finished_segment_takes_the_place_of_others() -> None:
    """The log itself comes last: until then a start finishes what is half done."""
    names = [segment_name(base, suffix) for base in (5, 10) for suffix in (*SUFFIXES[::2], ".log")]
    files, swap, cleaned = disk(*names), swap_path(D, 5, 20), D / "x.cleaned"
    files.put(swap, b"compacted")
    files.make_directory(cleaned)
    files.put(cleaned / segment_name(5, ".index"), b"index")
    renamed: list[Path] = []
    rename: Callable[[Path, Path], None] = files.rename

    def recorded(path: Path, to: Path) -> None:
        rename(path, to)
        renamed.append(path)

    files.rename = recorded  # type: ignore[method-assign]
    old = [Piece(files, 5), Piece(files, 10)]
    files.remove(D / segment_name(10, ".timeindex"))
    files.put(D / segment_name(10, ".timeindex"), b"")
    new, gone = put_in_place(files, cast(list[Segment], old), swap, cleaned)
    assert [piece.calls for piece in old] == [["closed"], ["closed"]]
    assert cast(Piece, new).calls == ["attached"]
    assert gone == [D / f"{name}.deleted" for name in names]
    assert all(files.exists(path) for path in gone)
    assert renamed[-1] == swap
    assert files.get(D / segment_name(5, ".index")) == b"index"
    assert not files.exists(D / segment_name(5, ".timeindex"))


def test_a_file_that_is_not_there_is_not_among_the_replaced() -> None:
    """An index of aborted transactions is there only where there are any."""
    files, swap = disk(segment_name(5, ".log")), swap_path(D, 5, 20)
    files.put(swap, b"compacted")
    piece = Piece(files, 5)
    piece.close_files = lambda: None  # type: ignore[method-assign]
    _, gone = put_in_place(files, cast(list[Segment], [piece]), swap, D / "x.cleaned")
    assert gone == [D / segment_name(5, ".log.deleted")]


# -- the checkpoint


def test_the_checkpoint_of_a_log() -> None:
    files = disk()
    assert read_cleaner_checkpoint(files, D) == (0, 0) == CleanerCheckpoint()
    write_cleaner_checkpoint(files, D, CleanerCheckpoint(7, 9))
    assert list(read_lines(files, CHECKPOINT)) == ["first_dirty 7", "holes_below 9"]
    assert read_cleaner_checkpoint(files, D) == (7, 9)
    assert read_cleaner_checkpoint(files.power_cut(Random(1)), D) == (7, 9)


@pytest.mark.parametrize(
    "lines",
    [
        ["first_dirty 7"],
        ["holes_below 7"],
        ["first_dirty 7", "holes_below x"],
        ["first_dirty 7 8", "holes_below 9"],
        None,
    ],
    ids=str,
)
def test_a_damaged_checkpoint_says_that_holes_may_be_anywhere(
    lines: list[str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    files = disk()
    if lines is None:
        files.put(CHECKPOINT, b"garbage")
    else:
        write_lines(files, CHECKPOINT, lines)
    assert read_cleaner_checkpoint(files, D) == (0, 2**63 - 1) == (0, EVERYWHERE)
    assert "/d/cleaner-checkpoint is damaged: " in caplog.text
