"""What a partition remembers of its idempotent producers (KIP-98, KIP-360).

Of each producer id: its epoch and the last five batches that it had appended. A retry of one of
the five gets the offsets of the first attempt instead of being appended again; anything that does
not follow on is refused, so that a producer's records are there once and in order.

The state is derived from the log, whose batches carry producer id, epoch and sequences. To make a
start cheap, a snapshot is written at each roll and at a clean stop; the batches after the newest
snapshot are read on top. Format of ``<offset>.snapshot`` (state of all batches below offset):

    uint16  format version, 1
    uint32  CRC-32C of what follows
    int64   offset
    uint32  number of producers, then for each:
        int64  producer id     int16  epoch      int64  last append, ms, broker's clock
        uint8  number of batches, oldest first, then for each:
            int32  base sequence   int32  last offset delta   int64  base offset   int64  timestamp

A producer that has been silent for ``producer.id.expiration.ms`` is forgotten, and an unknown one
may begin with any sequence (KIP-360).
"""

from __future__ import annotations

from collections import deque
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

from penstock_broker.errors import ErrorCode, KafkaError

RETAINED_BATCHES = 5
SEQUENCE_MASK = 0x7FFFFFFF
_HEAD = Struct(">HI")
_BODY = Struct(">qI")
_PRODUCER = Struct(">qhqB")
_BATCH = Struct(">iiqq")
_VERSION = 1


class AppendedBatch(NamedTuple):
    """A batch as its producer numbered it and the log placed it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer: its epoch and its last batches."""

    __slots__ = ("batches", "epoch", "last_append_ms")

    def __init__(self, epoch: int, last_append_ms: int) -> None:
        self.epoch = epoch
        self.last_append_ms = last_append_ms
        self.batches: deque[AppendedBatch] = deque(maxlen=RETAINED_BATCHES)

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record; -1 when none is known."""
        return self.batches[-1].last_sequence if self.batches else -1


class SnapshotDamagedError(Exception):
    """The snapshot cannot be used; an older one, or the log alone, can."""


class ProducerState:
    """All idempotent producers of one partition. Owned by its log."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer."""
        return self._producers.get(producer_id)

    def producers(self) -> dict[int, ProducerEntry]:
        """All that are known, by id."""
        return dict(self._producers)

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, last_sequence: int
    ) -> AppendedBatch | None:
        """Whether a batch may be appended: None, or the first attempt that it repeats.

        KafkaError INVALID_PRODUCER_EPOCH for an epoch that has been replaced,
        OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that neither repeats nor follows.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            return None
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of producer {producer_id} is smaller than the last seen, "
                f"{entry.epoch}.",
            )
        if epoch > entry.epoch:
            if base_sequence != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {producer_id} begins its new epoch {epoch} with sequence "
                    f"{base_sequence}.",
                )
            return None
        expected = (entry.last_sequence + 1) & SEQUENCE_MASK
        if base_sequence == expected or not entry.batches:
            return None
        for batch in entry.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {producer_id} sent sequence {base_sequence} where {expected} follows.",
        )

    def note(self, producer_id: int, epoch: int, batch: AppendedBatch, now_ms: int) -> None:
        """Remember an appended batch."""
        entry = self._producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self._producers[producer_id] = ProducerEntry(epoch, now_ms)
        entry.batches.append(batch)
        entry.last_append_ms = now_ms

    def expire(self, before_ms: int) -> int:
        """Forget producers whose last append is older; how many they were."""
        old = [p for p, entry in self._producers.items() if entry.last_append_ms < before_ms]
        for producer_id in old:
            del self._producers[producer_id]
        return len(old)

    def clear(self) -> None:
        """Forget everybody."""
        self._producers.clear()

    def to_snapshot(self, offset: int) -> bytes:
        """The state as a snapshot file, for all batches below ``offset``."""
        parts = [_BODY.pack(offset, len(self._producers))]
        for producer_id, entry in self._producers.items():
            parts.append(
                _PRODUCER.pack(producer_id, entry.epoch, entry.last_append_ms, len(entry.batches))
            )
            parts.extend(
                _BATCH.pack(b.base_sequence, b.last_offset - b.base_offset, b.base_offset,
                            b.timestamp)
                for b in entry.batches
            )  # fmt: skip
        body = b"".join(parts)
        return _HEAD.pack(_VERSION, crc32c(body)) + body

    def load_snapshot(self, data: bytes) -> int:
        """Replace the state by a snapshot's; its offset. :class:`SnapshotDamagedError`."""
        try:
            version, crc = _HEAD.unpack_from(data)
            if version != _VERSION:
                raise SnapshotDamagedError(f"format version {version}")
            if crc32c(data[_HEAD.size :]) != crc:
                raise SnapshotDamagedError("CRC mismatch")
            offset, count = _BODY.unpack_from(data, _HEAD.size)
            position = _HEAD.size + _BODY.size
            producers: dict[int, ProducerEntry] = {}
            for _ in range(count):
                producer_id, epoch, last_append_ms, batches = _PRODUCER.unpack_from(data, position)
                position += _PRODUCER.size
                entry = producers[producer_id] = ProducerEntry(epoch, last_append_ms)
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
        return int(offset)
