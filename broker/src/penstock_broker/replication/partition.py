"""A partition as its leader has it: the log, and how much of it may be seen.

One broker on its own is its only replica, so the high watermark is the end of the log as soon as
an append returns, and the last stable offset is the high watermark while there are no
transactions. Both are still properties here and not of the log, because followers and
transactions will hold them back.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.log import AppendResult, Log
from penstock_broker.log.lookup import TimestampOffset
from penstock_broker.log.slice import LogSlice
from penstock_broker.wire.records import RecordBatch, validate_batches

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3


@dataclass(slots=True, eq=False)
class FetchResult:
    """What a fetch of one partition gives."""

    records: LogSlice
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Partition:
    """The leader of one partition. Owned by the event loop.

    ``listeners`` is shared by all partitions of a replica manager: each is called with the
    partition and the number of bytes after every append that consumers can see.
    """

    __slots__ = ("index", "leader_epoch", "leader_id", "listeners", "log", "topic", "topic_id")

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: uuid.UUID,
        log: Log,
        *,
        leader_id: int,
        leader_epoch: int,
        listeners: Sequence[Callable[[Partition, int], None]] = (),
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.listeners = listeners

    @property
    def high_watermark(self) -> int:
        """The offset below which records are on every in-sync replica; consumers see no more."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided (read_committed sees no more)."""
        return self.log.log_end_offset

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.log.log_end_offset

    def produce(self, records: memoryview | None) -> AppendResult:
        """Check and append what a client sent for this partition (a writable view).

        KafkaError: those of ``wire.records.validate_batches`` and :meth:`Log.append`.
        """
        batches = validate_batches(records, max_message_bytes=self.log.config.max_message_bytes)
        return self.append(batches)

    def append(self, batches: Sequence[RecordBatch]) -> AppendResult:
        """Append checked batches as the leader. KafkaError as :meth:`Log.append`."""
        result = self.log.append(batches, self.leader_epoch)
        if not result.duplicate and self.listeners:
            size = sum(len(batch.view) for batch in batches)
            for listener in self.listeners:
                listener(self, size)
        return result

    def fetch(
        self,
        offset: int,
        max_bytes: int,
        *,
        current_leader_epoch: int = -1,
        min_one_batch: bool = True,
    ) -> FetchResult:
        """Read for a consumer from ``offset``, up to the high watermark.

        KafkaError: OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
        KAFKA_STORAGE_ERROR.
        """
        self.check_leader_epoch(current_leader_epoch)
        log = self.log
        high_watermark = log.log_end_offset
        records = log.read(offset, max_bytes, high_watermark, min_one_batch=min_one_batch)
        return FetchResult(records, high_watermark, high_watermark, log.log_start_offset)

    def readable_bytes(self, offset: int) -> int:
        """About how many bytes a fetch from ``offset`` could give; for fetch.min.bytes."""
        return self.log.read(offset, 2**31 - 1, self.high_watermark).size

    def check_leader_epoch(self, epoch: int) -> None:
        """Hold the epoch that a client believes in against ours (-1: it does not say)."""
        if epoch in (-1, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def offset_for(self, timestamp: int) -> TimestampOffset | None:
        """ListOffsets: by time, or -1 the high watermark, -2 the log start, -3 the record with
        the largest timestamp. None where no record answers.

        By time and -3 give a record's own epoch; -1 and -2 the epoch of that offset, with
        timestamp -1. KafkaError: KAFKA_STORAGE_ERROR, UNSUPPORTED_VERSION for other negatives.
        """
        log = self.log
        if timestamp == LATEST_TIMESTAMP:
            return TimestampOffset(self.high_watermark, -1, self.leader_epoch)
        if timestamp == EARLIEST_TIMESTAMP:
            start = log.log_start_offset
            epoch = log.epoch_of(start) if start < log.log_end_offset else self.leader_epoch
            return TimestampOffset(start, -1, epoch)
        if timestamp == MAX_TIMESTAMP:
            return log.max_timestamp()
        if timestamp < 0:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return log.offset_for_timestamp(timestamp, self.last_stable_offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the largest epoch not above ``epoch`` and its end offset.

        The current epoch ends at the log's end whether or not it has written; (-1, -1) for one
        that is not known.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        if epoch > self.leader_epoch:
            return -1, -1
        return self.log.end_of_epoch(epoch)

    def delete_records(self, before_offset: int) -> int:
        """Move the log's start; -1 means to the high watermark. Returns the start.

        KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        if before_offset == -1:
            before_offset = self.high_watermark
        if not 0 <= before_offset <= self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return self.log.delete_records(before_offset)
