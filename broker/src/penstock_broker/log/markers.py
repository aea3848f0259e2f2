"""Transaction markers: the control batch that ends a transaction in one partition (KIP-98).

One record, uncompressed, in a batch of its own with the control and the transactional bit, the
transaction's producer id and epoch, and no sequence:

    key    i16 version, 0     i16 type: 0 abort, 1 commit
    value  i16 version, 0     i32 epoch of the coordinator that wrote it

The same as Kafka's ``EndTransactionMarker`` and ``ControlRecordType``.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import RecordBatch

ABORT: Final = 0
COMMIT: Final = 1
_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_VERSION: Final = 0


class Marker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that said so."""

    is_commit: bool
    coordinator_epoch: int


def build_marker(
    producer_id: int, producer_epoch: int, marker: Marker, timestamp_ms: int
) -> bytearray:
    """The control batch, with base offset 0."""
    record = NewRecord(
        _KEY.pack(_VERSION, COMMIT if marker.is_commit else ABORT),
        _VALUE.pack(_VERSION, marker.coordinator_epoch),
        timestamp_ms,
    )
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: RecordBatch) -> Marker | None:
    """What a control batch says; None for one that compaction has emptied or of another kind."""
    try:
        record = next(iter(batch.records()), None)
        if record is None or record.key is None or record.value is None:
            return None
        kind = _KEY.unpack_from(record.key)[1]
        if kind not in (ABORT, COMMIT):
            return None
        return Marker(kind == COMMIT, _VALUE.unpack_from(record.value)[1])
    except (DecodeError, error):
        return None
