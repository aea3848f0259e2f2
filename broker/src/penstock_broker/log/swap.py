"""Replacing segments by the compacted one that was made from them, whatever crashes.

The names in a partition's directory, in the order in which they are made:

1. ``<token>.cleaned/``: a directory that the compaction writes to. Left behind, it is removed.
2. ``<base>-<end>.swap``: a finished segment, synced, that replaces all segments with base offsets
   in [base, end); both numbers in 20 digits. From here on the new segment counts: a start that
   finds it removes those that it replaces and gives it its name.
3. The replaced segments are renamed (``.deleted``), then the ``.swap`` becomes ``<base>.log``.

``cleaner-checkpoint`` (checkpoint format of ``checkpoint.py``) has two lines, ``first_dirty N`` and
``holes_below N``: where the next compaction begins, and the offset below which offsets may be
missing between batches. The second is written before step 2, because a start after a kill takes a
missing offset above it for damage; the first after step 3.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from penstock_broker.log.checkpoint import CheckpointDamagedError, read_lines, write_lines
from penstock_broker.log.files import Files
from penstock_broker.log.segment import (
    SEGMENT_SUFFIXES,
    Segment,
    offset_in_name,
    segment_name,
)
from penstock_broker.log.trash import DELETED_SUFFIX

_log = logging.getLogger(__name__)

CHECKPOINT_FILE = "cleaner-checkpoint"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_SWAP = re.compile(r"(\d{20})-(\d{20})\.swap")
EVERYWHERE = 2**63 - 1


class CleanerCheckpoint(NamedTuple):
    """What compaction has done to a log."""

    first_dirty: int = 0
    holes_below: int = 0


def read_cleaner_checkpoint(files: Files, directory: Path) -> CleanerCheckpoint:
    """The checkpoint; without one nothing has been compacted. A damaged one says: holes may be
    anywhere, and all is to be compacted again. OSError."""
    path = directory / CHECKPOINT_FILE
    try:
        lines = dict(line.split(" ") for line in read_lines(files, path))
        if not lines:
            return CleanerCheckpoint()
        return CleanerCheckpoint(int(lines["first_dirty"]), int(lines["holes_below"]))
    except (CheckpointDamagedError, ValueError, KeyError) as damage:
        _log.warning("%s is damaged: %s", path, damage)
        return CleanerCheckpoint(0, EVERYWHERE)


def write_cleaner_checkpoint(files: Files, directory: Path, checkpoint: CleanerCheckpoint) -> None:
    """Replace it; it is on the disk when this returns. OSError."""
    lines = (f"first_dirty {checkpoint.first_dirty}", f"holes_below {checkpoint.holes_below}")
    write_lines(files, directory / CHECKPOINT_FILE, lines)


def swap_path(directory: Path, base_offset: int, end_offset: int) -> Path:
    """Where a finished segment waits."""
    return directory / f"{base_offset:020d}-{end_offset:020d}{SWAP_SUFFIX}"


def put_in_place(
    files: Files, old: Sequence[Segment], swap: Path, cleaned: Path
) -> tuple[Segment, list[Path]]:
    """The finished segment under its own name, and the replaced files under theirs. OSError."""
    new = old[0].successor()
    for segment in old:
        segment.close_files()
    gone = _set_aside(files, [path for segment in old for path in segment.paths])
    _take_place(files, swap, cleaned, new.paths)
    new.attach()
    return new, gone


def _set_aside(files: Files, paths: Sequence[Path]) -> list[Path]:
    renamed = []
    for path in paths:
        aside = path.with_name(path.name + DELETED_SUFFIX)
        try:
            files.rename(path, aside)
        except FileNotFoundError:
            continue
        renamed.append(aside)
    return renamed


def _take_place(files: Files, swap: Path, cleaned: Path, paths: Sequence[Path]) -> None:
    # The log itself comes last: until then a start finishes what is half done.
    for path in paths:
        if path.suffix == ".log":
            files.rename(swap, path)
        elif files.exists(cleaned / path.name):
            files.rename(cleaned / path.name, path)


def finish_swaps(files: Files, directory: Path) -> None:
    """Finish at a start what a crash interrupted; no segment is open yet. OSError."""
    names = files.names(directory)
    for name in names:
        found = _SWAP.fullmatch(name)
        if found is None:
            continue
        base, end = int(found[1]), int(found[2])
        for other in names:
            offset = offset_in_name(other, SEGMENT_SUFFIXES)
            if offset is not None and base <= offset < end:
                files.remove(directory / other)
        files.rename(directory / name, directory / segment_name(base, ".log"))
        files.sync_directory(directory)
        _log.info("%s: replaced segments %d to %d by the compacted one", directory, base, end)
