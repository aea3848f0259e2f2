"""Looks at every file of a data directory, and says what is wrong: ``check-log DIR``.

Read-only: it takes no lock, repairs nothing and may look at the directory of a running broker,
whose newest batch may then seem torn. Of each partition it checks

* every batch: header, CRC-32C, records that can be read and whose number, offsets, largest
  timestamp and length are those of the header;
* offsets: growing, and without a hole except where compaction has been (``cleaner-checkpoint``);
* segments: that the name is not above the first offset, that none overlaps the next;
* both indexes, where they are written: checksum, order, and that each entry points at what it says;
  the time index also that no record before an entry is later than it says;
* leader epochs: the file against the batches; never falling;
* the producers' snapshots: readable; the index of aborted transactions: that each entry is in
  the log;
* names that no broker gives, and half-finished replacements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from penstock_broker.log.aborted_transactions import AbortedTransactions
from penstock_broker.log.data_directory import parse_log_directory_name
from penstock_broker.log.epoch_file import EPOCHS_FILE, read_epochs
from penstock_broker.log.files import ReadOnlyFiles, read_file
from penstock_broker.log.index_file import IndexDamagedError
from penstock_broker.log.leader_epochs import LeaderEpochs
from penstock_broker.log.offset_index import OffsetIndex
from penstock_broker.log.producer_state import ProducerState, SnapshotDamagedError
from penstock_broker.log.scan import BadBatchError, ScannedBatch, scan
from penstock_broker.log.segment import segment_name
from penstock_broker.log.segment_checkpoint import (
    CHECKPOINT_SUFFIX,
    Checkpoint,
    CheckpointUnusableError,
)
from penstock_broker.log.swap import CHECKPOINT_FILE, EVERYWHERE, read_cleaner_checkpoint
from penstock_broker.log.time_index import TimeIndex
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import CONTROL_FLAG, NO_TIMESTAMP, RecordBatch

_NUMBERED = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot|checkpoint)(\.deleted)?")
_KNOWN = {"partition.metadata", EPOCHS_FILE, CHECKPOINT_FILE}


def check_log(directory: Path, out: TextIO, *, with_records: bool = True) -> int:
    """Check a data directory, or the directory of one partition; one line a problem and a sum.

    Returns an exit status: 0, or 1 where something is wrong. ``with_records`` opens every batch.
    """
    partitions = [directory] if _is_partition(directory) else _partitions(directory)
    problems = batches = size = 0
    for partition in partitions:
        checker = _Checker(partition, with_records)
        for problem in checker.problems():
            out.write(f"{partition.name}: {problem}\n")
            problems += 1
        batches += checker.batches
        size += checker.size
    out.write(
        f"{len(partitions)} partitions, {batches} batches, {size} bytes: "
        + (f"{problems} problems\n" if problems else "all intact\n")
    )
    return 1 if problems else 0


def _is_partition(directory: Path) -> bool:
    return (directory / "partition.metadata").exists() or any(directory.glob("*.log"))


def _partitions(directory: Path) -> list[Path]:
    return sorted(
        path for path in directory.iterdir()
        if path.is_dir() and parse_log_directory_name(path.name) is not None
    )  # fmt: skip


class _Checker:
    """One partition."""

    def __init__(self, directory: Path, with_records: bool) -> None:
        self.batches = 0
        self.size = 0
        self._directory = directory
        self._with_records = with_records
        self._files = ReadOnlyFiles()
        self._epochs = LeaderEpochs()
        self._next_offset = 0

    def problems(self) -> Iterator[str]:
        """Everything that is wrong."""
        try:
            yield from self._all()
        except OSError as error:
            yield f"cannot be read: {error}"

    def _all(self) -> Iterator[str]:
        names = self._files.names(self._directory)
        bases = sorted(int(n[:20]) for n in names if n.endswith(".log") and _NUMBERED.fullmatch(n))
        yield from self._strange_names(names, set(bases))
        if not bases:
            yield "there is no segment"
            return
        cleaned = read_cleaner_checkpoint(self._files, self._directory)
        if cleaned.holes_below == EVERYWHERE:
            yield f"{CHECKPOINT_FILE} is damaged"
        self._next_offset = bases[0]
        for number, base in enumerate(bases):
            end = bases[number + 1] if number + 1 < len(bases) else None
            if base > max(self._next_offset, cleaned.holes_below):
                yield f"offsets {self._next_offset} to {base - 1} are missing"
            self._next_offset = max(self._next_offset, base)
            yield from self._segment(base, end, cleaned.holes_below)
        yield from self._epoch_file()
        yield from self._snapshots(names)
        yield from self._checkpoints(names)

    def _strange_names(self, names: list[str], bases: set[int]) -> Iterator[str]:
        for name in names:
            found = _NUMBERED.fullmatch(name)
            if name in _KNOWN or (found and found[3]):
                continue
            if found is None:
                yield f"{name} is no file of a finished log"
            elif found[2] not in ("snapshot", "checkpoint") and int(found[1]) not in bases:
                yield f"{name} belongs to no segment"

    # -- one segment -------------------------------------------------------------------------

    def _segment(self, base: int, end: int | None, holes_below: int) -> Iterator[str]:
        name = segment_name(base, ".log")
        file = self._files.open(self._directory / name)
        size = file.size()
        self.size += size
        places: dict[int, int] = {}
        newest: list[tuple[int, int]] = []  # running maximum of timestamps, up to an offset
        latest = NO_TIMESTAMP
        markers: dict[int, int] = {}  # the producer of each, by offset
        try:
            for batch in scan(file, 0, size, base, check_crc=True):
                self.batches += 1
                where = f"{name} at position {batch.position}"
                if batch.base_offset > max(self._next_offset, holes_below):
                    missing = f"{self._next_offset} to {batch.base_offset - 1}"
                    yield f"{where}: offsets {missing} are missing"
                if end is not None and batch.last_offset >= end:
                    yield f"{where}: offset {batch.last_offset} belongs to the next segment"
                if batch.leader_epoch < self._epochs.latest:
                    yield f"{where}: leader epoch {batch.leader_epoch} after {self._epochs.latest}"
                self._epochs.assign(batch.leader_epoch, batch.base_offset)
                places[batch.base_offset] = batch.position
                if batch.attributes & CONTROL_FLAG:
                    markers[batch.base_offset] = batch.producer_id
                newest.append((batch.base_offset, latest))
                latest = max(latest, batch.max_timestamp)
                self._next_offset = batch.last_offset + 1
                if self._with_records:
                    data = memoryview(file.read(batch.position, batch.size))
                    yield from _records(where, RecordBatch(data), batch)
        except BadBatchError as bad:
            yield f"{name}: {bad}; {size - bad.position} bytes from there on are not valid"
        newest.append((self._next_offset, latest))
        yield from self._offset_index(base, places)
        yield from self._time_index(base, newest)
        yield from self._aborted(base, markers)

    def _offset_index(self, base: int, places: dict[int, int]) -> Iterator[str]:
        path = self._directory / segment_name(base, ".index")
        if not path.exists():
            return  # of the active segment, while the broker runs or after a kill
        index = OffsetIndex(self._files, path)
        index.attach()
        try:
            entries = [index.entry(number) for number in range(len(index))]
        except IndexDamagedError as damage:
            yield f"{path.name}: {damage}"
            return
        for relative, position in entries:
            if places.get(base + relative) != position:
                yield f"{path.name}: no batch {base + relative} at position {position}"
                return

    def _time_index(self, base: int, newest: list[tuple[int, int]]) -> Iterator[str]:
        path = self._directory / segment_name(base, ".timeindex")
        if not path.exists():
            return
        index = TimeIndex(self._files, path)
        index.attach()
        try:
            entries = [index.entry(number) for number in range(len(index))]
        except IndexDamagedError as damage:
            yield f"{path.name}: {damage}"
            return
        at = 0
        for timestamp, relative in entries:
            while at + 1 < len(newest) and newest[at + 1][0] <= base + relative:
                at += 1
            if newest[at][1] > timestamp:
                yield (
                    f"{path.name}: a record before offset {base + relative} is of "
                    f"{newest[at][1]}, later than {timestamp}"
                )
                return

    def _aborted(self, base: int, markers: dict[int, int]) -> Iterator[str]:
        index = AbortedTransactions(self._files, self._directory / segment_name(base, ".txnindex"))
        try:
            index.load()
        except IndexDamagedError as damage:
            yield f"{index.path.name}: {damage}"
            return
        for producer_id, _, offset, _ in index.entries():
            if markers.get(offset) != producer_id:
                yield f"{index.path.name}: no marker of producer {producer_id} at offset {offset}"
                return

    # -- beside the segments -----------------------------------------------------------------

    def _epoch_file(self) -> Iterator[str]:
        known = read_epochs(self._files, self._directory)
        if known is None:
            if self._epochs.entries():
                yield f"{EPOCHS_FILE} is missing or damaged"
            return
        for epoch, start in self._epochs.entries():
            said = known.epoch_of(start)
            if said != epoch:
                yield f"{EPOCHS_FILE}: offset {start} is of epoch {epoch}, the file says {said}"

    def _snapshots(self, names: list[str]) -> Iterator[str]:
        for name in names:
            if name.endswith(".snapshot"):
                try:
                    ProducerState().load_snapshot(read_file(self._files, self._directory / name))
                except SnapshotDamagedError as damage:
                    yield f"{name}: {damage}"

    def _checkpoints(self, names: list[str]) -> Iterator[str]:
        for name in names:
            if name.endswith(CHECKPOINT_SUFFIX):
                try:
                    Checkpoint(read_file(self._files, self._directory / name))
                except CheckpointUnusableError as damage:
                    yield f"{name}: {damage}"


def _records(where: str, batch: RecordBatch, scanned: ScannedBatch) -> Iterator[str]:
    """Hold the records of a batch against its header."""
    try:
        found = [(record.offset, record.timestamp) for record in batch.records()]
    except DecodeError as error:
        yield f"{where}: its records cannot be read: {error}"
        return
    offsets = [offset for offset, _ in found]
    if offsets != sorted(set(offsets)) or any(
        not scanned.base_offset <= offset <= scanned.last_offset for offset in offsets
    ):
        yield f"{where}: its records have offsets that are not the batch's"
    latest = max((timestamp for _, timestamp in found), default=scanned.max_timestamp)
    if latest != scanned.max_timestamp:
        yield f"{where}: its largest timestamp is {latest}, not {scanned.max_timestamp}"
