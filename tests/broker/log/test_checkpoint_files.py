"""Small files of numbers: their format, their damage, and offsets that are kept in them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from penstock_broker.log.checkpoint import (
    CheckpointDamagedError,
    OffsetCheckpoint,
    read_lines,
    write_lines,
)
from penstock_broker.log.kept_offsets import KeptOffsets
from penstock_broker.log.keys import TopicPartition
from penstock_broker.log.log import Log
from penstock_broker.testing import MemFiles

PATH = Path("/data/some-checkpoint")
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


@pytest.fixture
def files() -> MemFiles:
    files = MemFiles()
    files.make_directory(PATH.parent)
    return files


# -- the format ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "data"),
    [([], b"0\n0\n"), (["a"], b"0\n1\na\n"), (["a 1", "b 2"], b"0\n2\na 1\nb 2\n")],
)
def test_its_bytes(files: MemFiles, entries: list[str], data: bytes) -> None:
    write_lines(files, PATH, iter(entries))
    assert files.get(PATH) == data
    assert read_lines(files, PATH) == entries


@pytest.mark.parametrize(("options", "syncs"), [({}, 1), ({"sync": True}, 1), ({"sync": False}, 0)])
def test_it_is_on_the_disk_unless_that_is_not_asked_for(
    files: MemFiles, options: dict[str, bool], syncs: int
) -> None:
    write_lines(files, PATH, ["a"], **options)
    assert files.syncs == syncs


def test_a_file_that_is_not_there_has_no_entries(files: MemFiles) -> None:
    assert read_lines(files, PATH) == []
    assert OffsetCheckpoint(files, PATH).read() == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"\n",
        b"0\n1\na",
        b"0\n1\n",
        b"0\n1\na\nb\n",
        b"0\n0\na\n",
        b"1\n1\na\n",
        b"0\nx\na\n",
        b"\xff\n1\na\n",
    ],
)
def test_a_file_that_is_not_whole_is_damaged(files: MemFiles, data: bytes) -> None:
    files.put(PATH, data)
    with pytest.raises(CheckpointDamagedError, match="/data/some-checkpoint is damaged"):
        read_lines(files, PATH)


def test_offsets_are_lines_of_topic_partition_and_offset(files: MemFiles) -> None:
    offsets = {T0: 5, ("other", 12): 0}
    checkpoint = OffsetCheckpoint(files, PATH)
    checkpoint.write(offsets)
    assert files.get(PATH) == b"0\n2\nt 0 5\nother 12 0\n"
    assert checkpoint.read() == offsets


@pytest.mark.parametrize("line", ["t 0", "t 0 1 2", "t x 1", "t 0 x", ""])
def test_a_line_that_is_no_offset_is_damage(files: MemFiles, line: str) -> None:
    write_lines(files, PATH, ["t 0 1", line])
    with pytest.raises(CheckpointDamagedError, match=f"{PATH} is damaged: '{line}'"):
        OffsetCheckpoint(files, PATH).read()


# -- offsets that are kept -----------------------------------------------------------------------


class At:
    """A log at an offset."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


def kept(files: MemFiles, *, zeros: bool = False, loaded: bool = True) -> KeptOffsets:
    made = KeptOffsets(files, PATH, lambda log: cast(At, log).offset, zeros=zeros)
    if loaded:
        made.load()
    return made


def logs(offsets: dict[TopicPartition, int]) -> dict[TopicPartition, Log]:
    return {key: cast(Log, At(offset)) for key, offset in offsets.items()}


def lines(files: MemFiles) -> list[str]:
    return read_lines(files, PATH)


def test_what_was_written_is_known_after_a_start(files: MemFiles) -> None:
    kept(files).job(logs({T0: 5, T1: 7}))()
    again = kept(files)
    assert (again.get(T0), again.get(T1), again.get(U0)) == (5, 7, 0)
    assert T0 in again
    assert U0 not in again
    assert again.is_written(T0)
    assert not again.is_written(U0)
    assert T0 not in kept(files, loaded=False)


@pytest.mark.parametrize(("zeros", "written"), [(True, ["t 0 0", "t 1 7"]), (False, ["t 1 7"])])
def test_an_offset_of_0_may_be_left_out(files: MemFiles, zeros: bool, written: list[str]) -> None:
    kept(files, zeros=zeros).job(logs({T0: 0, T1: 7}))()
    assert lines(files) == written


def test_a_log_that_is_not_open_keeps_its_offset(files: MemFiles) -> None:
    kept(files).job(logs({T0: 5, T1: 7}))()
    again = kept(files)
    again.job(logs({T1: 8}))()
    assert lines(files) == ["t 0 5", "t 1 8"]
    assert again.get(T1) == 8


def test_nothing_is_kept_of_a_log_that_is_gone(files: MemFiles) -> None:
    offsets = kept(files)
    offsets.job(logs({T0: 5, T1: 7}))()
    offsets.remove(T0)
    offsets.remove(U0)
    assert T0 not in offsets
    assert offsets.is_written(T0), "until the next time"
    offsets.job(logs({T1: 7}))()
    assert lines(files) == ["t 1 7"]
    assert not offsets.is_written(T0)


def test_what_is_written_already_is_not_written_again(files: MemFiles) -> None:
    offsets = kept(files)
    offsets.job(logs({T0: 5}))()
    writes = files.writes
    offsets.job(logs({T0: 5}))()
    again = kept(files)
    again.job(logs({T0: 5}))()
    assert files.writes == writes
    again.job(logs({T0: 6}))()
    assert files.writes > writes


def test_a_job_has_the_offsets_of_when_it_was_made(files: MemFiles) -> None:
    offsets = kept(files)
    open_logs = logs({T0: 5})
    first = offsets.job(open_logs)
    cast(At, open_logs[T0]).offset = 6
    first()
    assert lines(files) == ["t 0 5"]


def test_an_older_job_does_not_undo_a_newer_one(files: MemFiles) -> None:
    offsets = kept(files)
    offsets.job(logs({T0: 5}))()
    older, newer = offsets.job(logs({T0: 6})), offsets.job(logs({T0: 5}))
    newer()
    older()
    assert lines(files) == ["t 0 5"]


def test_a_damaged_file_is_an_error(files: MemFiles) -> None:
    files.put(PATH, b"damaged")
    with pytest.raises(CheckpointDamagedError):
        kept(files)
