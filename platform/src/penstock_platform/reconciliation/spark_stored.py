"""What the log holds of a window, as the books compare it: read back from bronze through Spark.

Header and digest are computed where the data is; only five numbers a record come back, as Arrow, at
most ``RECORDS_PER_READ`` at a time (36 bytes each).

Header ``penstock.audit`` (format v1, big endian): version u8 = 1, incarnation i64, sequence i64,
timestamp_ms i64, then the server's name. Of several the last counts, as in the client. A header of
another version, too short, or with a negative number counts as none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import numpy as np
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from penstock_client.audit import HEADER_BYTES, HEADER_NAME, HEADER_VERSION
from penstock_platform.ranges import OffsetRange, merge
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.windows.model.window import Window

RECORDS_PER_READ = 1_000_000
NO_INCARNATION = 0
NO_SEQUENCE = -1


def stored_records(
    spark: SparkSession, windows: Sequence[Window], ranges: Iterable[OffsetRange]
) -> dict[int, StoredRecords]:
    """The records at these offsets in these windows (of one topic), by partition, in offset order.

    Rows that are twice in the table come twice. Records without the header have incarnation 0,
    sequence -1 and digest 0. Partitions without records are left out.
    """
    found: dict[int, list[StoredRecords]] = {}
    for batch in in_batches(merge(ranges), RECORDS_PER_READ):
        for partition, records in _read(spark, windows, batch):
            found.setdefault(partition, []).append(records)
    return {partition: _joined(parts) for partition, parts in sorted(found.items())}


def in_batches(ranges: Iterable[OffsetRange], size: int) -> Iterator[list[OffsetRange]]:
    """The ranges in groups of at most ``size`` offsets, long ones cut."""
    batch: list[OffsetRange] = []
    space = size
    for whole in ranges:
        start = whole.start
        while start < whole.end:
            end = min(whole.end, start + space)
            batch.append(OffsetRange(whole.partition, start, end))
            space -= end - start
            start = end
            if not space:
                yield batch
                batch, space = [], size
    if batch:
        yield batch


def record_digest(sequence: Column) -> Column:
    """``penstock_client.audit.record_digest`` in Spark; signed, so compare modulo 2^64."""
    key, value = sf.col("key"), sf.col("value")
    return sf.xxhash64(sequence, sf.isnull(key), key, sf.isnull(value), value)


def _read(
    spark: SparkSession, windows: Sequence[Window], ranges: Sequence[OffsetRange]
) -> Iterator[tuple[int, StoredRecords]]:
    inside = reduce(lambda a, b: a | b, (_within(r) for r in ranges))
    rows = spark.table(bronze_table(windows[0].topic)).where(
        sf.col("window_id").isin([w.window_id for w in windows]) & inside
    )
    headed = rows.select("partition", "offset", "key", "value", _audit_header().alias("header"))
    stamped = headed.select(
        "*", _header_number(2).alias("incarnation"), _header_number(10).alias("sequence")
    )
    whole = sf.col("incarnation").isNotNull() & sf.col("sequence").isNotNull()
    table = stamped.select(
        "partition",
        "offset",
        sf.when(whole, sf.col("incarnation")).otherwise(NO_INCARNATION).alias("incarnation"),
        sf.when(whole, sf.col("sequence")).otherwise(NO_SEQUENCE).alias("sequence"),
        sf.when(whole, record_digest(sf.col("sequence"))).otherwise(0).alias("digest"),
    ).toArrow()
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    order = np.lexsort((columns["offset"], columns["partition"]))
    partitions = columns["partition"][order]
    records = StoredRecords(
        offset=columns["offset"][order],
        incarnation=columns["incarnation"][order].astype(np.int64, copy=False),
        sequence=columns["sequence"][order].astype(np.int64, copy=False),
        digest=columns["digest"][order].astype(np.int64, copy=False).view(np.uint64),
    )
    for partition in np.unique(partitions):
        yield int(partition), records.take(partitions == partition)


def _joined(parts: Sequence[StoredRecords]) -> StoredRecords:
    if len(parts) == 1:
        return parts[0]
    return StoredRecords(
        offset=np.concatenate([p.offset for p in parts]),
        incarnation=np.concatenate([p.incarnation for p in parts]),
        sequence=np.concatenate([p.sequence for p in parts]),
        digest=np.concatenate([p.digest for p in parts]),
    )


def _within(r: OffsetRange) -> Column:
    return (sf.col("partition") == r.partition) & sf.col("offset").between(r.start, r.end - 1)


def _audit_header() -> Column:
    named = sf.filter(sf.col("headers"), lambda h: h["key"] == HEADER_NAME)
    value = sf.try_element_at(named, sf.lit(-1))["value"]
    version = sf.hex(sf.substring(value, 1, 1))
    mine = (sf.octet_length(value) >= HEADER_BYTES) & (version == f"{HEADER_VERSION:02X}")
    return sf.when(mine, value)


def _header_number(start: int) -> Column:
    """Eight bytes of ``header`` from a 1-based position; null where they are a negative number."""
    digits = sf.hex(sf.substring(sf.col("header"), start, 8))
    return sf.conv(digits, 16, 10).try_cast("bigint")
