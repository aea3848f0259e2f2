"""Descriptions of bytes in a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.log.files import OsFiles
from penstock_broker.log.slice import EMPTY_SLICE, FileSlice, LogSlice


@pytest.fixture
def part(tmp_path: Path) -> FileSlice:
    """``cdefg`` of a file."""
    path = tmp_path / "x.log"
    path.write_bytes(b"abcdefghij")
    return FileSlice(OsFiles().open(path), 2, 5)


def test_a_part_of_a_file(part: FileSlice) -> None:
    assert (part.read(), len(part), part.fileno()) == (b"cdefg", 5, part.file.fd)


@pytest.mark.parametrize(("sent", "left"), [(0, b"cdefg"), (2, b"efg"), (5, b"")])
def test_what_is_left_when_some_has_been_sent(part: FileSlice, sent: int, left: bytes) -> None:
    rest = part.after(sent)
    assert (rest.read(), len(rest), rest.file) == (left, len(left), part.file)
    assert len(part) == 5


def test_an_answer_of_several_parts(part: FileSlice) -> None:
    answer = LogSlice((part, part.after(3)), 7, 40)
    assert (answer.read(), len(answer), answer.base_offset) == (b"cdefgfg", 7, 40)


def test_an_empty_answer() -> None:
    assert (EMPTY_SLICE.read(), len(EMPTY_SLICE), EMPTY_SLICE.base_offset) == (b"", 0, -1)
