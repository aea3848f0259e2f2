"""A partition as its leader has it: the log, and how much of it may be seen.

One broker on its own is its only replica, so the high watermark is the end of the log as soon as
an append returns (or reaches the disk, where a topic asks for that), and the last stable offset
follows from it and from the transactions that are open. Both are properties here, because
followers will hold them back.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.isolation import end_of_slice
from penstock_broker.log.keys import TopicPartition
from penstock_broker.log.log import Log
from penstock_broker.log.lookup import Lookup
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.log.open_transactions import AbortedTransaction
from penstock_broker.log.record_rules import look_inside
from penstock_broker.log.slice import LogSlice
from penstock_broker.metrics import TopicMetrics
from penstock_broker.wire.records import RecordBatch, validate_batch

ALL_THAT_WAITED = 1 << 62
"""More bytes than any request waits for: a marker lets readers see what came long before it."""

HIGH_WATERMARK = -1
"""As an offset of DeleteRecords."""


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
    def topic_partition(self) -> TopicPartition:
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

    def append(
        self, records: memoryview | None, *, acks_all: bool = False, is_verified: bool = False
    ) -> AppendResult:
        """Check and append a batch, patched in place: ``records`` is a writable view.

        KafkaError: as :meth:`check`, ``log.record_rules.look_inside`` and :meth:`append_checked`.
        """
        batch = self.check(records, acks_all=acks_all)
        batch = look_inside(batch, self.log.config, self.log.clock.now_ms())
        return self.append_checked(batch, is_verified=is_verified)

    def check(self, records: memoryview | None, *, acks_all: bool = False) -> RecordBatch:
        """The batch that a client has sent, looked at from outside.

        KafkaError: those of ``wire.records.validate_batch`` and :meth:`require_replicas`.
        """
        if not records:
            raise KafkaError(ErrorCode.INVALID_RECORD, "There must be at least one record batch.")
        if acks_all:
            self.require_replicas()
        max_bytes = self.log.config.max_message_bytes
        return validate_batch(records, 0, len(records), max_message_bytes=max_bytes)

    def require_replicas(self) -> None:
        """KafkaError NOT_ENOUGH_REPLICAS where fewer than min.insync.replicas are there, for
        producers with acks=all."""
        needed = self.log.config.min_insync_replicas
        if needed > 1:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR (1) is insufficient to satisfy the min.isr "
                f"requirement of {needed} for partition {self.topic}-{self.index}",
            )

    def append_checked(self, batch: RecordBatch, *, is_verified: bool = False) -> AppendResult:
        """Append a batch that has been looked at from outside and inside.

        ``is_verified``: this partition is known to be part of the batch's transaction, if it has
        one; see :meth:`has_open_transaction`. KafkaError: those of :meth:`Log.append`.
        """
        result = self.stage(batch, is_verified=is_verified)
        self.commit()
        if result.error is not None:
            raise result.error
        return result

    def stage(
        self, batch: RecordBatch, now_ms: int | None = None, *, is_verified: bool = False
    ) -> AppendResult:
        """The first half of :meth:`append_checked`; :meth:`commit` follows in the same step of the
        event loop, and ``error`` of the result says whether that went well."""
        result = self.log.appender.add(batch, self.leader_epoch, now_ms, is_verified=is_verified)
        if result.duplicate:
            self.counters.duplicates += 1
        return result

    def stage_alike(
        self, data: memoryview, last_offset_delta: int, max_timestamp: int, now_ms: int
    ) -> AppendResult:
        """As :meth:`stage`, for a batch that is like one that has been staged
        (``wire.batch_pattern``)."""
        return self.log.appender.stage(
            data, last_offset_delta, max_timestamp, self.leader_epoch, now_ms
        )

    def commit(self) -> None:
        """Write what is staged, count it, and wake the requests that wait for it."""
        appender = self.log.appender
        appender.commit()
        size, records = appender.take_written()
        if size:
            self._appended(size, records)

    def append_offsets(self, records: bytearray) -> AppendResult:
        """Append a batch of committed offsets that count when a transaction commits.

        Its producer has this partition in its transaction. KafkaError as
        :meth:`Log.append_for_coordinator`.
        """
        batch = RecordBatch(memoryview(records))
        result = self.log.append_for_coordinator(batch, self.leader_epoch)
        self._appended(*self.log.appender.take_written())
        return result

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, now_ms: int
    ) -> AppendResult:
        """End the transaction of a producer here; KafkaError as
        :meth:`Log.append_for_coordinator`. One that is not open ends without harm."""
        data = build_marker(producer_id, producer_epoch, marker, now_ms)
        batch = RecordBatch(memoryview(data))
        result = self.log.append_for_coordinator(batch, self.leader_epoch, marker)
        self._appended(*self.log.appender.take_written(), ALL_THAT_WAITED)
        return result

    def has_open_transaction(self, producer_id: int) -> bool:
        """Whether a producer has written records here whose transaction is not decided yet."""
        return producer_id in self.log.producers.transactions.begun

    def _appended(self, size: int, records: int, readable: int | None = None) -> None:
        """Count what has been appended, and wake the requests that wait for it: ``readable`` bytes
        more than before, where that is not ``size``."""
        self.counters.bytes_in += size
        self.counters.messages_in += records
        if readable is None:
            readable = size
        if self.log.holds_back:
            self._held_bytes += readable
            return
        for listener in self.listeners:
            listener(self, readable)

    def _on_disk(self) -> None:
        """More of the log has been synced: answer the requests that wait for that."""
        size, self._held_bytes = self._held_bytes, 0
        if size:
            for listener in self.listeners:
                listener(self, size)

    def end_offset(self, *, committed: bool) -> int:
        """Where a consumer's view ends: at the high watermark, or (``committed``, the isolation
        level read_committed) at the last stable offset."""
        return self.log.last_stable_offset if committed else self.log.high_watermark

    def fetch(
        self, offset: int, max_bytes: int, min_one_batch: bool = True, *, committed: bool = False
    ) -> LogSlice:
        """Read for a consumer from ``offset``, up to its :meth:`end_offset`; see :meth:`Log.read`.

        KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        log = self.log
        end = log.last_stable_offset if committed else log.high_watermark
        return log.read(offset, max_bytes, end, min_one_batch=min_one_batch)

    def aborted_transactions(self, offset: int, found: LogSlice) -> list[AbortedTransaction]:
        """What a read_committed consumer has to leave out of what it ``found`` from ``offset`` on,
        by first offset; there may be more than it needs. KafkaError: KAFKA_STORAGE_ERROR."""
        log = self.log
        if not found.size or not log.has_aborted(offset):
            return []
        upper = min(end_of_slice(log.segments, found), log.last_stable_offset)
        return log.aborted_transactions(offset, upper)

    def check_leader_epoch(self, epoch: int) -> None:
        """Hold the epoch that a client believes in against ours (-1: it does not say)."""
        if epoch in (-1, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def looking_for_timestamp(self, timestamp: int, *, committed: bool = False) -> Lookup:
        """The first record, in offset order, that is not older than ``timestamp`` (ms).

        None where there is none below :meth:`end_offset`. A generator, see ``log/lookup.py``.
        KafkaError: KAFKA_STORAGE_ERROR.
        """
        return self.log.looking_for_timestamp(timestamp, self.end_offset(committed=committed))

    def looking_for_latest(self, *, committed: bool = False) -> Lookup:
        """The first record with the largest timestamp; None in an empty log, and where it is not
        below :meth:`end_offset`. A generator. KafkaError: KAFKA_STORAGE_ERROR."""
        found = yield from self.log.looking_for_latest()
        if found is not None and found.offset >= self.end_offset(committed=committed):
            return None
        return found

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

    def advance_start(self, before_offset: int) -> bool:
        """Move the log's start; -1 means to the high watermark. Whether it moved: then that is to
        be written down, and segments below may go (``Log.delete_old_segments``).

        KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        return self.log.advance_start(self._start_wanted(before_offset))

    def delete_records(self, before_offset: int) -> int:
        """Do all of that; returns the start. KafkaError as :meth:`advance_start`."""
        return self.log.delete_records(self._start_wanted(before_offset))

    def _start_wanted(self, before_offset: int) -> int:
        if before_offset == HIGH_WATERMARK:
            return self.high_watermark
        if not 0 <= before_offset <= self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return before_offset
