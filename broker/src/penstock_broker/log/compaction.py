"""Compaction: of the records with the same key, the last one stays.

Two passes over closed segments, as in Kafka's log cleaner. The first reads the records that came
since the last compaction and notes the newest offset of each key in an :class:`OffsetMap`, until
that is full. The second rewrites everything from the log's beginning up to there and keeps of each
batch (:class:`BatchFilter`) the records that nothing newer replaces. Offsets never change: what is
removed leaves a hole, in a batch or between two.

What stays although it has been replaced:

* a batch whose header holds the last sequence of an idempotent producer that is still known, as
  an empty batch: the producer's state can be made again from the log;
* a deletion marker (a null value) for ``delete.retention.ms`` from the first compaction that saw
  it, so that a consumer that was behind learns of the deletion (KIP-534): the batch's base
  timestamp is then the time at which its markers go (its delete horizon), bit 6 of its attributes
  says so, and the records' timestamps count from it;
* an abort or commit marker as long as a record of its transaction is there, and for the same time
  after that.

Records of aborted transactions go; records without a key, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from crc32c import crc32c

from penstock_broker.log.files import File
from penstock_broker.log.markers import ABORT, COMMIT
from penstock_broker.log.scan import BadBatchError
from penstock_broker.wire.batch_builder import write_varint
from penstock_broker.wire.compression import Codec, compress, decompress
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.record_parsing import ParsedRecord, key_of, parse_records
from penstock_broker.wire.records import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)

DELETE_HORIZON_FLAG = 0x40
_CHUNK_BYTES = 4 << 20
_KEY_BYTES_MAX = 40
_ENTRY_BYTES = 150
"""About what an entry of a dict takes beside the bytes of its key."""


# -- records -------------------------------------------------------------------------------------


def read_batches(file: File, size: int) -> Iterator[tuple[int, RecordBatch]]:
    """Every batch of a segment with its position, each checked. BadBatchError, OSError."""
    position = 0
    chunk, chunk_from = memoryview(b""), 0
    while position < size:
        at = position - chunk_from
        need = HEADER_BYTES
        if at + need <= len(chunk):
            need = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LENGTH_END
        if at + need > len(chunk):
            if position + need > size:
                raise BadBatchError(position, f"no batch (length {need - LENGTH_END})")
            wanted = max(_CHUNK_BYTES, need)
            chunk = memoryview(file.read(position, min(wanted, size - position)))
            if len(chunk) < need:
                raise BadBatchError(position, "torn batch")
            chunk_from = position
            continue
        try:
            batch = RecordBatch(chunk, at)
        except DecodeError as error:
            raise BadBatchError(position, str(error)) from error
        if batch.magic != MAGIC or not batch.crc_is_valid():
            raise BadBatchError(position, "no intact batch")
        yield position, batch
        position += batch.size_bytes


def _records_of(batch: RecordBatch) -> tuple[bytes, list[ParsedRecord]]:
    payload = decompress(batch.codec, batch.view[HEADER_BYTES:])
    return payload, list(parse_records(payload, batch.records_count))


# -- pass 1 --------------------------------------------------------------------------------------


class OffsetMap:
    """The newest offset of each key, as long as there is space.

    Keys of up to 40 bytes are kept as they are, longer ones as a digest of 41 bytes: a collision
    of two digests is not to be expected.
    """

    def __init__(self, bytes_max: int) -> None:
        self.end_offset = -1
        """What the map knows of ends here: newer records are all kept."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, batch: RecordBatch) -> bool:
        """Take in the keys of a batch; False, with nothing done, when the map is full.

        The first batch is taken in whatever its size, or nothing could ever be compacted.
        """
        payload, records = _records_of(batch)
        if self._bytes and self._bytes + len(records) * _ENTRY_BYTES > self._bytes_max:
            return False
        base, offsets = batch.base_offset, self._offsets
        before = len(offsets)
        key_bytes = 0
        for record in records:
            if record.key_at >= 0:
                key = payload[record.key_at : record.value_at]
                if len(key) > _KEY_BYTES_MAX:
                    key = _digest(key)
                key_bytes += len(key)
                offsets[key] = base + record.offset_delta
        new = len(offsets) - before
        self._bytes += new * _ENTRY_BYTES + (key_bytes * new // len(records) if records else 0)
        return True

    def is_replaced(self, key: bytes, offset: int) -> bool:
        """Whether a newer record of this key is known."""
        return self._offsets.get(key if len(key) <= _KEY_BYTES_MAX else _digest(key), -1) > offset


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_KEY_BYTES_MAX + 1).digest()


# -- transactions --------------------------------------------------------------------------------


