"""What a log is after a start: its segments, its end, and what had to be cut.

After a clean stop the end is known and nothing is read but the last few batches. After a kill or
a power cut every batch past the recovery point is read and its CRC checked, not the tail alone,
because a disk may write pages in any order. The log ends before the first batch that is torn,
damaged or out of order, or where offsets are missing between two segments; everything after that
is removed, and a :class:`Cut` says exactly what it was.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_broker.log.files import Files, read_file
from penstock_broker.log.leader_epochs import NO_EPOCH, LeaderEpochs
from penstock_broker.log.markers import read_marker
from penstock_broker.log.open_transactions import AbortedTransaction
from penstock_broker.log.producer_state import (
    SEQUENCE_MASK,
    AppendedBatch,
    ProducerState,
    SnapshotDamagedError,
)
from penstock_broker.log.scan import BadBatchError, ScannedBatch, scan
from penstock_broker.log.segment import INDEX_SUFFIXES, Segment, offset_in_name, segment_name
from penstock_broker.log.segment_checkpoint import Checkpoint, LogCheckpoints
from penstock_broker.log.swap import CLEANED_SUFFIX, finish_swaps
from penstock_broker.log.trash import DELETED_SUFFIX
from penstock_broker.wire.records import CONTROL_FLAG, TRANSACTIONAL_FLAG, RecordBatch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cut:
    """What recovery removed from the end of a log."""

    topic: str
    partition: int
    first_offset: int
    """The first offset that is gone; the log ends here."""
    end_offset: int | None
    """One past the last offset that the removed bytes named; None if none could be read."""
    reason: str
    segment: str
    position: int
    bytes_cut: int
    segments_removed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The line of the recovery report (see ``recovery_report.py``), without its time."""
        return {
            "event": "cut",
            "topic": self.topic,
            "partition": self.partition,
            "first_offset": self.first_offset,
            "end_offset": self.end_offset,
            "reason": self.reason,
            "segment": self.segment,
            "position": self.position,
            "bytes": self.bytes_cut,
            "segments_removed": list(self.segments_removed),
        }


@dataclass(slots=True)
class Recovered:
    """A log as it was found."""

    segments: list[Segment]
    end_offset: int
    checkpoints: LogCheckpoints
    producers: ProducerState = field(default_factory=ProducerState)
    clean: bool = True
    bytes_checked: int = 0
    cut: Cut | None = None
    holes_below: int = 0
    """Offsets below may be missing: compaction has been there."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Which log, and where it is."""

    files: Files
    directory: Path
    topic: str
    partition: int
    index_interval_bytes: int


def recover(
    place: LogPlace,
    epochs: LeaderEpochs,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    holes_below: int,
    now_ms: int,
) -> Recovered:
    """Open the segments of a directory.

    ``clean``: the log was closed, and ends at ``recovery_point``. Otherwise all batches from
    there on are checked. Offsets below ``holes_below`` may be missing. ``epochs`` is brought up to
    date. Raises OSError.
    """
    finish_swaps(place.files, place.directory)
    names = place.files.names(place.directory)
    segments = _list_segments(place, names)
    checkpoints = LogCheckpoints(place.files, place.directory, names)
    if not segments:
        return _begin(place, checkpoints, log_start_offset, recovery_point, clean=clean)
    for segment in segments[:-1]:
        segment.attach()
    if clean and segments[-1].resume(recovery_point):
        found = Recovered(segments, recovery_point, checkpoints)
        checkpoints.resume(segments[-1], recovery_point)
        _rebuild_producers(place, found, None, up_to=recovery_point, now_ms=now_ms)
        return found
    if clean:
        _log.warning(
            "%s-%d was closed at %d, but its last segment does not match that: checking it",
            place.topic, place.partition, recovery_point,
        )  # fmt: skip
        recovery_point = min(recovery_point, segments[-1].base_offset)
    checkpoint = checkpoints.find(segments, 0 if clean else recovery_point)
    found = _recover_unclean(
        place,
        Recovered(segments, 0, checkpoints, clean=False, holes_below=holes_below),
        checkpoint,
        epochs,
        recovery_point=recovery_point,
        now_ms=now_ms,
    )
    if found.end_offset < log_start_offset:
        # The tail that went held all that had not been deleted. Offsets below the start have been
        # given out, read and deleted: they are not given out again.
        for segment in found.segments:
            segment.remove()
        first = Segment(place.files, place.directory, log_start_offset, place.index_interval_bytes)
        first.create()
        found.segments, found.end_offset = [first], log_start_offset
        # Nor is anything known of who wrote the records between.
        found.producers.clear()
    return found


def _begin(
    place: LogPlace,
    checkpoints: LogCheckpoints,
    log_start_offset: int,
    recovery_point: int,
    *,
    clean: bool,
) -> Recovered:
    """A log without segments: a new one, or one that has lost them all.

    The offsets of lost segments are not given out again.
    """
    base = max(log_start_offset, recovery_point)
    first = Segment(place.files, place.directory, base, place.index_interval_bytes)
    first.create()
    if base == log_start_offset:
        return Recovered([first], base, checkpoints, clean=clean)
    cut = _cut(place, first, log_start_offset, base, reason="all segments are missing")
    return Recovered([first], base, checkpoints, clean=False, cut=cut)


