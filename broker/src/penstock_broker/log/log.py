"""The log of one partition: a list of segments, appended to at the end, read anywhere.

A directory holds it, named by :func:`log_directory_name`; the files in it are described where
they are written: ``segment.py`` (``.log``, ``.index``, ``.timeindex``), ``producer_state.py``
(``.snapshot``), ``leader_epochs.py`` (``leader-epoch-checkpoint``), ``manager.py``
(``partition.metadata``).

Offsets: ``log_start_offset`` is the first that may be read, ``log_end_offset`` the next to be
given; everything below ``recovery_point`` is known to be on the disk. Appending does not sync
unless ``flush.messages`` says so: like Kafka, the log relies on the operating system to survive
the process, and on replication or the books to survive the machine.

Not thread-safe: the event loop owns it. Only :meth:`FlushJob.run` may run elsewhere.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock_broker.clock import Clock
from penstock_broker.config import LogConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.appender import Appender
from penstock_broker.log.epoch_file import epochs_of, read_epochs, write_epochs
from penstock_broker.log.flushing import FlushJob
from penstock_broker.log.leader_epochs import LeaderEpochs
from penstock_broker.log.lookup import (
    Lookup,
    TimestampOffset,
    first_at_or_after,
    first_with_latest,
    run,
)
from penstock_broker.log.markers import Marker
from penstock_broker.log.open_transactions import AbortedTransaction
from penstock_broker.log.owner import LogOwner, NoOwner
from penstock_broker.log.recovery import LogPlace, Recovered, recover
from penstock_broker.log.scan import BadBatchError
from penstock_broker.log.segment import Segment
from penstock_broker.log.segments import SegmentList
from penstock_broker.log.slice import EMPTY_SLICE, LogSlice
from penstock_broker.log.swap import (
    CleanerCheckpoint,
    read_cleaner_checkpoint,
)
from penstock_broker.wire.records import NO_TIMESTAMP, RecordBatch

_log = logging.getLogger(__name__)

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class Log:
    """The segments of one partition, and what is derived from them."""

    def __init__(
        self,
        place: LogPlace,
        config: LogConfig,
        clock: Clock,
        recovered: Recovered,
        epochs: LeaderEpochs,
        *,
        cleaned: CleanerCheckpoint,
        log_start_offset: int,
        recovery_point: int,
    ) -> None:
        self.place = place
        self.config = config
        self.recovered = recovered
        """How it was found when it was opened."""
        self.producers = recovered.producers
        self.epochs = epochs
        self.failure: str | None = None
        """Why the log is offline; None while it works."""
        self.recovery_point = min(recovery_point, recovered.end_offset)
        self.owner: LogOwner = NoOwner(place.files)
        """Who keeps it."""
        self.flushes_at_once = False
        """Whether a sync that is due has been done when the append returns."""
        self.on_flushed: Callable[[], None] = lambda: None
        """Called when more of it has reached the disk."""
        self.cleaned = cleaned
        """What compaction has done to it."""
        self.clock = clock
        self._segments = SegmentList(place, recovered.segments)
        self._end_offset = recovered.end_offset
        self._start_offset = min(
            max(log_start_offset, self._segments.first_offset), self._end_offset
        )
        self._unflushed_since_ms: int | None = None
        self._seen_offset = 0
        """What readers may have seen before ``flush.messages`` became 1."""
        self._changes = (1, 0)  # how often names in its directory, and its epochs, have changed
        self._changes_synced = (0, 0)
        self.checkpoints = recovered.checkpoints
        """Of its active segment."""
        self.appender = Appender(self)
        """Through which everything becomes part of it."""

    @classmethod
    def open(
        cls,
        place: LogPlace,
        config: LogConfig,
        clock: Clock,
        *,
        recovery_point: int,
        log_start_offset: int,
        clean: bool,
    ) -> Log:
        """Open, recover or begin the log in a directory (which exists). Raises OSError.

        ``clean``: it was closed, at ``recovery_point``.
        """
        known_epochs = read_epochs(place.files, place.directory)
        epochs = known_epochs or LeaderEpochs()
        written_epochs = epochs.entries()
        cleaned = read_cleaner_checkpoint(place.files, place.directory)
        recovered = recover(
            place,
            epochs,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            holes_below=cleaned.holes_below,
            now_ms=clock.now_ms(),
        )
        log = cls(
            place,
            config,
            clock,
            recovered,
            epochs,
            cleaned=cleaned,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
        )
        if known_epochs is None:
            log.epochs = epochs_of(log.segments)
        entries = log.epochs.entries()
        if entries != written_epochs:
            write_epochs(place.files, place.directory, entries)
        elif entries and not recovered.clean:
            log._changes = (1, 1)  # the process that wrote them may have been killed before
        if not recovered.clean and (recovered.cut is not None or log.holds_back):
            log.flush()
        return log

    # -- where it begins and ends ------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._end_offset

    @property
    def holds_back(self) -> bool:
        """Whether records count only once they are on the disk (``flush.messages`` is 1)."""
        return self.config.flush_messages == 1

    @property
    def high_watermark(self) -> int:
        """The offset below which records count: readers see no more, acknowledged is no more."""
        if self.config.flush_messages != 1:
            return self._end_offset
        return max(self.recovery_point, self._seen_offset)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided, and that for good."""
        high_watermark = self.high_watermark
        transactions = self.producers.transactions
        if transactions.begun or transactions.ended:
            first = transactions.first_unstable(high_watermark)
            if first is not None and first < high_watermark:
                return max(first, self._start_offset)
        return high_watermark

    def has_aborted(self, first: int) -> bool:
        """Whether any transaction may have been aborted from an offset on. KAFKA_STORAGE_ERROR."""
        try:
            return self._segments.has_aborted(first)
        except OSError as error:
            raise self._cannot_read_aborted(error) from error

    def aborted_transactions(self, first: int, upper: int) -> list[AbortedTransaction]:
        """Those with records in [first, upper), sorted. KAFKA_STORAGE_ERROR."""
        try:
            return self._segments.aborted_transactions(first, upper)
        except (OSError, BadBatchError) as error:
            raise self._cannot_read_aborted(error) from error

    def _cannot_read_aborted(self, error: Exception) -> KafkaError:
        self.fail(f"cannot read what was aborted: {error}")
        return self.offline()

    def aborted_below(self, offset: int) -> list[tuple[int, int, int]]:
        """Producer id, first offset and marker's offset of aborted transactions that began below
        ``offset``."""
        return [entry[:3] for entry in self.aborted_transactions(0, offset)]

    @property
    def size_bytes(self) -> int:
        """Bytes in its segments."""
        return self._segments.size_bytes

    @property
    def segments(self) -> Sequence[Segment]:
        """Its segments, oldest first; the last is the active one."""
        return self._segments.all

    def update_config(self, config: LogConfig) -> None:
        """Use other settings from now on."""
        self._seen_offset = self.high_watermark
        self.config = config

    # -- append ------------------------------------------------------------------------------

    def append(
        self, batches: Sequence[RecordBatch], leader_epoch: int, *, is_verified: bool = False
    ) -> AppendResult:
        """Append batches that ``wire.records.validate_batches`` and ``record_rules.look_inside``
        have passed, as their leader.

        Offset and epoch are patched into their bytes (a writable view). Each is appended whole
        or not at all; the result spans them, and is that of a single batch when there is one.
        ``is_verified``: the coordinator says that the partition is part of their transaction.
        Raises KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
        INVALID_TXN_STATE, KAFKA_STORAGE_ERROR.
        """
        appender = self.appender
        try:
            results = [
                appender.add(batch, leader_epoch, is_verified=is_verified) for batch in batches
            ]
        finally:
            appender.commit()
        first, last = results[0], results[-1]
        if last.error is not None:
            raise last.error
        first.last_offset = last.last_offset
        return first

    def append_for_coordinator(
        self, batch: RecordBatch, leader_epoch: int, marker: Marker | None = None
    ) -> AppendResult:
        """Append a batch of a transaction (which is written at once) that has no sequences: the
        ``marker`` that ends it, or offsets that it commits. KafkaError INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR."""
        if self.failure is not None:
            raise self.offline()
        now_ms = self.clock.now_ms()
        coordinator_epoch = None if marker is None else marker.coordinator_epoch
        self.producers.check_coordinator(batch.producer_id, batch.producer_epoch, coordinator_epoch)
        append_time_ms = NO_TIMESTAMP
        if self.config.stamps_append_time:
            batch.stamp_log_append_time(now_ms)
            append_time_ms = now_ms
        result = self.appender.place(batch, leader_epoch, now_ms, append_time_ms, marker)
        if result.error is not None:
            raise result.error
        return result

    def advance(self, segment: Segment, end_offset: int, now_ms: int) -> None:
        """The active segment has been written up to ``end_offset``. KafkaError: cannot sync."""
        self._end_offset = end_offset
        if segment.first_append_ms is None:
            segment.first_append_ms = now_ms
            segment.first_timestamp = segment.timestamp_max
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        if end_offset - self.recovery_point >= self.config.flush_messages:
            if self.flushes_at_once:
                self.flush()
            else:
                self.owner.flush_due(self)

    def append_failed(self, segment: Segment, error: OSError) -> KafkaError:
        """Take back what a failed write left. Only a full disk may have space again later."""
        if error.errno in _DISK_FULL:
            try:
                segment.cut_tail()
            except OSError as again:
                error = again
            else:
                _log.error("%s: cannot append: %s", self.place.directory, error)
                return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot append: {error}")
        self.fail(f"cannot append: {error}")
        return self.offline()

    def begin_epoch(self, epoch: int, offset: int) -> None:
        """Write down that an epoch begins. KafkaError KAFKA_STORAGE_ERROR."""
        self.epochs.assign(epoch, offset)
        names, epochs = self._changes
        self._changes = (names, epochs + 1)
        try:
            write_epochs(self.place.files, self.place.directory, self.epochs.entries(), sync=False)
        except OSError as error:
            self.fail(f"cannot write its leader epochs: {error}")
            raise self.offline() from error

    # -- segments ----------------------------------------------------------------------------

    def roll(self) -> Segment:
        """Close the active segment and begin the next one. KAFKA_STORAGE_ERROR: nothing of that is
        left, and where the disk was full it may be tried again."""
        try:
            segment = self._segments.roll(
                self._end_offset,
                self._snapshot(),
                self.recovery_point,
                self.config.index_interval_bytes,
            )
        except OSError as error:
            if error.errno not in _DISK_FULL:
                self.fail(f"cannot begin a segment: {error}")
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot begin a segment: {error}"
            ) from error
        names, epochs = self._changes
        self._changes = (names + 1, epochs)
        self.checkpoints.flushed(None, self.recovery_point, segment)
        return segment

    def _snapshot(self) -> bytes:
        return self.producers.to_snapshot(self._end_offset)

    # -- read --------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        up_to_offset: int | None = None,
        *,
        min_one_batch: bool = True,
    ) -> LogSlice:
        """Describe the bytes from the batch that holds ``offset`` on, below ``up_to_offset``.

        At most ``max_bytes``, but the first batch whole where ``min_one_batch`` (KIP-74); without
        it, nothing when the first batch does not fit. ``up_to_offset`` is where a batch begins
        (the high watermark); None reads to the end. Empty at the end. Raises KafkaError:
        OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        end_offset = self._end_offset
        if not self._start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in {self._start_offset} to {end_offset}.",
            )
        limit = end_offset if up_to_offset is None else up_to_offset
        if self.failure is not None:
            raise self.offline()
        if offset >= limit:
            return EMPTY_SLICE
        try:
            return self._segments.read(
                offset, max_bytes, limit=limit, end_offset=end_offset, min_one_batch=min_one_batch
            )
        except (OSError, BadBatchError) as error:
            self.fail(f"cannot read at offset {offset}: {error}")
            raise self.offline() from error

    # -- by time -----------------------------------------------------------------------------

    def offset_for_timestamp(
        self, timestamp: int, up_to_offset: int | None = None
    ) -> TimestampOffset | None:
        """:meth:`looking_for_timestamp`, here and now."""
        return run(self.looking_for_timestamp(timestamp, up_to_offset))

    def max_timestamp(self) -> TimestampOffset | None:
        """:meth:`looking_for_latest`, here and now."""
        return run(self.looking_for_latest())

    def looking_for_timestamp(self, timestamp: int, up_to_offset: int | None = None) -> Lookup:
        """The first record, in offset order, that is not older than ``timestamp`` (ms).

        None where there is none below ``up_to_offset``. Raises KAFKA_STORAGE_ERROR.
        """
        limit = self._end_offset if up_to_offset is None else up_to_offset
        return self._looking(lambda seg, start: first_at_or_after(seg, timestamp, start, limit))

    def looking_for_latest(self) -> Lookup:
        """The first record with the largest timestamp (ListOffsets -3, KIP-734)."""
        return self._looking(first_with_latest)

    def _looking(self, begin: Callable[[Sequence[Segment], int], Lookup]) -> Lookup:
        """A lookup, which ends when the log does. KAFKA_STORAGE_ERROR."""
        looking = self._segments.looking(begin, lambda: self._start_offset)
        while True:
            if self.failure is not None:
                raise self.offline()
            try:
                work = next(looking)
            except StopIteration as end:
                found: TimestampOffset | None = end.value
                return found
            except (OSError, BadBatchError) as error:
                self.fail(f"cannot look up a time: {error}")
                raise self.offline() from error
            yield work

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote ``offset`` (ListOffsets); -1 where nothing is known."""
        return self.epochs.epoch_of(offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: (epoch, end offset), (-1, -1) where there is none."""
        return self.epochs.end_of(epoch, self._end_offset)

    # -- the front ---------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> int:
        """Move the start to ``before_offset``, and delete segments that lie wholly below.

        A start that is already there stays. The start is written down (``LogOwner``) before files
        go. Returns the start. Raises KafkaError: OFFSET_OUT_OF_RANGE above the end,
        KAFKA_STORAGE_ERROR.
        """
        if self.advance_start(before_offset):
            self.owner.start_advanced()
            self.delete_old_segments()
        return self._start_offset

    def advance_start(self, before_offset: int) -> bool:
        """The first half of :meth:`delete_records`; whether the start moved."""
        if before_offset > self._end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {before_offset} is above the end, {self._end_offset}.",
            )
        if self.failure is not None:
            raise self.offline()
        if before_offset <= self._start_offset:
            return False
        if before_offset == self._end_offset and self._segments.active.size:
            self.roll()
        self._start_offset = before_offset
        self.owner.start_moved(self)
        return True

    def delete_old_segments(self) -> int:
        """Delete segments wholly below the start; how many. Raises KAFKA_STORAGE_ERROR."""
        count = len(self._segments.all)
        paths = self._segments.take_below(self._start_offset)
        if not paths:
            return 0
        self.epochs.advance_to(self._start_offset)
        try:
            self.owner.discard(paths, self.config.file_delete_delay_ms)
        except OSError as error:
            self.fail(f"cannot delete segments: {error}")
            raise self.offline() from error
        self.recovery_point = max(self.recovery_point, self._segments.first_offset)
        return count - len(self._segments.all)

    def replace_segments(self, old: Sequence[Segment], swap: Path, cleaned: Path) -> bool:
        """Replace closed segments by the finished segment ``swap`` (see ``swap.py``).

        ``cleaned`` is the directory of its indexes. False, and nothing done, where the old ones
        are not all there any more. KAFKA_STORAGE_ERROR: the log is offline, a start finishes it.
        """
        if self.failure is not None:
            return False
        try:
            gone = self._segments.replace(old, swap, cleaned)
        except OSError as error:
            self.fail(f"cannot put a compacted segment in place: {error}")
            raise self.offline() from error
        if gone is None:
            return False
        self.owner.discard(gone, self.config.file_delete_delay_ms)
        return True

    # -- the disk ----------------------------------------------------------------------------

    def flush(self) -> None:
        """Return when all of it is on the disk. Raises KAFKA_STORAGE_ERROR, and is offline then.

        A sync that failed once may succeed next time without the data having been written, so
        there is no second try.
        """
        job = self.flush_job()
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            self.fail(f"cannot sync: {error}")
            raise self.offline() from error
        self.flushed(job)

    def flush_job(self, *, with_checkpoint: bool = False) -> FlushJob | None:
        """What has to be synced, for another thread to do; None when all is.

        ``with_checkpoint``: and a checkpoint, so that a start after a kill begins where it ends.
        """
        if self.failure is not None:
            return None
        checkpoint = None
        if with_checkpoint:
            active = self._segments.active
            checkpoint = self.checkpoints.begin(active, self._end_offset, self.producers)
        if self._end_offset <= self.recovery_point and checkpoint is None:
            return None
        names, epochs = self._changes
        return FlushJob(
            self,
            self._end_offset,
            self._segments.to_sync(self.recovery_point),
            with_directory=names > self._changes_synced[0],
            with_epochs=epochs > self._changes_synced[1],
            changes=self._changes,
            checkpoint=checkpoint,
        )

    def flushed(self, job: FlushJob) -> None:
        """Record that a job has run."""
        self.recovery_point = max(self.recovery_point, job.up_to_offset)
        # Not before: a job that is made meanwhile, and ends first, has to sync them, too.
        self._changes_synced = max(self._changes_synced, job.changes)  # both grow
        if self.failure is None:
            active = self._segments.active
            self.checkpoints.flushed(job.checkpoint, self.recovery_point, active)
        if self.recovery_point >= self._end_offset:
            self._unflushed_since_ms = None
        self.on_flushed()

    @property
    def bytes_to_check(self) -> int:
        """About how much of it a start after a kill would read."""
        return self.checkpoints.bytes_behind(self._segments.active)

    def flush_is_due(self, now_ms: int) -> bool:
        """Whether flush.ms has passed, or a closed segment has not been synced."""
        if self.recovery_point < self._segments.active.base_offset:
            return True
        since = self._unflushed_since_ms
        return since is not None and now_ms - since >= self.config.flush_ms

    def expire_producers(self, before_ms: int) -> int:
        """Remove producers that have been silent since; how many."""
        return self.producers.expire(before_ms)

    def close(self) -> None:
        """Sync it and write down what makes the next start cheap. Nothing may follow."""
        if self.failure is not None:
            return
        self.flush()
        try:
            self._segments.close(self._end_offset, self._snapshot())
        except OSError as error:
            self.fail(f"cannot close: {error}")
            raise self.offline() from error

    def fail(self, reason: str) -> None:
        """Take the log offline: from now on each use is KAFKA_STORAGE_ERROR."""
        if self.failure is None:
            self.failure = reason
            _log.error("%s is offline: %s", self.place.directory, reason)
            self.owner.failed(self)

    def retire(self) -> None:
        """The topic is being deleted: each further use of the log fails, and its files are
        closed, since open ones would keep their disk space."""
        self.failure = "the topic has been deleted"
        self._segments.close_files()

    def offline(self) -> KafkaError:
        """What each use of a log gets that has failed."""
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self.place.topic}-{self.place.partition} is offline: {self.failure}",
        )
