"""A segment: one file of batches, and two sparse indexes beside it.

Files in the partition's directory, named by the segment's base offset in 20 digits:

    00000000000000000042.log         record batches of format v2, one after the other, nothing else
    00000000000000000042.index       see offset_index.py
    00000000000000000042.timeindex   see time_index.py
    00000000000000000042.txnindex    see aborted_transactions.py; only where there are any

Each segment has a base offset that is not above the offset of any record in it and above every
offset of the segments before it. Batches are in offset order. The log is authoritative: an index
only gives a position to begin reading at, its entries are compared with the log, and
it is rebuilt by a scan where the two differ.

Not thread-safe; ``sync`` of its file may run in another thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from penstock_broker.log.aborted_transactions import AbortedTransactions
from penstock_broker.log.files import File, Files, waiting
from penstock_broker.log.index_file import IndexDamagedError, Pairs
from penstock_broker.log.offset_index import OffsetIndex
from penstock_broker.log.scan import BadBatchError, Checked, ScannedBatch, check, scan, unchecked
from penstock_broker.log.time_index import TimeIndex
from penstock_broker.wire.primitives import Buffer
from penstock_broker.wire.records import HEADER_BYTES, LENGTH_END, NO_TIMESTAMP, BatchHeader

_log = logging.getLogger(__name__)

INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
SEGMENT_SUFFIXES = (*INDEX_SUFFIXES, ".log")
_LOOK_AHEAD_BYTES = 8192
_OFFSET_DIGITS = 20
# base offset, length, then last_offset_delta at 23: all that finding an offset needs.
_SKIM = Struct(">qi11xi")
_SKIM_SIZE = _SKIM.size


def segment_name(base_offset: int, suffix: str) -> str:
    """``00000000000000000042.log`` for 42 and ``.log``."""
    return f"{base_offset:020d}{suffix}"


def offset_in_name(name: str, suffixes: Container[str]) -> int | None:
    """The offset of a name that :func:`segment_name` gives with one of the suffixes, else None."""
    offset, suffix = name[:_OFFSET_DIGITS], name[_OFFSET_DIGITS:]
    is_ours = suffix in suffixes and offset.isascii() and offset.isdigit()
    return int(offset) if is_ours else None


class SegmentState(NamedTuple):
    """What is in memory of a segment that is appended to."""

    base_offset: int
    written: Checked
    """Its batches."""
    offset_entries: Pairs
    time_entries: Pairs
    aborted: bytes


PlacedBatch = tuple[Buffer, int, int, int]
"""A batch that has its offsets: bytes, base offset, size, largest timestamp."""


class Segment:
    """One file of batches with its indexes."""

    __slots__ = (
        "_file", "_files", "_index_interval_bytes", "_sealed", "_timestamp_max", "_unindexed",
        "aborted", "base_offset", "directory", "first_append_ms", "first_timestamp", "last_batch",
        "offset_index", "size", "time_index",
    )  # fmt: skip

    def __init__(
        self, files: Files, directory: Path, base_offset: int, index_interval_bytes: int
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = 0
        self.first_append_ms: int | None = None
        """When its first batch was written, by the broker's clock; None: it is empty."""
        self.first_timestamp = NO_TIMESTAMP
        """The largest timestamp of its first batch; for segment.ms."""
        self.last_batch = (-1, 0)
        """Base offset and position of the newest batch: where a waiting consumer reads next."""
        self.offset_index = OffsetIndex(files, directory / segment_name(base_offset, ".index"))
        self.time_index = TimeIndex(files, directory / segment_name(base_offset, ".timeindex"))
        self.aborted = AbortedTransactions(
            files, directory / segment_name(base_offset, ".txnindex")
        )
        """The transactions that are aborted by a marker in it."""
        self._files = files
        self._file: File | None = None
        self._index_interval_bytes = index_interval_bytes
        self._unindexed = 0
        self._timestamp_max: int | None = NO_TIMESTAMP
        self._sealed = False

    # -- opening and closing -----------------------------------------------------------------

    @property
    def path(self) -> Path:
        """Where its batches are."""
        return self.directory / segment_name(self.base_offset, ".log")

    @property
    def file(self) -> File:
        """The open file of batches; opened when first needed."""
        if self._file is None:
            self._file = self._files.open(self.path)
        return self._file

    def successor(self) -> Segment:
        """A segment of the same place, to be attached."""
        return Segment(self._files, self.directory, self.base_offset, self._index_interval_bytes)

    def create(self) -> None:
        """Make its empty file."""
        self._file = self._files.open(self.path, create=True)

    def attach(self) -> None:
        """Use a closed segment as it is, opening nothing yet."""
        self.size = self._files.size(self.path)
        self.offset_index.attach()
        self.time_index.attach()
        self.aborted.attach()
        self._timestamp_max = None
        self._sealed = True

    def resume(self, end_offset: int) -> bool:
        """Take up the last segment of a log that was properly closed at ``end_offset``.

        False when the files do not bear that out; the segment is then to be recovered.
        """
        self.size = self._files.size(self.path)
        try:
            self.offset_index.load()
            self.time_index.load()
            self.aborted.load()
        except IndexDamagedError as damage:
            _log.warning("%s: %s", self.path, damage)
            return False
        relative, indexed = self.offset_index.last() or (0, 0)
        timestamp_max, end = self.time_index.last() or (NO_TIMESTAMP, 0)
        if end != end_offset - self.base_offset or indexed > self.size:
            return False
        found_end = self.base_offset
        try:
            for batch in scan(self.file, indexed, self.size, self.base_offset + relative):
                found_end = batch.last_offset + 1
                self.last_batch = (batch.base_offset, batch.position)
        except BadBatchError as bad:
            _log.warning("%s: %s", self.path, bad)
            return False
        self._timestamp_max = timestamp_max
        self._unindexed = self.size - indexed
        self._remember_beginning()
        return found_end == end_offset

    def _remember_beginning(self) -> None:
        """For segment.ms, after a start."""
        if self.size:
            self.first_append_ms = self._files.modified_ms(self.path)
            header = BatchHeader(self.file.read(0, HEADER_BYTES))
            self.first_timestamp = header.max_timestamp

    def close(self, end_offset: int) -> None:
        """Write the indexes of a segment that may be taken up again, and close the files."""
        if not self._sealed:
            self.save_indexes(end_offset)
        self.offset_index.close()
        self.time_index.close()
        self._file = None

    def save_indexes(self, end_offset: int) -> None:
        """Write its indexes, whose last entries say that it ends at ``end_offset``. OSError: it can
        still be appended to, and this be tried again."""
        self._finish_indexes(end_offset)
        self.offset_index.save()
        self.time_index.save()
        self.aborted.save()

    def seal(self) -> None:
        """Close it for good: its indexes are read from the files that have been saved."""
        self.offset_index.attach()
        self.time_index.attach()
        self._sealed = True

    def _finish_indexes(self, end_offset: int) -> None:
        if self.size:
            self.time_index.add(self.timestamp_max, end_offset - self.base_offset)

    def remove(self) -> None:
        """Delete its files. Readers that hold a slice keep the bytes."""
        self._file = None
        self._files.remove(self.path)
        self.offset_index.remove()
        self.time_index.remove()
        self.aborted.remove()

    @property
    def paths(self) -> list[Path]:
        """Its files, the log last: as long as that is there, the segment is."""
        names = [segment_name(self.base_offset, suffix) for suffix in SEGMENT_SUFFIXES]
        return [self.directory / name for name in names]

    def close_files(self) -> None:
        """Close its files; what is read later opens them again."""
        self._file = None
        self.offset_index.close()
        self.time_index.close()

    def truncate(self, size: int) -> None:
        """Cut the file of batches to ``size`` bytes."""
        self.file.truncate(size)
        self.size = size

    # -- writing -----------------------------------------------------------------------------

    def append_many(self, batches: Sequence[PlacedBatch]) -> None:
        """Write whole batches at the end (at least one), one after the other, with one system call.

        OSError: nothing counts as written, though a part of it may lie behind the end; the owner
        cuts that off (:meth:`cut_tail`).
        """
        position = self.size
        self.file.write_parts([batch[0] for batch in batches], position)
        interval, unindexed, latest = (
            self._index_interval_bytes,
            self._unindexed,
            self.timestamp_max,
        )
        for _, base_offset, size, max_timestamp in batches:  # _note, for many
            if unindexed > interval:
                relative = base_offset - self.base_offset
                self.offset_index.append(relative, position)
                self.time_index.add(latest, relative)
                unindexed = 0
            unindexed += size
            position += size
            if max_timestamp > latest:  # noqa: PLR1730 (a call costs as much as all of this)
                latest = max_timestamp
        self._unindexed, self._timestamp_max = unindexed, latest
        self.last_batch = (base_offset, position - size)
        self.size = position

    def _index_batch(self, base_offset: int, position: int, size: int, max_timestamp: int) -> None:
        """Add a batch to the indexes."""
        if self._unindexed > self._index_interval_bytes:
            relative = base_offset - self.base_offset
            self.offset_index.append(relative, position)
            self.time_index.add(self.timestamp_max, relative)
            self._unindexed = 0
        self._unindexed += size
        if max_timestamp > self.timestamp_max:
            self._timestamp_max = max_timestamp
        self.last_batch = (base_offset, position)

    def cut_tail(self) -> None:
        """Cut what a failed append left behind the end."""
        self.file.truncate(self.size)

    def sync(self) -> None:
        """Return when all its batches are on the disk."""
        self.file.sync()

    def to_sync(self) -> tuple[File, ...]:
        """What has to be on the disk for its batches to need no check after a crash. OSError."""
        aborted = self.aborted.file() if self._sealed else None
        return (self.file,) if aborted is None else (self.file, aborted)

    def state(self, end_offset: int) -> SegmentState:
        """What is in memory of it, now that it ends at ``end_offset``: a copy for another thread.
        Only while it is the active one."""
        return SegmentState(
            self.base_offset,
            Checked(end_offset, self.size, self.last_batch, self.timestamp_max, self._unindexed),
            self.offset_index.copy(),
            self.time_index.copy(),
            self.aborted.copy(),
        )

    # -- reading -----------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, int, int] | None:
        """Position, size and base offset of the first batch that ends at or after ``offset``.

        None where no batch of the segment does.
        """
        if self.last_batch[0] == offset:
            return self.last_batch[1], self.size - self.last_batch[1], offset
        try:
            return self._locate(offset)
        except IndexDamagedError as damage:
            self.rebuild_indexes(damage)
            return self._locate(offset)

    def _locate(self, offset: int) -> tuple[int, int, int] | None:
        relative, position = self.offset_index.floor(offset - self.base_offset) or (-1, 0)
        # The first batch found must be the one that the index names.
        expected = self.base_offset + relative if relative >= 0 else -1
        file, end = self.file, self.size
        while position + _SKIM_SIZE <= end:
            chunk = file.read(position, _LOOK_AHEAD_BYTES)
            if len(chunk) < _SKIM_SIZE:  # the file has become shorter
                raise BadBatchError(position, "torn batch: its header is not whole")
            at, last_at = 0, min(len(chunk), end - position) - _SKIM_SIZE
            while at <= last_at:
                base, length, delta = _SKIM.unpack_from(chunk, at)
                if expected not in (-1, base):
                    break
                expected = -1
                if base + delta >= offset:
                    return position + at, length + LENGTH_END, base
                if length < HEADER_BYTES - LENGTH_END:
                    raise BadBatchError(position + at, f"a length of {length}")
                at += length + LENGTH_END
            if expected != -1:
                raise IndexDamagedError(f"{self.path} has no batch {expected} at {position}")
            position += at
        if expected != -1:
            raise IndexDamagedError(f"{self.path} is shorter than its index says")
        return None

    @property
    def timestamp_max(self) -> int:
        """The largest timestamp of its records; -1 where there are none."""
        if self._timestamp_max is None:
            try:
                last = self.time_index.last()
            except IndexDamagedError as damage:
                self.rebuild_indexes(damage)
                last = self.time_index.last()
            self._timestamp_max = last[0] if last else NO_TIMESTAMP
            self.time_index.close()  # a look at all segments leaves no file open
        return self._timestamp_max

    @property
    def oldest_ms(self) -> int:
        """The largest timestamp of its first batch, or when it was last written. OSError."""
        if self.first_timestamp < 0:
            self._remember_beginning()
        if self.first_timestamp < 0:
            return self._files.modified_ms(self.path)
        return self.first_timestamp

    @property
    def newest_ms(self) -> int:
        """Its largest timestamp, or when it was last written where its records have none."""
        newest = self.timestamp_max
        return newest if newest >= 0 else self._files.modified_ms(self.path)

    def place_for_timestamp(self, timestamp: int, start_offset: int) -> tuple[int, int]:
        """Where to begin looking for a record at ``start_offset`` or behind that is as late as
        ``timestamp``: the position of a batch, and its base offset (-1: the index has none)."""
        try:
            return self._place_for_timestamp(timestamp, start_offset)
        except IndexDamagedError as damage:
            self.rebuild_indexes(damage)
            return self._place_for_timestamp(timestamp, start_offset)

    def _place_for_timestamp(self, timestamp: int, start_offset: int) -> tuple[int, int]:
        relative = max(self.time_index.first_possible(timestamp), start_offset - self.base_offset)
        entry = self.offset_index.floor(relative)
        return (0, -1) if entry is None else (entry[1], self.base_offset + entry[0])

    def batches(self, position: int = 0) -> Iterator[ScannedBatch]:
        """All its batches from a position on; :class:`BadBatchError` at damage."""
        return scan(self.file, position, self.size, self.base_offset)

    # -- repair ------------------------------------------------------------------------------

    def recover(
        self,
        next_offset: int,
        check_crc_from: int,
        *,
        begin: SegmentState | None = None,
        holes_below: int,
        epoch: int,
        on_batch: Callable[[ScannedBatch], None],
    ) -> Checked:
        """Read it from its beginning, building its indexes again, or from where ``begin`` was
        taken, continuing with those; see :func:`.scan.check`.

        ``size`` is then where the first bad batch begins, if there is one; the owner truncates
        what follows it. So is what is new in ``aborted``, because the owner knows what had begun
        before. OSError.
        """
        self._clear_indexes()
        self._sealed = False
        if begin is not None:
            self.offset_index.restore(begin.offset_entries)
            self.time_index.restore(begin.time_entries)
            self.aborted.restore(begin.aborted)
        end = self._files.size(self.path)
        found = check(
            self.file,
            end,
            unchecked(next_offset) if begin is None else begin.written,
            check_crc_from=check_crc_from,
            holes_below=holes_below,
            index_interval_bytes=self._index_interval_bytes,
            epoch=epoch,
            on_entry=self._index,
            on_batch=on_batch,
        )
        self.size, self.last_batch = found.size, found.last_batch
        self._timestamp_max, self._unindexed = found.timestamp_max, found.unindexed
        self._remember_beginning()
        return found

    def _index(self, base_offset: int, position: int, timestamp_max: int) -> None:
        relative = base_offset - self.base_offset
        self.offset_index.append(relative, position)
        self.time_index.add(timestamp_max, relative)

    def rebuild_indexes(self, damage: IndexDamagedError) -> None:
        """Make both indexes again from the log; damage in the log itself ends them there."""
        with waiting():  # half an index would be a wrong one
            self._rebuild_indexes(damage)

    def _rebuild_indexes(self, damage: IndexDamagedError) -> None:
        _log.warning("rebuilding the indexes of %s: %s", self.path, damage)
        self._clear_indexes()
        end_offset = self.base_offset
        try:
            for batch in self.batches():
                self._index_batch(
                    batch.base_offset, batch.position, batch.size, batch.max_timestamp
                )
                end_offset = batch.last_offset + 1
        except BadBatchError as bad:
            _log.error("%s is damaged: %s; not indexed from there on", self.path, bad)
        if self._sealed:
            try:
                self.save_indexes(end_offset)
            except OSError as error:
                _log.warning("the indexes of %s stay in memory: %s", self.path, error)
            else:
                self.seal()

    def _clear_indexes(self) -> None:
        self.offset_index.clear()
        self.time_index.clear()
        self._timestamp_max = NO_TIMESTAMP
        self._unindexed = 0
        self.last_batch = (-1, 0)