def _recover_unclean(
    place: LogPlace,
    found: Recovered,
    checkpoint: Checkpoint | None,
    epochs: LeaderEpochs,
    *,
    recovery_point: int,
    now_ms: int,
) -> Recovered:
    """Check everything past the recovery point, or past the checkpoint if that is further."""
    segments, holes_below = found.segments, found.holes_below
    if checkpoint is not None:
        recovery_point = max(recovery_point, checkpoint.offset)
    bases = [segment.base_offset for segment in segments]
    first = max((n for n, base in enumerate(bases) if base <= recovery_point), default=0)
    begin = bases[first] if checkpoint is None else checkpoint.offset
    found.end_offset = begin
    epochs.truncate_to(begin)
    _rebuild_producers(place, found, checkpoint, up_to=begin, now_ms=now_ms)

    def note(batch: ScannedBatch) -> None:
        if batch.producer_id >= 0:
            aborted = update_producer(found.producers, segment, batch, now_ms)
            if aborted is not None:
                segment.aborted.add(aborted)
        if batch.leader_epoch > epochs.latest:
            epochs.assign(batch.leader_epoch, batch.base_offset)

    for number in range(first, len(segments)):
        segment, state = segments[number], None
        if number == first and checkpoint is not None:
            state = checkpoint.state
        elif segment.base_offset != found.end_offset and segment.base_offset > holes_below:
            problem = f"offsets {found.end_offset} to {segment.base_offset} are missing"
            _cut_from(place, found, number, problem, 0)
            break
        found.end_offset = max(found.end_offset, segment.base_offset)
        segment.aborted.clear()
        checked = segment.recover(
            found.end_offset,
            recovery_point,
            begin=state,
            holes_below=holes_below,
            epoch=epochs.latest,
            on_batch=note,
        )
        found.end_offset = checked.end_offset
        found.bytes_checked += checked.size - (state.written.size if state else 0)
        if checked.bad is not None:
            _cut_from(place, found, number, checked.bad.reason, checked.bad.position)
            break
        if number + 1 < len(segments):
            segment.save_indexes(found.end_offset)
            segment.seal()
            snapshot = found.producers.to_snapshot(bases[number + 1])
            keep_snapshot(place, bases[number + 1], snapshot, bases[first:])
    return found


def update_producer(
    producers: ProducerState, segment: Segment, batch: ScannedBatch, now_ms: int
) -> AbortedTransaction | None:
    """Take a batch with a producer id into the producers' state; what it aborted, if it did."""
    if batch.attributes & CONTROL_FLAG:
        data = segment.file.read(batch.position, batch.size)
        marker = read_marker(RecordBatch(memoryview(data)))
        if marker is None:
            return None
        aborted = producers.update_for_marker(
            batch.producer_id, batch.producer_epoch, batch.base_offset, now_ms, marker
        )
        producers.transactions.drop_ended(batch.last_offset + 1)  # its marker is in the log
        return aborted
    last_sequence = (batch.base_sequence + batch.last_offset - batch.base_offset) & SEQUENCE_MASK
    appended = AppendedBatch(
        batch.base_sequence, last_sequence, batch.base_offset, batch.last_offset,
        batch.max_timestamp,
    )  # fmt: skip
    producers.update(
        batch.producer_id,
        batch.producer_epoch,
        appended,
        now_ms,
        # What compaction has emptied was decided, though its marker may be gone.
        bool(batch.attributes & TRANSACTIONAL_FLAG) and batch.records_count > 0,
    )
    return None


# -- cutting ---------------------------------------------------------------------------------


def _cut_from(place: LogPlace, found: Recovered, number: int, reason: str, position: int) -> None:
    """Remove everything from a position of segment ``number`` on."""
    segment, later = found.segments[number], found.segments[number + 1 :]
    size = place.files.size(segment.path)
    claimed = max(
        _claimed_end(segment, position, size),
        *(_claimed_end(each, 0, place.files.size(each.path)) for each in later),
        -1,
    )
    total = size - position + sum(place.files.size(each.path) for each in later)
    found.cut = _cut(
        place,
        segment,
        found.end_offset,
        claimed if claimed > found.end_offset else None,
        reason=reason,
        position=position,
        bytes_cut=total,
        segments_removed=tuple(each.path.name for each in later),
    )
    for each in later:
        each.remove()
    keep = number + 1
    if segment.base_offset != found.end_offset and position == 0:
        # The segment begins where the log no longer reaches: it goes too, and the one before
        # is the last again.
        segment.remove()
        keep = number
    else:
        segment.truncate(position)
        # Synced at once: bytes that came back after the next power cut would be whole batches
        # at the places of newer ones.
        segment.sync()
    del found.segments[keep:]
    last = found.segments[-1]
    if keep == number:
        # It had been sealed on the way here; it is the active one again.
        last.recover(
            last.base_offset,
            found.end_offset,
            holes_below=found.holes_below,
            epoch=NO_EPOCH,
            on_batch=lambda batch: None,
        )
    place.files.sync_directory(place.directory)
    for offset, path in _snapshots(place):
        if offset > found.end_offset:
            place.files.remove(path)


