"""What a partition remembers of its idempotent and transactional producers (KIP-98, KIP-360).

Of each producer id: its epoch and the last five batches that it had appended. A retry of one of
the five gets the offsets of the first attempt instead of being appended again; anything that does
not follow on is refused, so that a producer's records are there once and in order.

The state is derived from the log, whose batches carry producer id, epoch and sequences. To make a
start cheap, a snapshot is written at each roll and at a clean stop; the batches after the newest
snapshot are read on top. Format of ``<offset>.snapshot`` (state of all batches below offset):

    uint16  format version, 2
    uint32  CRC-32C of what follows
    int64   offset
    uint32  number of producers, then for each:
        int64  producer id     int16  epoch      int64  last append, ms, broker's clock
        int32  epoch of the coordinator that wrote its last marker, -1 for none
        int64  offset of the first record of its open transaction, -1 for none
        uint8  number of batches, oldest first, then for each:
            int32  base sequence   int32  last offset delta   int64  base offset   int64  timestamp

Version 1, of a time without transactions, lacks the two fields of them, and is read.

A producer that has been silent for ``producer.id.expiration.ms`` expires unless it has a
transaction open, and an unknown one may begin with any sequence (KIP-360). Where there are more
than ``max.producer.ids.per.partition``, those that have been silent the longest expire too.
"""

from __future__ import annotations

import heapq
from collections import deque
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.markers import Marker
from penstock_broker.log.open_transactions import AbortedTransaction, OpenTransactions

RETAINED_BATCHES = 5
PRODUCERS_MAX = 10_000
SEQUENCE_MASK = 0x7FFFFFFF
_HEAD = Struct(">HI")
_BODY = Struct(">qI")
_PRODUCER_V1 = Struct(">qhqB")
_PRODUCER = Struct(">qhqiqB")
_BATCH = Struct(">iiqq")
_VERSION = 2


