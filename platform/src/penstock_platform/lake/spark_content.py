"""A large window's offsets and digest, computed by Spark where the data is.

The rows are summed by chunks of ``CHUNK_OFFSETS`` offsets, and a few numbers a chunk come back. A
chunk whose rows are as many as the offsets from its first to its last, and the sum of whose
offsets' hashes is that of those offsets, holds each of them once (that other offsets have the same
sum of 64-bit hashes is as unlikely as that an altered row has the same digest). Of every other
chunk comes a bitmap of the offsets that are there, and one of those that are there more than once:
4 kB each, however many rows there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock_platform.lake.model.coverage import Coverage
from penstock_platform.lake.model.digests import digest_of_halves, number_digests
from penstock_platform.lake.model.rows import Rows, altered_rows
from penstock_platform.lake.spark_connect import SparkConnect
from penstock_platform.lake.spark_digests import digest_halves, row_digest
from penstock_platform.ranges import OffsetRange, Spans, merge

T = TypeVar("T")
CHUNK_BITS = 15
CHUNK_OFFSETS = 1 << CHUNK_BITS
# 16 MB of bitmaps come back at once, or a million rows where rows are compared one by one.
CHUNKS_PER_READ = 4096
CHUNKS_PER_COMPARISON = 32
# What Spark says of a data file that is gone, cut short, or no Parquet.
_DAMAGED = ("FAILED_READ_FILE", "NotFoundException", "NoSuchKey", "parquet", "Parquet")


class Chunk(NamedTuple):
    """``CHUNK_OFFSETS`` offsets of a partition, from ``number * CHUNK_OFFSETS`` on."""

    partition: int
    number: int

    @property
    def start(self) -> int:
        return self.number << CHUNK_BITS


class ChunkSums(NamedTuple):
    """What the rows of a chunk add up to. Halves are sums of the lower and the upper 32 bits:
    ``places`` of the offsets' hashes, ``digests`` of the rows' digests."""

    rows: int
    first: int
    last: int
    places: tuple[int, int]
    digests: tuple[int, int]

    @property
    def plain(self) -> bool:
        """Whether each offset from the first to the last is there once."""
        if self.rows != self.last - self.first + 1:
            return False
        every = number_digests(np.arange(self.first, self.last + 1, dtype=np.int64))
        halves = (int((every & np.uint64(0xFFFF_FFFF)).sum()), int((every >> np.uint64(32)).sum()))
        return halves == self.places


class SparkContent:
    """``LargeWindows`` through Spark. Raises SparkUnavailableError, and PySparkException for what
    is no damage of a file."""

    def __init__(self, spark: SparkConnect) -> None:
        self._spark = spark

    def read(self, table: str, window_id: str, snapshot_id: int) -> tuple[Coverage, str] | None:
        """A window's offsets and digest in a snapshot; None where a file cannot be read."""
        return self._ask(
            window_id, lambda spark: read_content(rows_as_of(spark, table, window_id, snapshot_id))
        )

    def altered(
        self, table: str, window_id: str, before: int, now: int
    ) -> tuple[OffsetRange, ...] | None:
        """The offsets that are in both snapshots and have another row in the second; None where a
        file cannot be read."""
        return self._ask(
            window_id,
            lambda spark: altered_offsets(
                rows_as_of(spark, table, window_id, before),
                rows_as_of(spark, table, window_id, now),
            ),
        )

    def _ask(self, window_id: str, question: Callable[[SparkSession], T]) -> T | None:
        with self._spark.tagged(f"penstock/content/{window_id}", "") as spark:
            try:
                return question(spark)
            except PySparkException as error:
                if any(said in str(error) for said in _DAMAGED):
                    return None
                raise


def rows_as_of(spark: SparkSession, table: str, window_id: str, snapshot_id: int) -> DataFrame:
    """The window's rows in a table as of one of its snapshots."""
    rows = spark.read.option("versionAsOf", str(snapshot_id)).table(table)
    return rows.where(sf.col("window_id") == window_id)


def read_content(rows: DataFrame) -> tuple[Coverage, str]:
    """Offsets and digest of rows of bronze, silver or quarantine."""
    sums = chunk_sums(rows)
    halves = [sum(found.digests[half] for found in sums.values()) for half in (0, 1)]
    return coverage_of(rows, sums), digest_of_halves(*halves)


def coverage_of(rows: DataFrame, sums: Mapping[Chunk, ChunkSums]) -> Coverage:
    """The offsets of rows, whose sums by chunk these are."""
    held: dict[int, list[Spans]] = defaultdict(list)
    uneven: list[Chunk] = []
    for chunk, found in sums.items():
        if found.plain:
            held[chunk.partition].append(Spans.of([(found.first, found.last + 1)]))
        else:
            uneven.append(chunk)
    repeated: list[Chunk] = []
    for chunk, spans in _bitmaps(rows, uneven, least=1):
        held[chunk.partition].append(spans)
        if sums[chunk].rows > spans.count:
            repeated.append(chunk)
    again: dict[int, list[Spans]] = defaultdict(list)
    for chunk, spans in _bitmaps(rows, repeated, least=2):
        again[chunk.partition].append(spans)
    return Coverage(_joined(held), _joined(again), sum(found.rows for found in sums.values()))


