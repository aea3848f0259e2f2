"""Which transactions were aborted: what a read_committed consumer has to leave out.

A segment has an entry for each abort marker in it whose transaction wrote records to the
partition. Format of ``<base offset>.txnindex``, which is Kafka's own: entries of 34 bytes in the
order of the markers, big-endian, nothing else.

    int16   version, 0
    int64   producer id
    int64   offset of the transaction's first record
    int64   offset of its marker
    int64   last stable offset right after the marker

The file is there only where there are entries. That of the active segment lives in memory; it is
written when the segment is closed, and synced before the recovery point passes the segment, so
that after a kill or a power cut it is either whole or made again by the scan that recovery does.
A file that cannot be right is made again from the log (:func:`rebuild`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock_broker.log.files import File, Files, read_file
from penstock_broker.log.index_file import IndexDamagedError
from penstock_broker.log.markers import read_marker
from penstock_broker.log.open_transactions import AbortedTransaction, OpenTransactions
from penstock_broker.wire.records import CONTROL_FLAG, TRANSACTIONAL_FLAG, RecordBatch

if TYPE_CHECKING:
    from penstock_broker.log.segment import Segment

_ENTRY: Final = Struct(">hqqqq")
_LAST_OFFSET: Final = Struct(">18xq8x")
_SIZE: Final = _ENTRY.size
_VERSION: Final = 0


class AbortedTransactions:
    """The index of one segment."""

    __slots__ = ("_data", "_files", "path")

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self._files = files
        self._data: bytearray | None = bytearray()

    def add(self, entry: AbortedTransaction) -> None:
        """Take in an abort marker that has been appended."""
        data = self._opened()
        data += _ENTRY.pack(_VERSION, *entry)

    def entries(self) -> Iterator[AbortedTransaction]:
        """All entries, in the order of their markers. IndexDamagedError, OSError."""
        return self._from(0)

    def has_entries(self) -> bool:
        """Whether any transaction was aborted here. IndexDamagedError, OSError."""
        return bool(self._opened())

    def find(self, first_offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those with records in [first, upper), and whether later segments can have none.

        In the order of their markers. IndexDamagedError, OSError.
        """
        found = []
        for entry in self._from(self._position_of(first_offset)):
            if entry.first_offset < upper_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_offset:
                return found, True
        return found, False

    def _position_of(self, offset: int) -> int:
        """Where the entries begin whose marker is not below ``offset``."""
        data = self._opened()
        low, high = 0, len(data) // _SIZE
        while low < high:
            middle = (low + high) // 2
            if _LAST_OFFSET.unpack_from(data, middle * _SIZE)[0] < offset:
                low = middle + 1
            else:
                high = middle
        return low * _SIZE

    def _from(self, position: int) -> Iterator[AbortedTransaction]:
        data = self._opened()
        for at in range(position, len(data), _SIZE):
            yield AbortedTransaction(*_ENTRY.unpack_from(data, at)[1:])

    # -- the file ----------------------------------------------------------------------------

    def attach(self) -> None:
        """Use the file of a closed segment, when it is first needed."""
        self._data = None

    def load(self) -> None:
        """Bring the file into memory. IndexDamagedError, OSError."""
        self._data = None
        self._opened()

    def save(self) -> None:
        """Write the file if there is anything to be written. OSError."""
        data = self._data
        if data is None:
            return
        if data:
            file = self._files.open(self.path, create=True)
            file.write(data, 0)
            file.truncate(len(data))
        elif self._files.exists(self.path):
            self._files.remove(self.path)

    def copy(self) -> bytes:
        """The entries as they are now, as in the file. IndexDamagedError, OSError."""
        return bytes(self._opened())

    def restore(self, data: bytes) -> None:
        """Take these entries into memory."""
        self._data = bytearray(data)

    def file(self) -> File | None:
        """The file to be synced with its closed segment; None where there is none. OSError."""
        return self._files.open(self.path) if self._files.exists(self.path) else None

    def clear(self) -> None:
        """Remove every entry, to be rebuilt."""
        self._data = bytearray()

    def remove(self) -> None:
        """Delete the file. OSError."""
        self._data = bytearray()
        if self._files.exists(self.path):
            self._files.remove(self.path)

    def _opened(self) -> bytearray:
        if self._data is None:
            try:
                data = read_file(self._files, self.path)
            except FileNotFoundError:
                data = b""
            _check(self.path, data)
            self._data = bytearray(data)
        return self._data


def _check(path: Path, data: bytes) -> None:
    """Whether these can be the entries of a segment; there is no checksum in the format."""
    if len(data) % _SIZE:
        raise IndexDamagedError(f"{path} has an impossible size, {len(data)} bytes")
    before = int(path.name.partition(".")[0]) - 1
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
        if (
            version != _VERSION
            or producer_id < 0
            or not 0 <= first < last
            or last <= before
            or not 0 <= stable <= last + 1
        ):
            raise IndexDamagedError(f"{path} has an impossible entry ({first} to {last})")
        before = last


def rebuild(segments: Sequence[Segment]) -> None:
    """Make the indexes of all segments of a log again, from their batches.

    BadBatchError, OSError. The last segment is the active one.
    """
    transactions = OpenTransactions()
    for segment in segments:
        index = segment.aborted
        index.clear()
        for batch in segment.batches():
            if batch.producer_id < 0 or not batch.attributes & TRANSACTIONAL_FLAG:
                continue
            if not batch.attributes & CONTROL_FLAG:
                if batch.records_count:  # else emptied by compaction, and decided
                    transactions.begin(batch.producer_id, batch.base_offset)
                continue
            data = segment.file.read(batch.position, batch.size)
            marker = read_marker(RecordBatch(memoryview(data)))
            if marker is not None:
                entry = transactions.end(
                    batch.producer_id, batch.base_offset, is_commit=marker.is_commit
                )
                transactions.drop_ended(batch.last_offset + 1)
                if entry is not None:
                    index.add(entry)
        if segment is not segments[-1]:
            index.save()
