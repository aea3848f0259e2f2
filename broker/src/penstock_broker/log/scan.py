"""A walk over the batches of a segment's file, header by header.

Everything that is derived from a log can be made again by this walk: the end of the log after a
crash, both indexes, the producers' state, the leader epochs. Batches are those of
``wire/records.py``; here only their header of 61 bytes is looked at, and the CRC if asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from penstock_broker.log.files import File
from penstock_broker.wire.records import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    NO_TIMESTAMP,
)

_CHUNK_BYTES_FIRST = 16 << 10
_CHUNK_BYTES_MAX = 1 << 20
_CHECK_BYTES = 1 << 20


class ScannedBatch(NamedTuple):
    """A batch in a file: where it is, and its header."""

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int


class BadBatchError(Exception):
    """What is at ``position`` is not a whole, intact batch; nothing after it can be believed.

    ``claimed`` is the half-open range of offsets that its header names, where it has a
    plausible one.
    """

    def __init__(self, position: int, reason: str, claimed: tuple[int, int] | None = None) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position
        self.reason = reason
        self.claimed = claimed


def scan(
    file: File,
    position: int,
    end: int,
    next_offset: int,
    *,
    check_crc: bool = False,
) -> Iterator[ScannedBatch]:
    """The batches from ``position`` up to ``end``, where ``next_offset`` is the least they have.

    Raises :class:`BadBatchError` at the first one that is torn or out of order; with ``check_crc``
    at one whose CRC does not match, too.
    """
    unpack_from = HEADER.unpack_from
    chunk, chunk_from, chunk_bytes = memoryview(b""), position, _CHUNK_BYTES_FIRST
    while position < end:
        at = position - chunk_from
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_from, at = memoryview(file.read(position, chunk_bytes)), position, 0
            # Who looks for one batch reads little; who walks the whole file, in large pieces.
            chunk_bytes = min(2 * chunk_bytes, _CHUNK_BYTES_MAX)
            if len(chunk) < HEADER_BYTES:
                raise BadBatchError(position, "torn batch: its header is not whole")
        (base, length, epoch, magic, crc, attributes, delta, base_timestamp, max_timestamp,
         producer_id, producer_epoch, sequence, count) = unpack_from(chunk, at)  # fmt: skip
        size = length + LENGTH_END
        if (
            magic != MAGIC
            or size < HEADER_BYTES
            or delta < 0
            or base < next_offset
            or position + size > end
        ):
            raise _bad_header(chunk, at, position, end, next_offset)
        if check_crc:
            if at + size > len(chunk):
                data = file.read(position, max(size, chunk_bytes))
                chunk, chunk_from, at = memoryview(data), position, 0
            if crc32c(chunk[at + ATTRIBUTES_AT : at + size]) != crc:
                raise BadBatchError(position, "CRC mismatch", (base, base + delta + 1))
        next_offset = base + delta + 1
        yield ScannedBatch(
            position, size, base, epoch, attributes, base + delta, base_timestamp, max_timestamp,
            producer_id, producer_epoch, sequence, count,
        )  # fmt: skip
        position += size


class Checked(NamedTuple):
    """What :func:`check` found, and where another one continues."""

    end_offset: int
    size: int
    last_batch: tuple[int, int]
    """Base offset and position of the last batch."""
    timestamp_max: int
    unindexed: int
    """Bytes behind the last entry that ``on_entry`` was given."""
    bad: BadBatchError | None = None
    """Why it ends before the end of the file."""


def unchecked(next_offset: int) -> Checked:
    """Nothing has been checked of a file whose offsets begin at ``next_offset`` or above."""
    return Checked(next_offset, 0, (-1, 0), NO_TIMESTAMP, 0)


def check(  # noqa: PLR0912 (one loop, made for speed)
    file: File,
    end: int,
    begin: Checked,
    *,
    check_crc_from: int,
    holes_below: int,
    index_interval_bytes: int,
    epoch: int,
    on_entry: Callable[[int, int, int], None],
    on_batch: Callable[[ScannedBatch], None],
) -> Checked:
    """Check a segment's file from where ``begin`` ended, as recovery does, in one loop made for
    speed.

    As :func:`scan`, but batches from offset ``check_crc_from`` on are checked for good: their CRC,
    and that no offset is missing before them, because the base offset is not covered by the CRC.
    Below ``holes_below``, where compaction has been, offsets may be missing. And instead of every
    batch only those are handed out that recovery has to look at: ``on_batch`` gets those with a
    producer id and those whose leader epoch is above ``epoch`` and all before.
    ``on_entry(base offset, position, largest timestamp before)`` is called about every
    ``index_interval_bytes``, for the indexes. OSError.
    """
    unpack_from, checksum, crc_at = HEADER.unpack_from, crc32c, ATTRIBUTES_AT
    next_offset, position, (last_base, at_last), latest, unindexed, bad = begin
    chunk, chunk_from = memoryview(b""), position
    try:
        while position < end:
            at = position - chunk_from
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_from, at = memoryview(file.read(position, _CHECK_BYTES)), position, 0
                if len(chunk) < HEADER_BYTES:
                    raise BadBatchError(position, "torn batch: its header is not whole")
            header = unpack_from(chunk, at)
            base, length, batch_epoch, magic, crc, _, delta, _, newest, producer_id = header[:10]
            size = length + LENGTH_END
            last = base + delta
            if (
                magic != MAGIC or size < HEADER_BYTES or delta < 0 or base < next_offset
                or position + size > end
            ):  # fmt: skip
                raise _bad_header(chunk, at, position, end, next_offset)
            if last >= check_crc_from:
                if base != next_offset and base > holes_below:
                    raise BadBatchError(position, f"base offset {base} where {next_offset} follows")
                if at + size > len(chunk):
                    data = file.read(position, max(size, _CHECK_BYTES))
                    chunk, chunk_from, at = memoryview(data), position, 0
                if checksum(chunk[at + crc_at : at + size]) != crc:
                    raise BadBatchError(position, "CRC mismatch", (base, last + 1))
            if unindexed > index_interval_bytes:
                on_entry(base, position, latest)
                unindexed = 0
            if producer_id >= 0 or batch_epoch > epoch:
                epoch = max(epoch, batch_epoch)
                on_batch(ScannedBatch(position, size, base, batch_epoch, header[5], last,
                                      header[7], *header[8:]))  # fmt: skip
            if newest > latest:  # noqa: PLR1730 (a call costs as much as the rest of the loop)
                latest = newest
            next_offset, at_last = last + 1, position
            unindexed += size
            position += size
    except BadBatchError as error:
        bad = error
    if position > begin.size:
        last_base = int.from_bytes(file.read(at_last, 8), "big", signed=True)
    return Checked(next_offset, position, (last_base, at_last), latest, unindexed, bad)


def _bad_header(
    chunk: memoryview, at: int, position: int, end: int, next_offset: int
) -> BadBatchError:
    """What is wrong with a header."""
    base, length, _, magic, _, _, delta = HEADER.unpack_from(chunk, at)[:7]
    size = length + LENGTH_END
    if end - position < HEADER_BYTES:
        return BadBatchError(position, "torn batch: its header is not whole")
    if magic != MAGIC or size < HEADER_BYTES or delta < 0:
        reason = f"no batch (magic {magic}, length {length}, delta {delta})"
        return BadBatchError(position, reason)
    if base < next_offset:
        return BadBatchError(position, f"base offset {base} where {next_offset} is the least")
    missing = position + size - end
    reason = f"torn batch: {missing} of {size} bytes missing"
    return BadBatchError(position, reason, (base, base + delta + 1))
