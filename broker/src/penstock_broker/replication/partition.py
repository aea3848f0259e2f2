"""A partition as its leader has it: the log, and how much of it may be seen.

One broker on its own is its only replica, so the high watermark is the end of the log as soon as
an append returns, and the last stable offset is the high watermark while there are no
transactions. Both are still properties here and not of the log, because followers and
transactions will hold them back.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.log import Log
from penstock_broker.log.lookup import TimestampOffset
from penstock_broker.log.slice import LogSlice
from penstock_broker.metrics import TopicMetrics
from penstock_broker.wire.records import validate_batches


class Partition:
    """The leader of one partition. Owned by the event loop.

    ``listeners`` is shared by all partitions of a replica manager: each is called with the
    partition and the number of bytes after every append that consumers can see.
    """

    __slots__ = (
        "_held_bytes",
        "counters",
        "index",
        "leader_epoch",
        "leader_id",
        "listeners",
        "log",
        "topic",
        "topic_id",
    )

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
        counters: TopicMetrics | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.listeners = listeners
        self.counters = counters or TopicMetrics()
        """What is counted of its topic; all partitions of a topic share them."""
        self._held_bytes = 0
        log.on_flushed = self._on_disk

    @property
    def high_watermark(self) -> int:
        """The offset below which records are on every in-sync replica; consumers see no more."""
        return self.log.high_watermark

    @property
    def commits_at_once(self) -> bool:
        """Whether an append has passed the high watermark when it returns: there is no other
        replica to wait for, nor for the disk."""
        return not self.log.holds_back

    def must_wait(self, acks: int, last_offset: int) -> bool:
        """Whether an acknowledgement of records up to ``last_offset`` has to wait for the high
        watermark: acks=-1 always does, acks=1 where the topic asks for the disk."""
        log = self.log
        return (acks == -1 or (acks == 1 and log.holds_back)) and log.high_watermark <= last_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided (read_committed sees no more)."""
        return self.log.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.log.log_end_offset

    @property
    def topic_partition(self) -> tuple[str, int]:
        """Its name: the key under which others file what concerns it."""
        return self.topic, self.index

    @property
    def is_online(self) -> bool:
        """Whether its log works."""
        return self.log.failure is None

    @property
    def size_bytes(self) -> int:
        """Bytes in its log."""
        return self.log.size_bytes

    def append(self, records: memoryview | None, *, acks_all: bool = False) -> AppendResult:
        """Check and append a batch, patched in place: ``records`` is a writable view.

        KafkaError: those of ``wire.records.validate_batches`` and :meth:`Log.append`, and
        NOT_ENOUGH_REPLICAS where ``acks_all`` and fewer than min.insync.replicas are there.
        """
        log = self.log
        config = log.config
        if acks_all and config.min_insync_replicas > 1:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR (1) is insufficient to satisfy the min.isr "
                f"requirement of {config.min_insync_replicas} for partition "
                f"{self.topic}-{self.index}",
            )
        batches = validate_batches(records, max_message_bytes=config.max_message_bytes)
        result = log.append(batches, self.leader_epoch)
        if not result.duplicate:
            size = len(records) if records is not None else 0
            self.appended(size, result.last_offset - result.base_offset + 1)
        return result

    def appended(self, size: int, records: int) -> None:
        """Count what has been appended, and tell those who wait for it."""
        self.counters.bytes_in += size
        self.counters.messages_in += records
        if self.log.holds_back:
            self._held_bytes += size
            return
        for listener in self.listeners:
            listener(self, size)

    def _on_disk(self) -> None:
        """More of the log has been synced: tell those who waited for that."""
        size, self._held_bytes = self._held_bytes, 0
        if size:
            for listener in self.listeners:
                listener(self, size)

    def fetch(self, offset: int, max_bytes: int, min_one_batch: bool = True) -> LogSlice:
        """Read for a consumer from ``offset``, up to the high watermark; see :meth:`Log.read`.

        KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        log = self.log
        return log.read(offset, max_bytes, log.high_watermark, min_one_batch=min_one_batch)

    def check_leader_epoch(self, epoch: int) -> None:
        """Hold the epoch that a client believes in against ours (-1: it does not say)."""
        if epoch in (-1, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record, in offset order, that is not older than ``timestamp`` (ms).

        None where there is none below the last stable offset. KafkaError: KAFKA_STORAGE_ERROR.
        """
        return self.log.offset_for_timestamp(timestamp, self.last_stable_offset)

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None in an empty log."""
        return self.log.max_timestamp()

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote ``offset``; at the end of the log the current one."""
        if offset >= self.log.log_end_offset:
            return self.leader_epoch
        return self.log.epoch_of(offset)

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
