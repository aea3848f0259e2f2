"""The batches of a segment file in words, for people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from penstock_broker.log.files import ReadOnlyFiles
from penstock_broker.log.markers import read_marker
from penstock_broker.log.scan import BadBatchError, ScannedBatch, scan
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import CODEC_MASK, CONTROL_FLAG, TRANSACTIONAL_FLAG, RecordBatch


def dump_log(path: Path, out: TextIO, *, with_records: bool = False) -> int:
    """Write one line a batch, and with ``with_records`` one a record, to ``out``.

    Every CRC is checked. Returns an exit status: 0, 1 where the file is damaged or unreadable.
    """
    try:
        for line in describe(path, with_records=with_records):
            out.write(line + "\n")
    except BadBatchError as error:
        out.write(f"BAD: {error}; the rest of the file is not valid\n")
        return 1
    except OSError as error:
        out.write(f"BAD: the file cannot be read: {error}\n")
        return 1
    return 0


def describe(path: Path, *, with_records: bool = False) -> Iterator[str]:
    """The lines of :func:`dump_log`. OSError, :class:`BadBatchError`."""
    file = ReadOnlyFiles().open(path)
    end = file.size()
    count = position = 0
    for batch in scan(file, 0, end, 0, check_crc=True):
        yield _batch_line(batch)
        count, position = count + 1, batch.position + batch.size
        if with_records:
            data = memoryview(file.read(batch.position, batch.size))
            yield from _record_lines(RecordBatch(data))
    yield f"{count} batches, {position} bytes, all intact"


def _batch_line(batch: ScannedBatch) -> str:
    codec = batch.attributes & CODEC_MASK
    name = Codec(codec).name.lower() if codec in set(Codec) else f"codec {codec}"
    producer = ""
    if batch.producer_id >= 0:
        producer = (
            f" producer {batch.producer_id} epoch {batch.producer_epoch} "
            f"sequence {batch.base_sequence}"
        )
        if batch.attributes & CONTROL_FLAG:
            producer += " marker"
        elif batch.attributes & TRANSACTIONAL_FLAG:
            producer += " in a transaction"
    return (
        f"position {batch.position} offsets {batch.base_offset}-{batch.last_offset} "
        f"records {batch.records_count} bytes {batch.size} epoch {batch.leader_epoch} {name} "
        f"timestamps {batch.base_timestamp}-{batch.max_timestamp}{producer}"
    )


def _record_lines(batch: RecordBatch) -> Iterator[str]:
    marker = read_marker(batch) if batch.is_control else None
    if marker is not None:
        ends = "commits" if marker.is_commit else "aborts"
        yield f"  offset {batch.base_offset} {ends}, coordinator epoch {marker.coordinator_epoch}"
        return
    try:
        for record in batch.records():
            headers = " ".join(f"{key}={value!r}" for key, value in record.headers)
            yield (
                f"  offset {record.offset} timestamp {record.timestamp} key {record.key!r} "
                f"value {record.value!r} {headers}"
            ).rstrip()
    except DecodeError as error:
        yield f"  records cannot be read: {error}"
