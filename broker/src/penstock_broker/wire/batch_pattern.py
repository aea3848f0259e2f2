"""Batches that differ in nothing that a rule looks at.

Whether a batch is accepted depends on its header and on the structure of its records, not on what
is in keys and values. A producer of small batches sends the same header over and over, but for CRC
and timestamps. So where a batch has been accepted, one whose other bytes are the same is accepted
too: comparing them takes a third of the time of checking them. Of a single record they are compared
with the header, of up to 64 that are alike by their shape (``record_walk.Shape``).

CRC and timestamps are what is left to look at. There is no rule here: a batch that is not like an
accepted one is neither right nor wrong.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from penstock_broker.wire.record_walk import Shape, shape_of
from penstock_broker.wire.records import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
    HEADER_BYTES,
    PRODUCER_ID_AT,
    RecordBatch,
)

_TIMES = "8xq"
"""The timestamps of a header; the second is the largest."""


class BatchPattern:
    """What batches of one size have in common, and the bytes around them."""

    __slots__ = (
        "_attributes", "_before", "_fits", "_head", "_rest", "_unpack", "last_offset_delta", "size",
    )  # fmt: skip

    size: int
    """Bytes of the batch."""

    def __init__(
        self,
        batch: RecordBatch,
        before: bytes,
        rest: list[tuple[int, bytes]],
        shape: Shape | None,
    ) -> None:
        """``rest``: what is the same from the producer id on, by its place in the batch.
        ``shape``: of the records, if they are not in ``rest``."""
        header = bytes(batch.view[:HEADER_BYTES])
        self.size = batch.size
        self.last_offset_delta = batch.last_offset_delta
        self._before = len(before)
        self._head = before + header[:CRC_AT]
        self._attributes = header[ATTRIBUTES_AT:BASE_TIMESTAMP_AT]
        self._rest = [same for _, same in rest]
        self._fits = None if shape is None else shape.fits
        layout = f">{len(self._head)}sI{len(self._attributes)}s{_TIMES}"
        end = PRODUCER_ID_AT
        for at, same in rest:
            layout += f"{at - end}x{len(same)}s"
            end = at + len(same)
        self._unpack = struct.Struct(layout).unpack_from

    def timestamp_of(self, buffer: memoryview, data: bytearray, position: int) -> int | None:
        """The largest timestamp, in ms, of the batch at ``position``, if it is like these and its
        CRC is right. ``buffer`` is a view of all of ``data``, and as long as what follows it.
        """
        head, crc, attributes, timestamp, *rest = self._unpack(data, position - self._before)
        if (
            head != self._head
            or attributes != self._attributes
            or rest != self._rest
            or crc32c(buffer[position + ATTRIBUTES_AT : position + self.size]) != crc
            or not (self._fits is None or self._fits(data, position + HEADER_BYTES))
        ):
            return None
        return timestamp  # type: ignore[no-any-return]


def pattern_of(batch: RecordBatch, before: bytes, after: bytes) -> BatchPattern | None:
    """What batches like ``batch`` have in common, which has been accepted and not changed yet.

    ``before`` and ``after``: the bytes around it, which are to be the same too. None where each
    batch is to be looked at: it is compressed, or of a producer that counts them, or its records
    are not alike, have headers, or are more than 64.
    """
    if batch.attributes or batch.producer_id >= 0:
        return None
    records = bytes(batch.view[HEADER_BYTES:])
    shape = shape_of(records, 0, len(records), batch.records_count)
    if shape is None:
        return None
    rest = [(PRODUCER_ID_AT, bytes(batch.view[PRODUCER_ID_AT:HEADER_BYTES]))]
    is_single = batch.records_count == 1
    if is_single:
        rest += [(HEADER_BYTES + at, same) for at, same in shape.columns]
    rest.append((batch.size, after))
    return BatchPattern(batch, before, rest, None if is_single else shape)
