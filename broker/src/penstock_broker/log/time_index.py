"""From a time to the first offset that can have it.

Format of ``<base offset>.timeindex``: entries of 16 bytes, timestamps growing, in the
frame of ``index_file.py``:

    int64   the largest timestamp of all records of the segment below that offset, ms
    int64   an offset, relative to the segment's base offset, where a batch begins

Producers' timestamps go up and down, so raw values cannot be searched: an entry carries the
running maximum. Every record with a timestamp above an entry's is at or after the entry's offset,
which is where the search for it begins. A closed segment ends with an entry for its whole
content, so its last timestamp is the segment's largest.
"""

from __future__ import annotations

from pathlib import Path

from penstock_broker.log.files import Files
from penstock_broker.log.index_file import IndexFile


class TimeIndex(IndexFile):
    """Running maximum of the timestamps to relative offset."""

    __slots__ = ()

    def __init__(self, files: Files, path: Path) -> None:
        super().__init__(files, path, "q")

    def add(self, timestamp_max: int, relative_offset: int) -> None:
        """Note that no record below the offset is later than ``timestamp_max``."""
        last = self.last()
        if last is not None and last[0] >= timestamp_max:
            self.replace_last(relative_offset)
        else:
            self.append(timestamp_max, relative_offset)

    def first_possible(self, timestamp: int) -> int:
        """The relative offset before which every record is earlier than ``timestamp``."""
        entry = self.floor(timestamp - 1)
        return entry[1] if entry is not None else 0
