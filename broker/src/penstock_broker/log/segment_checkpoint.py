"""What lets a start after a kill begin inside a segment, not at its beginning.

What is known of the active segment lives in memory: its indexes, the transactions that it aborts,
the state of producers. A checkpoint is a copy of that at one offset, in a file of the partition's
directory, ``<offset>.checkpoint``. It is written after all batches below the offset have been
synced, by the same thread: where it is whole, they are on the disk, whatever
``recovery-point-offset-checkpoint`` says. It is not synced itself: one that is torn or lost is
passed over, and the start begins at an older one or at the beginning of the segment.

Each has a name of its own and is written through a file that the owner of the log has opened, so
that a torn one replaces none, and nothing is written to a log that was made meanwhile
under the name of a deleted one. Older ones go when a newer one is whole; that of a closed segment
goes when the segment has been synced, which is before compaction may replace it.

Format, big-endian:

    uint16  format version, 1
    uint32  CRC-32C of what follows
    int64   offset                 int64  base offset of the segment
    int64   bytes of the segment below the offset
    int64   largest timestamp of its records, ms, -1 for none
    int64   bytes behind the last batch that has an index entry
    int64   position of the last batch
    61 bytes  the header of that batch: what the segment has to have there
    4 uint32  bytes of each of the following:
    entries as in .index, entries as in .timeindex, entries as in .txnindex, a .snapshot
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from struct import Struct, error
from typing import Final

from crc32c import crc32c

from penstock_broker.log.files import File, Files, read_file
from penstock_broker.log.index_file import pack, unpack
from penstock_broker.log.producer_state import (
    Producers,
    ProducerState,
    SnapshotDamagedError,
    snapshot_of,
)
from penstock_broker.log.scan import Checked
from penstock_broker.log.segment import Segment, SegmentState, offset_in_name, segment_name
from penstock_broker.wire.records import HEADER, HEADER_BYTES, LENGTH_END

_log = logging.getLogger(__name__)

CHECKPOINT_SUFFIX: Final = ".checkpoint"
_HEAD: Final = Struct(">HI")
_BODY: Final = Struct(f">6q{HEADER_BYTES}s4I")
_VERSION: Final = 1


class CheckpointUnusableError(Exception):
    """It is damaged, or is not of this log; an older one, or the log alone, can be used."""


class CheckpointWrite:
    """A checkpoint to be written, in any thread, when the log is on the disk below its offset."""

    __slots__ = ("_file", "_log_file", "_producers", "is_written", "path", "state")

    def __init__(self, state: SegmentState, producers: Producers, log_file: File, file: File):
        self.state = state
        self.path = file.path
        self.is_written = False
        """Whether the file is whole."""
        self._producers = producers
        self._log_file = log_file
        self._file = file

    def run(self) -> None:
        """Write it. Without it a start reads more: what the disk says against it is logged."""
        try:
            at = self.state.written.last_batch[1]
            data = _encode(self.state, self._log_file.read(at, HEADER_BYTES), self._producers)
            self._file.write(data, 0)
            self._file.truncate(len(data))
        except OSError as problem:
            _log.warning("%s cannot be written: %s", self.path, problem)
            return
        self.is_written = True


class Checkpoint:
    """A checkpoint that was found."""

    __slots__ = ("header", "offset", "producers", "state")

    def __init__(self, data: bytes) -> None:
        """:class:`CheckpointUnusableError`."""
        try:
            version, crc = _HEAD.unpack_from(data)
            if version != _VERSION or crc32c(memoryview(data)[_HEAD.size :]) != crc:
                raise CheckpointUnusableError(f"version {version}, or the CRC does not match")
            (self.offset, base, size, latest, unindexed, last, header, *lengths) = (
                _BODY.unpack_from(data, _HEAD.size)
            )
            at, parts = _HEAD.size + _BODY.size, []
            for length in lengths:
                parts.append(data[at : at + length])
                at += length
            self.producers = ProducerState()
            self.producers.load_snapshot(parts[3])
            entries, times = unpack("I", parts[0]), unpack("q", parts[1])
        except (error, ValueError, SnapshotDamagedError) as damage:
            raise CheckpointUnusableError(str(damage)) from None
        self.header = header
        last_base = HEADER.unpack(header)[0]
        written = Checked(self.offset, size, (last_base, last), latest, unindexed)
        self.state = SegmentState(base, written, entries, times, parts[2])

    def check(self, segments: Sequence[Segment], recovery_point: int) -> None:
        """Whether it is of the segment, of these, in which the log has to be checked from the
        recovery point on. :class:`CheckpointUnusableError`, OSError."""
        bases = [segment.base_offset for segment in segments]
        if self.state.base_offset not in bases:
            raise CheckpointUnusableError("its segment is not there")
        point = max(recovery_point, self.offset)
        if self.state.base_offset != max((base for base in bases if base <= point), default=-1):
            raise CheckpointUnusableError("its segment needs no check")
        written = self.state.written
        position = written.last_batch[1]
        base, length, _, _, _, _, delta = HEADER.unpack(self.header)[:7]
        ends = (base + delta + 1, position + length + LENGTH_END)
        segment = segments[bases.index(self.state.base_offset)]
        found = segment.file.read(position, HEADER_BYTES)
        if ends != (self.offset, written.size) or found != self.header:
            raise CheckpointUnusableError("it is not of what the segment holds")
        if segment.file.size() < written.size:
            raise CheckpointUnusableError("the segment is shorter")


def _encode(state: SegmentState, header: bytes, producers: Producers) -> bytes:
    end_offset, size, last_batch, timestamp_max, unindexed, _ = state.written
    parts = (
        pack(state.offset_entries), pack(state.time_entries), state.aborted,
        snapshot_of(producers, end_offset),
    )  # fmt: skip
    fixed = _BODY.pack(
        end_offset, state.base_offset, size, timestamp_max, unindexed, last_batch[1], header,
        *map(len, parts),
    )  # fmt: skip
    body = b"".join((fixed, *parts))
    return _HEAD.pack(_VERSION, crc32c(body)) + body


class LogCheckpoints:
    """The checkpoints of one log. Owned by it."""

    __slots__ = ("_directory", "_files", "_paths", "_saved", "_under_way")

    def __init__(self, files: Files, directory: Path, names: Sequence[str]) -> None:
        """``names`` are those in the directory."""
        self._files = files
        self._directory = directory
        self._paths = [
            directory / name
            for name in sorted(names)
            if offset_in_name(name, [CHECKPOINT_SUFFIX]) is not None
        ]
        self._saved = (-1, 0)  # base offset of the segment, bytes of it below the newest
        self._under_way: CheckpointWrite | None = None

    def find(self, segments: Sequence[Segment], recovery_point: int) -> Checkpoint | None:
        """The newest one from which the log can be checked; all others are removed. OSError.

        None where there is none in the segment that holds the recovery point, or behind; or no
        recovery point: then all is to be checked.
        """
        while self._paths and recovery_point:
            path = self._paths[-1]
            try:
                checkpoint = Checkpoint(read_file(self._files, path))
                checkpoint.check(segments, recovery_point)
            except CheckpointUnusableError as problem:
                _log.info("%s is not used: %s", path, problem)
                self._remove([path])
            else:
                self._remove(self._paths[:-1])
                self._saved = (checkpoint.state.base_offset, checkpoint.state.written.size)
                return checkpoint
        self._remove(self._paths)
        return None

    def resume(self, active: Segment, end_offset: int) -> None:
        """The log was closed at ``end_offset``, and is opened again."""
        newest = self._path(end_offset)
        if newest in self._paths:
            self._saved = (active.base_offset, active.size)
        self._remove([path for path in self._paths if path != newest])

    def _path(self, offset: int) -> Path:
        return self._directory / segment_name(offset, CHECKPOINT_SUFFIX)

    def bytes_behind(self, active: Segment) -> int:
        """How much of the active segment a start after a kill would have to read."""
        base_offset, size = self._saved
        return active.size - size if base_offset == active.base_offset else active.size

    def begin(
        self, active: Segment, end_offset: int, producers: ProducerState
    ) -> CheckpointWrite | None:
        """What is to be written when the log is on the disk as far as it goes now. None where there
        is nothing to be written, or it cannot be."""
        if self._under_way is not None or not self.bytes_behind(active):
            return None
        path = self._path(end_offset)
        try:
            file = self._files.open(path, create=True)
        except OSError as problem:
            _log.warning("%s cannot be written: %s", path, problem)
            return None
        write = CheckpointWrite(active.state(end_offset), producers.copy(), active.file, file)
        self._under_way = write
        self._paths.append(path)
        return write

    def flushed(self, write: CheckpointWrite | None, recovery_point: int, active: Segment) -> None:
        """The log is on the disk below the recovery point, and what was to be written has been."""
        if write is not None:
            self._under_way = None
            if write.is_written:
                self._saved = (write.state.base_offset, write.state.written.size)
                self._remove([path for path in self._paths if path != write.path])
            else:
                self._remove([write.path])
        if self._saved[0] != active.base_offset <= recovery_point:
            # But not the first one of the active segment: another flush may end before its own.
            under_way = self._under_way
            is_of_active = under_way and under_way.state.base_offset == active.base_offset
            kept = under_way.path if under_way and is_of_active else None
            self._remove([path for path in self._paths if path != kept])

    def _remove(self, paths: Sequence[Path]) -> None:
        for path in list(paths):
            try:
                self._files.remove(path)
            except OSError as problem:
                _log.warning("%s cannot be removed: %s", path, problem)
            else:
                self._paths.remove(path)
