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

    def first_at_or_behind(self, position: int) -> int | None:
        """The relative offset of the first entry whose position is not below ``position``; None
        where all are. IndexDamagedError."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.entry(low)[0] if low < len(self) else None