def altered_offsets(before: DataFrame, now: DataFrame) -> tuple[OffsetRange, ...]:
    """The offsets that are in both, and have a row in ``now`` that is not in ``before``. Only rows
    of chunks whose sums differ are compared one by one."""
    old, new = chunk_sums(before), chunk_sums(now)
    differ = [chunk for chunk in new if chunk in old and new[chunk] != old[chunk]]
    found: list[OffsetRange] = []
    for some in _batches(sorted(differ), CHUNKS_PER_COMPARISON):
        found += altered_rows(_rows_in(now, some), _rows_in(before, some))
    return merge(found)


def chunk_sums(rows: DataFrame, digest: Column | None = None) -> dict[Chunk, ChunkSums]:
    """What rows add up to, by chunk. ``digest``: of a row; that of all its columns if not given."""
    digest = row_digest(rows.schema) if digest is None else digest
    place = sf.xxhash64(_offset(rows))
    table = (
        rows.groupBy(_partition(rows), _chunk(rows))
        .agg(
            sf.count(sf.lit(1)),
            sf.min(_offset(rows)),
            sf.max(_offset(rows)),
            *digest_halves(place),
            *digest_halves(digest),
        )
        .toArrow()
    )
    columns = [column.to_pylist() for column in table.columns]
    return {
        Chunk(partition, number): ChunkSums(
            count, first, last, (low, high), (digests[0], digests[1])
        )
        for partition, number, count, first, last, low, high, *digests in zip(*columns, strict=True)
    }


def _bitmaps(rows: DataFrame, chunks: Sequence[Chunk], least: int) -> Iterator[tuple[Chunk, Spans]]:
    """Of each chunk the offsets that are there at least so many times."""
    place = sf.col("offset").bitwiseAND(sf.lit(CHUNK_OFFSETS - 1))
    for some in _batches(chunks, CHUNKS_PER_READ):
        placed = _inside(rows, some).select(_partition(rows), _chunk(rows), _offset(rows))
        if least > 1:
            times = placed.groupBy("partition", "chunk", "offset").count()
            placed = times.where(sf.col("count") >= least)
        table = placed.groupBy("partition", "chunk").agg(sf.bitmap_construct_agg(place)).toArrow()
        for partition, number, bits in zip(*(c.to_pylist() for c in table.columns), strict=True):
            chunk = Chunk(partition, number)
            set_bits = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
            yield chunk, Spans.of_values(np.flatnonzero(set_bits).astype(np.int64) + chunk.start)


def _rows_in(rows: DataFrame, chunks: Sequence[Chunk]) -> Rows:
    table: pa.Table = (
        _inside(rows, chunks)
        .select(_partition(rows), _offset(rows), row_digest(rows.schema).alias("digest"))
        .toArrow()
    )
    partition, offset, digest = (column.to_numpy() for column in table.columns)
    return Rows(partition.astype(np.int32), offset, digest.astype(np.int64).view(np.uint64))


def _inside(rows: DataFrame, chunks: Sequence[Chunk]) -> DataFrame:
    """The rows of these chunks. The bounds let Spark skip row groups; the join is exact."""
    wanted = rows.sparkSession.createDataFrame(
        pa.table(
            {
                "chunk_partition": pa.array([c.partition for c in chunks], pa.int32()),
                "chunk_number": pa.array([c.number for c in chunks], pa.int64()),
            }
        )
    )
    first, last = min(c.start for c in chunks), max(c.start for c in chunks) + CHUNK_OFFSETS
    same = (_partition(rows) == sf.col("chunk_partition")) & (
        _chunk(rows) == sf.col("chunk_number")
    )
    return rows.where(_offset(rows).between(first, last - 1)).join(
        sf.broadcast(wanted), same, "left_semi"
    )


def _partition(rows: DataFrame) -> Column:
    return sf.col(_named(rows, "partition")).alias("partition")


def _offset(rows: DataFrame) -> Column:
    return sf.col(_named(rows, "offset")).alias("offset")


def _chunk(rows: DataFrame) -> Column:
    return sf.shiftright(sf.col(_named(rows, "offset")), CHUNK_BITS).alias("chunk")


def _named(rows: DataFrame, name: str) -> str:
    return f"_kafka_{name}" if "_kafka_offset" in rows.columns else name


def _joined(parts: Mapping[int, Sequence[Spans]]) -> dict[int, Spans]:
    return {p: Spans.at_depth(found, 1) for p, found in sorted(parts.items())}


def _batches(chunks: Sequence[Chunk], size: int) -> Iterator[Sequence[Chunk]]:
    for first in range(0, len(chunks), size):
        yield chunks[first : first + size]
