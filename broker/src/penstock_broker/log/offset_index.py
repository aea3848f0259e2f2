"""From an offset to a place in the segment's file at or before it.

Format of ``<base offset>.index``: entries of 8 bytes, offsets growing, in the
frame of ``index_file.py``:

    uint32  base offset of a batch, relative to the segment's base offset
    uint32  position of that batch in the segment's file

One entry about every ``index.interval.bytes`` of log. The first batch needs none.
"""

from __future__ import annotations

from pathlib import Path

from penstock_broker.log.files import Files
from penstock_broker.log.index_file import IndexFile


class OffsetIndex(IndexFile):
    """Relative offset to position."""

    __slots__ = ()

    def __init__(self, files: Files, path: Path) -> None:
        super().__init__(files, path, "I")
