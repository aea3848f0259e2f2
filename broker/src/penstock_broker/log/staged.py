"""Several batches appended with one write.

Small batches come by the hundred in one read of a socket, and writing each of them costs as much
as checking it. Here they get their offsets first, and one ``pwritev`` writes them all. Nothing of
it is in the log until :meth:`StagedBatches.commit` has written it: no reader can see an offset
whose bytes are not in the file, and a write that fails takes nothing back, because nothing was
given out. Whoever stages commits in the same step of the event loop.

This is the way for batches about which there is nothing to decide; whatever needs a new segment,
a sync, a new leader epoch or an error message goes through :meth:`Log.append`.
"""

from __future__ import annotations

from penstock_broker.config.table import INT64_MAX
from penstock_broker.errors import KafkaError
from penstock_broker.log.log import Log
from penstock_broker.log.producer_state import SEQUENCE_MASK, AppendedBatch
from penstock_broker.log.rolling import must_roll
from penstock_broker.wire.records import NO_TIMESTAMP

_OFFSETS_AT_ONCE_MAX = 1 << 28
"""More records than there are bytes in what is read at once."""


class StagedBatches:
    """What one step of the event loop appends to one log.

    The hot path adds to the attributes by itself: see ``api/produce_repeat.py``.
    """

    __slots__ = (
        "_log",
        "_now_ms",
        "_numbered",
        "next_offset",
        "parts",
        "placed",
        "room",
        "start_offset",
    )

    def __init__(self, log: Log, room: int, now_ms: int) -> None:
        self.next_offset = log.log_end_offset
        """The offset of the next batch."""
        self.start_offset = log.log_start_offset
        """Where the log begins, for the answers."""
        self.room = room
        """Bytes that the segment can still take."""
        self.parts: list[memoryview] = []
        """The batches, patched."""
        self.placed: list[tuple[int, int, int]] = []
        """(base offset, size in bytes, largest timestamp) of each."""
        self._log = log
        self._now_ms = now_ms
        self._numbered: dict[int, list[tuple[int, AppendedBatch]]] = {}

    def follows(self, producer_id: int, epoch: int, sequence: int, count: int) -> bool:
        """Whether this is the batch that an idempotent producer has next; then it is noted, to be
        placed at ``next_offset``. All else (repeats, fencing) is for :meth:`Log.append`."""
        noted = self._numbered.get(producer_id)
        last_sequence = (sequence + count - 1) & SEQUENCE_MASK
        if noted is None:
            try:
                first = self._log.producers.check(producer_id, epoch, sequence, last_sequence)
            except KafkaError:
                return False
            if first is not None:
                return False
            noted = self._numbered[producer_id] = []
        else:
            known_epoch, before = noted[-1]
            if epoch != known_epoch or sequence != (before.last_sequence + 1) & SEQUENCE_MASK:
                return False
        offset = self.next_offset
        batch = AppendedBatch(sequence, last_sequence, offset, offset + count - 1, NO_TIMESTAMP)
        noted.append((epoch, batch))
        return True

    def commit(self) -> None:
        """Write them. KafkaError KAFKA_STORAGE_ERROR: none of them is in the log."""
        log, now_ms = self._log, self._now_ms
        segment = log.segments[-1]
        try:
            segment.append_many(self.parts, self.placed)
        except OSError as error:
            raise log.append_failed(segment, error) from error
        for producer_id, noted in self._numbered.items():
            for epoch, batch in noted:
                log.producers.note(producer_id, epoch, batch, now_ms)
        log.advance(segment, self.next_offset, now_ms)


def stage(log: Log, leader_epoch: int, now_ms: int) -> StagedBatches | None:
    """Begin; None where each batch has to be looked at by :meth:`Log.append`."""
    segment, config = log.segments[-1], log.config
    if (
        log.failure is not None
        or leader_epoch != log.epochs.latest
        or config.flush_messages != INT64_MAX
        or must_roll(segment, config, 1, log.log_end_offset + _OFFSETS_AT_ONCE_MAX, now_ms=now_ms)
    ):
        return None
    return StagedBatches(log, config.segment_bytes - segment.size, now_ms)
