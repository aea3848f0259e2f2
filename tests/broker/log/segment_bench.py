"""A segment on a simulated disk, with five batches, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable

from log_bench import DIRECTORY

from penstock_broker.log.index_file import IndexFile
from penstock_broker.log.open_transactions import AbortedTransaction
from penstock_broker.log.segment import PlacedBatch, Segment, segment_name
from penstock_broker.testing import MemFiles, SimClock
from penstock_broker.wire.batch_builder import NewRecord, build_batch

BASE = 100
ABORTED = AbortedTransaction(7, 101, 103, 104)


def disk() -> MemFiles:
    files = MemFiles(SimClock(5_000))
    files.make_directory(DIRECTORY)
    return files


def segment_on(files: MemFiles, interval: int = 1) -> Segment:
    return Segment(files, DIRECTORY, BASE, interval)


def new_segment(interval: int = 1) -> tuple[Segment, MemFiles]:
    files = disk()
    segment = segment_on(files, interval)
    segment.create()
    return segment, files


def placed(base_offset: int, *times: int, size: int = 1) -> PlacedBatch:
    """A batch with a record for each time (or one without)."""
    records = [NewRecord(None, b"v" * size, time) for time in times or (-1,)]
    data = build_batch(records, base_offset=base_offset)
    return data, base_offset, len(data), max(times, default=-1)


BATCHES = [placed(100, 5, 3), placed(102, 2), placed(103, 9), placed(106, 7, 8), placed(110, 4)]
"""Offsets are missing before the last two."""
STARTS = [sum(batch[2] for batch in BATCHES[:number]) for number in range(6)]
END = 111


def filled(interval: int = 1) -> tuple[Segment, MemFiles]:
    segment, files = new_segment(interval)
    segment.append_many(BATCHES[:3])
    segment.append_many(BATCHES[3:])
    return segment, files


def attached(files: MemFiles, interval: int = 1) -> Segment:
    segment = segment_on(files, interval)
    segment.attach()
    return segment


def sealed() -> tuple[Segment, MemFiles]:
    """A closed segment, as a start finds it, and its disk."""
    segment, files = filled()
    segment.aborted.add(ABORTED)
    segment.close(END)
    return attached(files), files


def entries_of(index: IndexFile) -> list[tuple[int, int]]:
    return [index.entry(number) for number in range(len(index))]


OFFSET_ENTRIES = [(2, STARTS[1]), (3, STARTS[2]), (6, STARTS[3]), (10, STARTS[4])]
TIME_ENTRIES = [(5, 3), (9, 10)]


def damaged_file(suffix: str) -> Callable[[MemFiles], None]:
    return lambda files: files.put(DIRECTORY / segment_name(BASE, suffix), b"?")
