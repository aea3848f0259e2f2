"""What the two indexes share: sorted pairs of numbers, and a file that is never trusted.

The index of the active segment lives in memory, in two arrays; ``save`` writes it out when the
segment is closed. From then on it is searched in its file, by one read of the block that a short
list of keys names: 8 bytes of memory for every 512 entries.

Format of the file: entries of two numbers of the same size, then a trailer of 12 bytes, all
big-endian:

    "PIDX"   4 bytes
    uint32   number of entries
    uint32   CRC-32C of all that comes before it

The file is checked as a whole when it is first used; missing, cut short or changed it raises
:class:`IndexDamagedError`, and its owner rebuilds it by scanning the log. So does an entry whose
batch is not in the log where the entry says (see ``segment.py``). Nothing is ever synced: losing
an index costs a scan.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from pathlib import Path
from struct import Struct
from typing import Literal

from crc32c import crc32c

from penstock_broker.log.files import File, Files

_TRAILER = Struct(">4sII")
_MAGIC = b"PIDX"
_BLOCK_ENTRIES = 512
_SWAP = sys.byteorder == "little"


class IndexDamagedError(Exception):
    """The index does not fit the log; a scan of the log makes a new one."""


Code = Literal["I", "q"]
"""The letter of numbers in ``array`` and ``struct``: 4 or 8 bytes."""
Pairs = tuple["array[int]", "array[int]"]
"""The keys of all entries, and their values."""


def pack(pairs: Pairs) -> bytes:
    """Entries as they are in the file, without its trailer."""
    keys, values = pairs
    both = array(keys.typecode, bytes(2 * len(keys) * keys.itemsize))
    both[0::2], both[1::2] = keys, values
    if _SWAP:
        both.byteswap()
    return both.tobytes()


def unpack(code: Code, data: bytes) -> Pairs:
    """Entries from the bytes that :func:`pack` made of them. ValueError."""
    both = array(code, data)
    if _SWAP:
        both.byteswap()
    return both[0::2], both[1::2]


class IndexFile:
    """Pairs (key, value) whose keys grow."""

    __slots__ = (
        "_block", "_block_keys", "_block_number", "_code", "_count", "_entry", "_file", "_files",
        "_pairs", "path",
    )  # fmt: skip

    def __init__(self, files: Files, path: Path, code: Code) -> None:
        self.path = path
        self._files = files
        self._code = code
        self._entry = Struct(f">2{code}")
        self._pairs: Pairs | None = (array(code), array(code))
        self._file: File | None = None
        self._count = 0
        self._block = b""
        self._block_number = -1
        self._block_keys: array[int] = array("q")

    def __len__(self) -> int:
        if self._pairs is not None:
            keys, _ = self._pairs
            return len(keys)
        self._opened()
        return self._count

    @property
    def size_bytes(self) -> int:
        """Bytes that the entries take in the file."""
        return len(self) * self._entry.size

    def append(self, key: int, value: int) -> None:
        """Add an entry; its key is larger than all before. Only while in memory."""
        keys, values = self._in_memory()
        keys.append(key)
        values.append(value)

    def replace_last(self, value: int) -> None:
        """Give the last entry another value. Only while in memory."""
        _, values = self._in_memory()
        values[-1] = value

    def last(self) -> tuple[int, int] | None:
        """The last entry."""
        count = len(self)
        return self.entry(count - 1) if count else None

    def entry(self, number: int) -> tuple[int, int]:
        """The entry at a position, from 0."""
        if self._pairs is not None:
            keys, values = self._pairs
            return keys[number], values[number]
        size = self._entry.size
        key, value = self._entry.unpack(self._opened().read(number * size, size))
        return key, value

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose key is not above ``key``; None where all are."""
        if self._pairs is not None:
            keys, values = self._pairs
            number = bisect_right(keys, key) - 1
            return (keys[number], values[number]) if number >= 0 else None
        file = self._opened()
        number = bisect_right(self._block_keys, key) - 1
        if number < 0:
            return None
        if number != self._block_number:
            size = _BLOCK_ENTRIES * self._entry.size
            left = (self._count - number * _BLOCK_ENTRIES) * self._entry.size
            self._block = file.read(number * size, min(size, left))
            self._block_number = number
        return self._floor_in_block(key)

    def _floor_in_block(self, key: int) -> tuple[int, int]:
        unpack_from, size, block = self._entry.unpack_from, self._entry.size, self._block
        if len(block) < size:
            raise IndexDamagedError(f"{self.path} has been cut short")
        low, high = 0, len(block) // size
        while low + 1 < high:
            middle = (low + high) // 2
            if unpack_from(block, middle * size)[0] <= key:
                low = middle
            else:
                high = middle
        found: tuple[int, int] = unpack_from(block, low * size)
        return found

    def copy(self) -> Pairs:
        """The entries as they are now, for another thread. Only while in memory."""
        keys, values = self._in_memory()
        return keys[:], values[:]

    def restore(self, pairs: Pairs) -> None:
        """Have these entries, in memory."""
        self._pairs = pairs
        self._file = None

    def save(self) -> None:
        """Write the file, whole."""
        keys, values = self._in_memory()
        data = pack((keys, values))
        head = _MAGIC + len(keys).to_bytes(4, "big")
        crc = crc32c(head, crc32c(data))
        file = self._files.open(self.path, create=True)
        file.write_parts((data, head, crc.to_bytes(4, "big")), 0)
        file.truncate(len(data) + _TRAILER.size)

    def attach(self) -> None:
        """Use the file of a closed segment, when it is first needed."""
        self._pairs = self._file = None
        self._block_number = -1

    def load(self) -> None:
        """Bring the file back into memory, for the active segment."""
        self.attach()
        file = self._opened()
        self.restore(unpack(self._code, file.read(0, self._count * self._entry.size)))

    def clear(self) -> None:
        """Remove every entry, to be rebuilt in memory."""
        self.restore((array(self._code), array(self._code)))

    def close(self) -> None:
        """Close the file."""
        self._file = None

    def remove(self) -> None:
        """Delete the file."""
        self._file = None
        self._files.remove(self.path)

    def _in_memory(self) -> Pairs:
        if self._pairs is None:
            raise ValueError(f"{self.path.name} is sealed")
        return self._pairs

    def _opened(self) -> File:
        """The file, checked as a whole once."""
        if self._file is None:
            try:
                file = self._files.open(self.path)
            except FileNotFoundError:
                raise IndexDamagedError(f"{self.path} is missing") from None
            data = file.read(0, file.size())
            body = len(data) - _TRAILER.size
            if len(data) < _TRAILER.size or body % self._entry.size:
                raise IndexDamagedError(f"{self.path} has an impossible size, {len(data)} bytes")
            magic, count, crc = _TRAILER.unpack_from(data, body)
            whole = magic == _MAGIC and count == body // self._entry.size
            if not whole or crc32c(data[:-4]) != crc:
                raise IndexDamagedError(f"{self.path} does not match its checksum")
            self._file = file
            self._count = count
            step = _BLOCK_ENTRIES * self._entry.size
            unpack_from = self._entry.unpack_from
            self._block_keys = array("q", (unpack_from(data, at)[0] for at in range(0, body, step)))
        return self._file