class AppendedBatch(NamedTuple):
    """A batch as its producer numbered it and the log placed it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


Producers = list[tuple[tuple[int, ...], tuple[AppendedBatch, ...]]]
"""What a snapshot has of each producer, and its batches."""


class ProducerEntry:
    """One producer: its epoch and its last batches."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_append_ms")

    def __init__(self, epoch: int, last_append_ms: int, coordinator_epoch: int) -> None:
        self.epoch = epoch
        self.last_append_ms = last_append_ms
        self.coordinator_epoch = coordinator_epoch
        """Of the coordinator that wrote its last marker; -1 for none."""
        self.batches: deque[AppendedBatch] = deque(maxlen=RETAINED_BATCHES)

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record; -1 when none is known."""
        return self.batches[-1].last_sequence if self.batches else -1


class SnapshotDamagedError(Exception):
    """The snapshot cannot be used; an older one, or the log alone, can."""


class ProducerState:
    """All idempotent producers of one partition. Owned by its log."""

    __slots__ = ("_producers", "producers_max", "transactions")

    def __init__(self) -> None:
        self.producers_max = PRODUCERS_MAX
        """The most that are remembered: a client may write with ids that were never given out."""
        self._producers: dict[int, ProducerEntry] = {}
        self.transactions = OpenTransactions()
        """Those that are open."""

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer."""
        return self._producers.get(producer_id)

    def producers(self) -> dict[int, ProducerEntry]:
        """All that are known, by id."""
        return dict(self._producers)

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_sequence: int,
        is_transactional: bool = False,
    ) -> AppendedBatch | None:
        """Whether a batch may be appended: None, or the first attempt that it repeats.

        KafkaError INVALID_PRODUCER_EPOCH for an epoch that has been replaced,
        OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that neither repeats nor follows,
        INVALID_TXN_STATE for one outside the transaction that the producer has open.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            return None
        if epoch != entry.epoch:
            self._check_epoch(entry, producer_id, epoch)
            if base_sequence != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {producer_id} begins its new epoch {epoch} with sequence "
                    f"{base_sequence}.",
                )
        else:
            expected = (entry.last_sequence + 1) & SEQUENCE_MASK
            if base_sequence != expected:
                for batch in entry.batches:
                    if (
                        batch.base_sequence == base_sequence
                        and batch.last_sequence == last_sequence
                    ):
                        return batch
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {producer_id} sent sequence {base_sequence} where {expected} "
                    "follows.",
                )
        if not is_transactional and producer_id in self.transactions.begun:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {producer_id}.",
            )
        return None

    @staticmethod
    def _check_epoch(entry: ProducerEntry, producer_id: int, epoch: int) -> None:
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of producer {producer_id} is smaller than the last seen, "
                f"{entry.epoch}.",
            )

    def require_open(self, producer_id: int) -> None:
        """KafkaError INVALID_TXN_STATE where the producer has no transaction open here (KIP-890).
        A batch would be in one that no marker ends."""
        if producer_id not in self.transactions.begun:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction"
            )

    def check_coordinator(
        self, producer_id: int, epoch: int, coordinator_epoch: int | None = None
    ) -> None:
        """Whether a coordinator may append for a producer: a batch without sequences, or a marker
        (then with its own epoch). KafkaError INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED."""
        entry = self._producers.get(producer_id)
        if entry is None:
            return
        self._check_epoch(entry, producer_id, epoch)
        if coordinator_epoch is not None and coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {coordinator_epoch} for producer {producer_id} is smaller than "
                f"the last seen, {entry.coordinator_epoch}.",
            )

    def update(
        self,
        producer_id: int,
        epoch: int,
        batch: AppendedBatch,
        now_ms: int,
        is_transactional: bool = False,
    ) -> None:
        """Update a producer's state for an appended batch."""
        entry = self._producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self._renew(producer_id, epoch, now_ms)
        if batch.base_sequence >= 0:
            entry.batches.append(batch)
        entry.last_append_ms = now_ms
        if is_transactional:
            self.transactions.begin(producer_id, batch.base_offset)

    def update_for_marker(
        self,
        producer_id: int,
        epoch: int,
        offset: int,
        now_ms: int,
        marker: Marker,
    ) -> AbortedTransaction | None:
        """Update a producer's state for an appended marker; the transaction it aborted, if any."""
        entry = self._producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self._renew(producer_id, epoch, now_ms)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_append_ms = now_ms
        return self.transactions.end(producer_id, offset, is_commit=marker.is_commit)

    def _renew(self, producer_id: int, epoch: int, now_ms: int) -> ProducerEntry:
        known = self._producers.get(producer_id)
        coordinator_epoch = -1 if known is None else known.coordinator_epoch
        entry = ProducerEntry(epoch, now_ms, coordinator_epoch)
        if known is None and len(self._producers) >= self.producers_max:
            self._evict_silent()
        self._producers[producer_id] = entry
        return entry

    def _evict_silent(self) -> None:
        """Remove a tenth of the producers, the longest silent, as if they had expired."""
        transactions = self.transactions.begun
        idle = [(e.last_append_ms, p) for p, e in self._producers.items() if p not in transactions]
        for _, producer_id in heapq.nsmallest(1 + self.producers_max // 10, idle):
            del self._producers[producer_id]

    def expire(self, before_ms: int) -> int:
        """Remove producers whose last append is older; how many they were."""
        old = [
            producer_id
            for producer_id, entry in self._producers.items()
            if entry.last_append_ms < before_ms and producer_id not in self.transactions.begun
        ]
        for producer_id in old:
            del self._producers[producer_id]
        return len(old)

    def clear(self) -> None:
        """Remove all producers."""
        self._producers.clear()
        self.transactions = OpenTransactions()

    def copy(self) -> Producers:
        """All that are known, as they are now: for another thread to make a snapshot of."""
        begun = self.transactions.begun
        return [
            (
                (producer_id, entry.epoch, entry.last_append_ms, entry.coordinator_epoch,
                 begun.get(producer_id, -1), len(entry.batches)),
                tuple(entry.batches),
            )
            for producer_id, entry in self._producers.items()
        ]  # fmt: skip

    def to_snapshot(self, offset: int) -> bytes:
        """The state as a snapshot file, for all batches below ``offset``."""
        return snapshot_of(self.copy(), offset)

    def load_snapshot(self, data: bytes) -> int:
        """Replace the state by a snapshot's; its offset. :class:`SnapshotDamagedError`."""
        try:
            version, crc = _HEAD.unpack_from(data)
            if version not in (1, _VERSION):
                raise SnapshotDamagedError(f"format version {version}")
            if crc32c(data[_HEAD.size :]) != crc:
                raise SnapshotDamagedError("CRC mismatch")
            offset, count = _BODY.unpack_from(data, _HEAD.size)
            position = _HEAD.size + _BODY.size
            producers: dict[int, ProducerEntry] = {}
            begun: list[tuple[int, int]] = []
            layout = _PRODUCER_V1 if version == 1 else _PRODUCER
            for _ in range(count):
                producer_id, epoch, last_append_ms, *more, batches = layout.unpack_from(
                    data, position
                )
                position += layout.size
                coordinator_epoch, first_offset = more or (-1, -1)
                entry = ProducerEntry(epoch, last_append_ms, coordinator_epoch)
                producers[producer_id] = entry
                if first_offset >= 0:
                    begun.append((first_offset, producer_id))
                for _ in range(batches):
                    sequence, delta, base, timestamp = _BATCH.unpack_from(data, position)
                    last_sequence = (sequence + delta) & SEQUENCE_MASK
                    entry.batches.append(
                        AppendedBatch(sequence, last_sequence, base, base + delta, timestamp)
                    )
                    position += _BATCH.size
        except error as short:
            raise SnapshotDamagedError(str(short)) from None
        self._producers = producers
        self.transactions = OpenTransactions()
        for first_offset, producer_id in sorted(begun):
            self.transactions.begin(producer_id, first_offset)
        return int(offset)


def snapshot_of(producers: Producers, offset: int) -> bytes:
    """A snapshot file of what :meth:`ProducerState.copy` gave when the log ended at ``offset``."""
    parts = [_BODY.pack(offset, len(producers))]
    for entry, batches in producers:
        parts.append(_PRODUCER.pack(*entry))
        parts.extend(
            _BATCH.pack(b.base_sequence, b.last_offset - b.base_offset, b.base_offset, b.timestamp)
            for b in batches
        )
    body = b"".join(parts)
    return _HEAD.pack(_VERSION, crc32c(body)) + body