class Aborted(NamedTuple):
    """A transaction that was aborted: its producer, its first record, its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class TransactionTracker:
    """Which transaction the batches belong to; fed in the order of the log."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._waiting = sorted(aborted, key=lambda t: t.first_offset, reverse=True)
        self._aborted: dict[int, bool] = {}
        """Producer whose aborted transaction is under way -> whether a batch of it was there."""
        self._committed: set[int] = set()

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Note a batch of records; whether its transaction was aborted."""
        self._begin(batch.last_offset)
        if not batch.attributes & TRANSACTIONAL_FLAG:
            return False
        if batch.producer_id in self._aborted:
            self._aborted[batch.producer_id] = True
            return True
        self._committed.add(batch.producer_id)
        return False

    def ends_nothing(self, batch: RecordBatch) -> bool:
        """Note a marker; whether no record of its transaction was there."""
        self._begin(batch.last_offset)
        kind = marker_type(batch)
        if kind == ABORT:
            return not self._aborted.pop(batch.producer_id, False)
        if kind == COMMIT:
            before = len(self._committed)
            self._committed.discard(batch.producer_id)
            return before == len(self._committed)
        return False

    def _begin(self, last_offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[-1].first_offset <= last_offset:
            self._aborted.setdefault(waiting.pop().producer_id, False)


def marker_type(batch: RecordBatch) -> int:
    """0 for an abort, 1 for a commit; -1 for a control batch of another kind."""
    payload, records = _records_of(batch)
    key = key_of(payload, records[0]) if records else None
    return int.from_bytes(key[2:4], "big") if key is not None and len(key) >= 4 else -1


# -- pass 2 --------------------------------------------------------------------------------------


class LastOfProducer(NamedTuple):
    """What the log must keep of a producer that is still known."""

    epoch: int
    last_data_offset: int
    """-1 where its last entry is a marker."""


class BatchFilter:
    """What is left of each batch; fed in the order of the log."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: TransactionTracker,
        producers: dict[int, LastOfProducer],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def apply(self, batch: RecordBatch) -> memoryview | bytes | None:
        """The bytes of the batch as it is to be from now on; None when nothing of it is left.

        DecodeError where its records cannot be read.
        """
        horizon = batch.base_timestamp if batch.attributes & DELETE_HORIZON_FLAG else None
        if batch.attributes & CONTROL_FLAG:
            return self._marker(batch, horizon)
        if self._transactions.is_aborted(batch):
            return self._emptied(batch)
        if not batch.records_count:
            return batch.view if self._is_last_of_producer(batch) else None
        payload, records = _records_of(batch)
        kept, has_tombstones = self._keep(batch, payload, records, horizon)
        if not kept:
            return self._emptied(batch)
        if has_tombstones and horizon is None:
            horizon = self._now_ms + self._delete_retention_ms
        elif len(kept) == len(records):
            return batch.view
        return rebuild(batch, payload, kept, horizon)

    def _keep(
        self,
        batch: RecordBatch,
        payload: bytes,
        records: list[ParsedRecord],
        horizon: int | None,
    ) -> tuple[list[ParsedRecord], bool]:
        base, offsets = batch.base_offset, self._offsets
        known_to = offsets.end_offset
        drops_markers = horizon is not None and horizon <= self._now_ms
        kept = []
        has_tombstones = False
        for record in records:
            offset = base + record.offset_delta
            has_value = not payload[record.value_at] & 1
            if offset < known_to:
                key = key_of(payload, record)
                if key is None or offsets.is_replaced(key, offset):
                    continue
                if not has_value and drops_markers:
                    continue
            has_tombstones |= not has_value
            kept.append(record)
        return kept, has_tombstones

    def _marker(self, batch: RecordBatch, horizon: int | None) -> memoryview | bytes | None:
        if not self._transactions.ends_nothing(batch):
            return batch.view
        if horizon is None:
            payload, records = _records_of(batch)
            return rebuild(batch, payload, records, self._now_ms + self._delete_retention_ms)
        return batch.view if self._now_ms < horizon else self._emptied(batch)

    def _emptied(self, batch: RecordBatch) -> bytes | None:
        return empty_batch(batch) if self._is_last_of_producer(batch) else None

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        last = self._producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return batch.last_offset == last.last_data_offset
        return bool(batch.attributes & CONTROL_FLAG) and batch.producer_epoch == last.epoch


