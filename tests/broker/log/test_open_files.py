"""The bound on open files: which logs close theirs, in which order, and until when."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

import pytest

from penstock_broker.log.files import OsFiles
from penstock_broker.log.log import Log
from penstock_broker.log.open_files import OpenFiles
from penstock_broker.testing import MemFiles


class Piece:
    """A segment with an open file."""

    def __init__(self, files: OsFiles, base_offset: int, closed: list[str], name: str) -> None:
        self.base_offset = base_offset
        self._files = files
        self._closed = closed
        self._name = f"{name}/{base_offset}"
        files.open_files += 1

    def close_files(self) -> None:
        if self._name not in self._closed:
            self._files.open_files -= 1
            self._closed.append(self._name)


class Table:
    """A log of segments of ten offsets, on the disk up to its recovery point."""

    def __init__(
        self, files: OsFiles, closed: list[str], name: str, segments: int, recovery_point: int
    ) -> None:
        self.segments = [Piece(files, 10 * n, closed, name) for n in range(segments)]
        self.log_end_offset = 10 * segments
        self.recovery_point = recovery_point


def tables(files: OsFiles, closed: list[str], *logs: tuple[str, int, int]) -> list[Log]:
    return [cast(Log, Table(files, closed, *log)) for log in logs]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (6, ["a/0"]),
        (5, ["a/0", "b/0", "b/10"]),  # a log closes all that it may
        (3, ["a/0", "b/0", "b/10", "c/0"]),
        (2, ["a/0", "b/0", "b/10", "c/0", "a/10"]),
        (1, ["a/0", "b/0", "b/10", "c/0", "a/10", "b/20"]),
        (0, ["a/0", "b/0", "b/10", "c/0", "a/10", "b/20", "d/0"]),
        (-1, ["a/0", "b/0", "b/10", "c/0", "a/10", "b/20", "d/0"]),
    ],
)
def test_what_is_on_the_disk_is_closed_first(wanted: int, expected: list[str]) -> None:
    files, closed = OsFiles(), list[str]()
    logs = tables(files, closed, ("a", 2, 10), ("b", 3, 29), ("c", 1, 10), ("d", 1, 9))
    OpenFiles(files).release(logs, wanted)
    assert closed == expected


def test_each_log_has_its_turn() -> None:
    """Files that are closed are opened again when they are needed."""
    files, closed = OsFiles(), list[str]()
    logs = tables(files, closed, *((name, 1, 10) for name in "abcd"))
    bound = OpenFiles(files)
    for wanted, expected in ((2, "ab"), (2, "cd"), (3, "a"), (1, "bcd"), (3, "a")):
        bound.release(logs, wanted)
        assert closed == [f"{name}/0" for name in expected]
        closed.clear()
        files.open_files = 4
    bound.release(logs[:1], 3)
    assert closed == ["a/0"], "there are fewer by now"


def test_without_logs_nothing_is_closed() -> None:
    OpenFiles(OsFiles()).release([], 0)


def test_a_thread_keeps_to_the_bound_on_the_logs_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = OsFiles()
    bound = OpenFiles(files)
    logs: list[Log] = []
    bound.bound(logs)
    assert files.open_files_max == 1 << 30
    bound.most = 100
    thread = threading.Thread(target=lambda: bound.bound(logs))
    thread.start()
    thread.join()
    assert (files.open_files_max, files.owner) == (100, thread.ident)
    asked: list[tuple[Sequence[Log], int]] = []
    monkeypatch.setattr(bound, "release", lambda *given: asked.append(given))
    files.on_many_open()
    assert asked == [(logs, 75)], "a quarter, so that it is not asked each time"


def test_a_simulated_disk_has_no_bound() -> None:
    files = MemFiles()
    OpenFiles(files).bound([])
    assert not hasattr(files, "open_files_max")
