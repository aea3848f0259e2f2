"""The writing end of a log: every batch that becomes part of it goes through here.

A batch is *added*: held against its producer's state and the topic's settings, given its offset in
place, and staged. It is in the log when :meth:`Appender.commit` has written what is staged, all of
it with one call of the system: small batches come by the hundred in one read of a socket, and
writing each of them costs as much as checking it. No offset leaves the broker before its bytes are
in the file, so a write that fails takes nothing back: each result says what went wrong.

The caller that adds also commits, in the same step of the event loop. Anything else that is
appended meanwhile goes through the same appender, behind what is staged, so offsets cannot be given
out twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_broker.errors import KafkaError
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.markers import Marker
from penstock_broker.log.producer_state import SEQUENCE_MASK, AppendedBatch
from penstock_broker.log.rolling import NO_SPACE, must_roll, space_in
from penstock_broker.log.segment import PlacedBatch, Segment
from penstock_broker.wire.records import LENGTH_END, NO_TIMESTAMP, PLACE, RecordBatch

if TYPE_CHECKING:
    from penstock_broker.log.log import Log


class Appender:
    """Stages batches for one log and writes them. Owned by the log."""

    __slots__ = (
        "_last_of",
        "_latest",
        "_leader_epoch",
        "_log",
        "_next_offset",
        "_now_ms",
        "_offset_max",
        "_placed",
        "_results",
        "_segment",
        "_slots",
        "_space",
        "_stamped",
        "_start_offset",
        "_written_bytes",
        "_written_records",
    )  # fmt: skip

    def __init__(self, log: Log) -> None:
        self._log = log
        self._segment: Segment = log.segments[-1]
        self._now_ms = 0
        self._leader_epoch = -1
        self._next_offset = 0
        self._start_offset = 0
        self._space, self._slots, self._offset_max, self._latest = NO_SPACE
        self._placed: list[PlacedBatch] = []
        self._results: list[AppendResult] = []
        self._stamped: list[tuple[RecordBatch, AppendResult, Marker | None]] = []
        self._last_of: dict[int, RecordBatch] = {}
        self._written_bytes = 0
        self._written_records = 0

    def add(
        self,
        batch: RecordBatch,
        leader_epoch: int,
        now_ms: int | None = None,
        *,
        is_verified: bool = False,
    ) -> AppendResult:
        """Stage a batch that a client has sent; see :meth:`Log.append` for what it may raise.

        The result holds for sure after the next :meth:`commit`, if its ``error`` is None then. A
        batch that repeats one of the last five of its producer is not staged: ``duplicate``.
        """
        log = self._log
        if log.failure is not None:
            raise log.offline()
        producer_id = batch.producer_id
        if producer_id >= 0 and not self._follows(batch):
            if producer_id in self._last_of:
                self.commit()
            first = log.producers.check(
                producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence,
                batch.is_transactional,
            )  # fmt: skip
            if first is not None:
                return self._repeated(first)
            if batch.is_transactional and not is_verified:
                log.producers.require_open(producer_id)
        if now_ms is None:
            now_ms = log.clock.now_ms()
        append_time_ms = NO_TIMESTAMP
        if log.config.message_timestamp_type != "CreateTime":
            batch.stamp_log_append_time(now_ms)
            append_time_ms = now_ms
        return self.place(batch, leader_epoch, now_ms, append_time_ms)

    def place(
        self,
        batch: RecordBatch,
        leader_epoch: int,
        now_ms: int,
        append_time_ms: int = NO_TIMESTAMP,
        marker: Marker | None = None,
    ) -> AppendResult:
        """Stage a batch to which nothing is to be objected, behind what is staged.

        KafkaError KAFKA_STORAGE_ERROR where a new segment or epoch cannot be begun for it.
        """
        result = self.stage(
            batch.view, batch.last_offset_delta, batch.max_timestamp, leader_epoch, now_ms,
            append_time_ms,
        )  # fmt: skip
        batch.base_offset = result.base_offset
        batch.partition_leader_epoch = leader_epoch
        producer_id = batch.producer_id
        if producer_id >= 0:
            self._stamped.append((batch, result, marker))
            self._last_of[producer_id] = batch
            if marker is not None or batch.is_transactional:
                self.commit()  # what follows is held against the transaction
        return result

    def stage(  # noqa: PLR0917 (called for every batch)
        self,
        data: memoryview,
        last_offset_delta: int,
        max_timestamp: int,
        leader_epoch: int,
        now_ms: int,
        append_time_ms: int = NO_TIMESTAMP,
    ) -> AppendResult:
        """Stage the bytes of a batch that has no producer id, or whose producer's state the caller
        keeps, as :meth:`place` does."""
        size, base_offset = len(data), self._next_offset
        last_offset = base_offset + last_offset_delta
        if (
            size > self._space
            or len(self._placed) >= self._slots
            or last_offset > self._offset_max
            or max_timestamp > self._latest
            or leader_epoch != self._leader_epoch
        ):
            self._begin(size, last_offset_delta, max_timestamp, leader_epoch, now_ms)
            base_offset = self._next_offset
            last_offset = base_offset + last_offset_delta
        PLACE.pack_into(data, 0, base_offset, size - LENGTH_END, leader_epoch)
        self._placed.append((data, base_offset, size, max_timestamp))
        self._next_offset = last_offset + 1
        self._space -= size
        result = AppendResult(base_offset, last_offset, append_time_ms, self._start_offset)
        self._results.append(result)
        return result

    def commit(self) -> None:
        """Write what is staged. A failure is in the results: then none of it is in the log."""
        if not self._placed:
            return
        log, segment, now_ms = self._log, self._segment, self._now_ms
        placed, results, stamped = self._placed, self._results, self._stamped
        self._placed, self._results = [], []
        self._space, self._slots, self._offset_max, self._latest = NO_SPACE
        if stamped:
            self._stamped = []
            self._last_of.clear()
        failure: KafkaError | None = None
        size_before = segment.size
        try:
            segment.append_many(placed)
        except OSError as error:
            failure = log.append_failed(segment, error)
        else:
            for batch, result, marker in stamped:
                self._update_producer(batch, result, marker)
            try:
                log.advance(segment, self._next_offset, now_ms)
            except KafkaError as error:
                failure = error
        if failure is not None:
            for result in results:
                result.error = failure
            return
        self._written_bytes += segment.size - size_before
        self._written_records += self._next_offset - placed[0][1]

    def take_written(self) -> tuple[int, int]:
        """Bytes and records that have been written since the last call."""
        written = self._written_bytes, self._written_records
        self._written_bytes = self._written_records = 0
        return written

    def _begin(
        self, size: int, last_offset_delta: int, max_timestamp: int, leader_epoch: int, now_ms: int
    ) -> None:
        """Find out how much the active segment can take, or begin one that takes the batch."""
        self.commit()
        log = self._log
        if log.failure is not None:
            raise log.offline()
        segment, config, base_offset = log.segments[-1], log.config, log.log_end_offset
        if must_roll(
            segment, config, size, base_offset + last_offset_delta,
            now_ms=now_ms, timestamp=max_timestamp,
        ):  # fmt: skip
            segment = log.roll()
        if leader_epoch > log.epochs.latest:
            log.begin_epoch(leader_epoch, base_offset)
        self._segment = segment
        self._now_ms = now_ms
        self._leader_epoch = leader_epoch
        self._next_offset = base_offset
        self._start_offset = log.log_start_offset
        self._space, self._slots, self._offset_max, self._latest = space_in(segment, config)

    def _follows(self, batch: RecordBatch) -> bool:
        """Whether it is the next one after a batch of its producer that is staged, and so has
        passed what :meth:`ProducerState.check` asks."""
        before = self._last_of.get(batch.producer_id)
        return (
            before is not None
            and batch.producer_epoch == before.producer_epoch
            and batch.base_sequence == (before.last_sequence + 1) & SEQUENCE_MASK
            and not batch.is_transactional
        )

    def _update_producer(
        self, batch: RecordBatch, result: AppendResult, marker: Marker | None
    ) -> None:
        """Remember what a producer has had written."""
        producers = self._log.producers
        if marker is None:
            appended = AppendedBatch(
                batch.base_sequence, batch.last_sequence, result.base_offset, result.last_offset,
                result.log_append_time_ms,
            )  # fmt: skip
            producers.update(
                batch.producer_id, batch.producer_epoch, appended, self._now_ms,
                batch.is_transactional,
            )  # fmt: skip
            return
        aborted = producers.update_for_marker(
            batch.producer_id, batch.producer_epoch, result.base_offset, self._now_ms, marker
        )
        if aborted is not None:
            self._segment.aborted.add(aborted)
        producers.transactions.drop_ended(self._log.high_watermark)

    def _repeated(self, first: AppendedBatch) -> AppendResult:
        log = self._log
        return AppendResult(
            first.base_offset,
            first.last_offset,
            first.timestamp if log.config.stamps_append_time else NO_TIMESTAMP,
            log.log_start_offset,
            duplicate=True,
        )
