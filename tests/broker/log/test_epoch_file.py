"""A log's leader epochs on the disk, and in its batches where the file says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from penstock_broker.log.epoch_file import EPOCHS_FILE, epochs_of, read_epochs, write_epochs
from penstock_broker.log.scan import BadBatchError, ScannedBatch
from penstock_broker.log.segment import Segment
from penstock_broker.testing import MemFiles

DIRECTORY = Path("/data/t-0")


@pytest.fixture
def files() -> MemFiles:
    files = MemFiles()
    files.make_directory(DIRECTORY)
    return files


def test_its_bytes(files: MemFiles) -> None:
    write_epochs(files, DIRECTORY, [(1, 0), (4, 7)])
    assert EPOCHS_FILE == "leader-epoch-checkpoint"
    assert files.get(DIRECTORY / EPOCHS_FILE) == b"0\n2\n1 0\n4 7\n"
    found = read_epochs(files, DIRECTORY)
    assert found is not None
    assert found.entries() == [(1, 0), (4, 7)]


@pytest.mark.parametrize(("options", "syncs"), [({}, 1), ({"sync": False}, 0)])
def test_an_epoch_begins_without_a_sync(
    files: MemFiles, options: dict[str, bool], syncs: int
) -> None:
    write_epochs(files, DIRECTORY, [(1, 0)], **options)
    assert files.syncs == syncs


@pytest.mark.parametrize(
    ("data", "warns"),
    [
        (None, False),
        (b"0\n0\n", False),
        (b"torn", True),
        (b"0\n1\n1\n", True),
        (b"0\n1\n1 x\n", True),
    ],
)
def test_a_file_that_says_nothing_is_made_again(
    files: MemFiles, data: bytes | None, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if data is not None:
        files.put(DIRECTORY / EPOCHS_FILE, data)
    assert read_epochs(files, DIRECTORY) is None
    assert ("/data/t-0: " in caplog.text) is warns
    assert ("; reading the epochs from the batches" in caplog.text) is warns


class Piece:
    """A segment with batches of these epochs at these offsets, the last of them damaged."""

    def __init__(self, *batches: tuple[int, int], is_damaged: bool = False) -> None:
        self.path = DIRECTORY / "x.log"
        self._batches = batches
        self._is_damaged = is_damaged

    def batches(self) -> Iterator[ScannedBatch]:
        for epoch, offset in self._batches:
            yield ScannedBatch(0, 1, offset, epoch, 0, offset, 0, 0, -1, -1, -1, 1)
        if self._is_damaged:
            raise BadBatchError(9, "CRC mismatch")


def epochs(*pieces: Piece) -> list[tuple[int, int]]:
    return epochs_of(cast(list[Segment], pieces)).entries()


def test_the_batches_say_which_epochs_wrote_them() -> None:
    found = epochs(Piece((1, 5), (1, 6), (4, 8)), Piece((4, 9), (5, 12), (2, 13), (5, 14)))
    assert found == [(1, 5), (4, 8), (5, 12)]
    assert epochs(Piece((-1, 0))) == epochs() == []


def test_a_damaged_segment_says_what_it_can(caplog: pytest.LogCaptureFixture) -> None:
    assert epochs(Piece((1, 5), is_damaged=True), Piece((3, 9))) == [(1, 5), (3, 9)]
    assert "/data/t-0/x.log is damaged: CRC mismatch at position 9" in caplog.text