def _claimed_end(segment: Segment, position: int, end: int) -> int:
    """One past the last offset that the batches from ``position`` on name; -1 for none.

    Their content is not believed, only their headers, and only as far as they follow each other.
    """
    claimed = -1
    try:
        for batch in scan(segment.file, position, end, segment.base_offset):
            claimed = batch.last_offset + 1
    except BadBatchError as bad:
        if bad.claimed is not None:
            claimed = max(claimed, bad.claimed[1])
    return claimed


def _cut(
    place: LogPlace,
    segment: Segment,
    first_offset: int,
    end_offset: int | None,
    *,
    reason: str,
    position: int = 0,
    bytes_cut: int = 0,
    segments_removed: tuple[str, ...] = (),
) -> Cut:
    cut = Cut(
        place.topic, place.partition, first_offset, end_offset, reason, segment.path.name,
        position, bytes_cut, segments_removed,
    )  # fmt: skip
    _log.error(
        "%s-%d: cut at offset %d (up to %s, %d bytes): %s in %s at position %d",
        cut.topic, cut.partition, first_offset, end_offset, bytes_cut, reason, cut.segment,
        position,
    )  # fmt: skip
    return cut


# -- files of the directory --------------------------------------------------------------------


def _list_segments(place: LogPlace, names: Sequence[str]) -> list[Segment]:
    """The segments of the directory in order; leftovers without a log file are removed."""
    logs = (offset_in_name(name, [".log"]) for name in names)
    bases = sorted(base for base in logs if base is not None)
    for name in names:
        indexed = offset_in_name(name, INDEX_SUFFIXES)
        orphan = indexed is not None and indexed not in bases
        if orphan or name.endswith((".tmp", DELETED_SUFFIX)):
            place.files.remove(place.directory / name)
        elif name.endswith(CLEANED_SUFFIX):
            place.files.remove_tree(place.directory / name)
    return [
        Segment(place.files, place.directory, base, place.index_interval_bytes) for base in bases
    ]


def snapshot_path(directory: Path, offset: int) -> Path:
    """Where the producers' state below ``offset`` is kept."""
    return directory / segment_name(offset, ".snapshot")


def keep_snapshot(place: LogPlace, offset: int, data: bytes, needed: Collection[int] = ()) -> None:
    """Write a snapshot, and keep it, the one before it and those ``needed``: where segments begin
    that a kill would have checked. Without one there, all of the log would be read. OSError.

    Not synced: one that a power cut damages is made up for by reading the log.
    """
    file = place.files.open(snapshot_path(place.directory, offset), create=True)
    file.write(data, 0)
    file.truncate(len(data))
    for older, path in _snapshots(place)[:-2]:
        if older not in needed:
            place.files.remove(path)


def _snapshots(place: LogPlace) -> list[tuple[int, Path]]:
    """The snapshots of the directory, oldest first, with the offset of each."""
    found = (
        (offset_in_name(name, [".snapshot"]), name) for name in place.files.names(place.directory)
    )
    return [(offset, place.directory / name) for offset, name in found if offset is not None]


def _rebuild_producers(
    place: LogPlace,
    found: Recovered,
    checkpoint: Checkpoint | None,
    *,
    up_to: int,
    now_ms: int,
) -> None:
    """The producers' state of all batches below ``up_to``: that of a checkpoint there, else a
    snapshot, then the log from there.

    Snapshots above it are of removed offsets, and are deleted. One that ends before the log begins
    lacks the batches between, which cannot be read any more: a producer that wrote them would be
    compared with an old sequence. An unknown producer may continue with any sequence (KIP-360).
    """
    start = 0
    first_offset = found.segments[0].base_offset
    for offset, path in reversed(_snapshots(place)):
        if not first_offset <= offset <= up_to:
            place.files.remove(path)
            continue
        if checkpoint is not None:
            break
        try:
            start = found.producers.load_snapshot(read_file(place.files, path))
            break
        except SnapshotDamagedError as damage:
            _log.warning("%s cannot be used: %s", path, damage)
            place.files.remove(path)
    if checkpoint is not None:
        found.producers = checkpoint.producers
        return
    for segment, batch in _batches(found, start, up_to):
        if batch.producer_id >= 0:
            update_producer(found.producers, segment, batch, now_ms)


def _batches(found: Recovered, start: int, up_to: int) -> Iterator[tuple[Segment, ScannedBatch]]:
    """The batches from offset ``start``, where one begins, up to ``up_to``."""
    segments = found.segments
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else up_to
        if next_base <= start or segment.base_offset >= up_to:
            continue
        located = segment.locate(max(start, segment.base_offset))
        if located is None:
            continue
        for batch in segment.batches(located[0]):
            if batch.base_offset >= up_to:
                return
            yield segment, batch