def rebuild(
    batch: RecordBatch, payload: bytes, kept: Sequence[ParsedRecord], horizon: int | None
) -> bytes:
    """The batch with some of its records, at the offsets, sequences and times that they had."""
    base_timestamp, attributes = batch.base_timestamp, batch.attributes
    if horizon is not None and not attributes & DELETE_HORIZON_FLAG:
        shift, base_timestamp = base_timestamp - horizon, horizon
        attributes |= DELETE_HORIZON_FLAG
        body = b"".join([_retimed(payload, record, shift) for record in kept])
    else:
        body = b"".join([payload[record.start : record.end] for record in kept])
    if attributes & LOG_APPEND_TIME_FLAG:
        max_timestamp = batch.max_timestamp
    else:
        max_timestamp = batch.base_timestamp + max(record.timestamp_delta for record in kept)
    body = compress(Codec(attributes & CODEC_MASK), body)
    times = (base_timestamp, max_timestamp)
    return _batch_bytes(batch, attributes, times, len(kept), body)


def empty_batch(batch: RecordBatch) -> bytes:
    """A batch without records that keeps what its header says of offsets and sequences."""
    attributes = batch.attributes & ~CODEC_MASK & ~DELETE_HORIZON_FLAG
    return _batch_bytes(batch, attributes, (NO_TIMESTAMP, batch.max_timestamp), 0, b"")


def _retimed(payload: bytes, record: ParsedRecord, shift: int) -> bytes:
    """A record whose timestamp counts from another base."""
    position = record.start
    while payload[position] >= 0x80:
        position += 1
    position += 1  # the length
    attributes = payload[position : position + 1]
    position += 1
    while payload[position] >= 0x80:
        position += 1
    body = b"".join(
        (attributes, write_varint(record.timestamp_delta + shift),
         payload[position + 1 : record.end])
    )  # fmt: skip
    return write_varint(len(body)) + body


def _batch_bytes(
    batch: RecordBatch,
    attributes: int,
    times: tuple[int, int],
    count: int,
    body: bytes,
) -> bytes:
    data = bytearray(HEADER_BYTES) + body
    HEADER.pack_into(
        data, 0, batch.base_offset, len(data) - LENGTH_END, batch.partition_leader_epoch, MAGIC, 0,
        attributes, batch.last_offset_delta, *times, batch.producer_id,
        batch.producer_epoch, batch.base_sequence, count,
    )  # fmt: skip
    data[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(data)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(data)


# -- what to compact -----------------------------------------------------------------------------


class SealedSegment(NamedTuple):
    """A closed segment as the compaction sees it."""

    base_offset: int
    end_offset: int
    """Where the next segment begins."""
    size: int
    index_bytes: int
    newest_ms: int
    """Its largest timestamp, or when it was last written."""


class Dirt(NamedTuple):
    """How much of a log is worth compacting."""

    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """How long its oldest dirty record has been due (``max.compaction.lag.ms``); 0: not."""

    @property
    def ratio(self) -> float:
        """The share of what is dirty."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable_end(
    segments: Sequence[SealedSegment],
    first_dirty: int,
    *,
    stable_offset: int,
    now_ms: int,
    min_lag_ms: int,
) -> int:
    """The offset below which segments may be compacted: decided, and old enough."""
    end = first_dirty
    for segment in segments:
        if segment.end_offset <= first_dirty:
            continue
        if segment.end_offset > stable_offset:
            break
        if min_lag_ms > 0 and segment.newest_ms > now_ms - min_lag_ms:
            break
        end = segment.end_offset
    return end


def measure(
    segments: Sequence[SealedSegment],
    first_dirty: int,
    end: int,
    *,
    now_ms: int,
    max_lag_ms: int,
    oldest_dirty_ms: int | None,
) -> Dirt:
    """How dirty a log is up to ``end``; ``oldest_dirty_ms`` is its first dirty timestamp."""
    clean = sum(segment.size for segment in segments if segment.end_offset <= first_dirty)
    dirty = sum(s.size for s in segments if s.end_offset > first_dirty and s.end_offset <= end)
    overdue = 0
    if oldest_dirty_ms is not None and dirty:
        overdue = max(0, now_ms - oldest_dirty_ms - max_lag_ms)
    return Dirt(clean, dirty, overdue)


def group_segments(
    segments: Sequence[SealedSegment], *, segment_bytes: int, index_bytes: int
) -> list[list[SealedSegment]]:
    """Neighbours that together make no larger segment than the settings allow."""
    groups: list[list[SealedSegment]] = []
    size = indexed = 0
    for segment in segments:
        group = groups[-1] if groups else []
        if (
            not group
            or size + segment.size > segment_bytes
            or indexed + segment.index_bytes > index_bytes
            or segment.end_offset - group[0].base_offset > 2**31 - 1
        ):
            groups.append([segment])
            size = indexed = 0
        else:
            group.append(segment)
        size += segment.size
        indexed += segment.index_bytes
    return groups
