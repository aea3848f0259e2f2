"""What the log holds of windows, as equation 2 compares it: read back from bronze through Spark.

Header and digest are computed where the data is. ``stored_records`` brings five numbers a record,
as Arrow, at most ``RECORDS_PER_READ`` records at a time (36 bytes each). Of large windows
``SparkClaims`` brings a few numbers a claim instead.

Header ``penstock.audit`` (format v1, big endian): version u8 = 1, incarnation i64, sequence i64,
timestamp_ms i64, then the server's name. Of several the last counts, as in the client. A header of
another version, too short, or with a negative number counts as none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock_client.audit import HEADER_BYTES, HEADER_NAME, HEADER_VERSION, OFFSET_MAX
from penstock_platform.lake.spark_connect import SparkConnect
from penstock_platform.lake.spark_content import chunk_sums, coverage_of
from penstock_platform.lake.spark_digests import digest_halves
from penstock_platform.ranges import OffsetRange, Offsets, Spans, count, merge
from penstock_platform.reconciliation import confirmation
from penstock_platform.reconciliation.confirmation import Remaining
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.reconciliation.model.confirmed import ClaimSums, ClaimTable
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.windows.model.window import Window

RECORDS_PER_READ = 1_000_000
# Ranges are cut at multiples of 2^12 offsets, so that a record finds its own by an equal number.
PIECE_BITS = 12
PIECES_PER_READ = 500_000
# More ranges are joined; a filter of so many lets Spark skip row groups and is as exact.
RANGES_IN_FILTER_MAX = 64
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
        for partition, records in brought(inside(stamped(spark, windows), batch)):
            found.setdefault(partition, []).append(records)
    return {partition: StoredRecords.joined(parts) for partition, parts in sorted(found.items())}


class SparkClaims:
    """``ClaimReader`` through Spark. Raises SparkUnavailableError and PySparkException."""

    def __init__(self, spark: SparkConnect, tag: str) -> None:
        self._spark = spark
        self._tag = tag

    def sums(self, windows: Sequence[Window], claims: ClaimTable) -> ClaimSums:
        """What is stored at the offsets of each claim."""
        sums = ClaimSums.none(len(claims))
        with self._spark.tagged(self._tag, "") as spark:
            for first, some in _in_parts(claims):
                _add_sums(sums, first, _sums_of(stamped(spark, windows), some))
        return sums

    def remaining(self, windows: Sequence[Window], ranges: Sequence[OffsetRange]) -> Remaining:
        """The records at these offsets."""
        with self._spark.tagged(self._tag, "") as spark:
            if count(ranges) <= confirmation.REMAINING_MAX:
                return Remaining(stored_records(spark, windows, ranges))
            rows = inside(stamped(spark, windows), ranges)
            bare, audited = rows.where(~_audited()), rows.where(_audited())
            unstamped = _spans(bare)
            if audited.count() > confirmation.REMAINING_MAX:
                return Remaining({}, unstamped, _spans(audited))
            return Remaining(dict(brought(audited)), unstamped)

    def with_sequences(
        self,
        windows: Sequence[Window],
        ranges: Sequence[OffsetRange],
        incarnation: Offsets,
        sequence: Offsets,
    ) -> Mapping[int, StoredRecords]:
        """The records at these offsets that have one of the sequences."""
        if not ranges:
            return {}
        with self._spark.tagged(self._tag, "") as spark:
            wanted = pa.table({"wanted_incarnation": incarnation, "wanted_sequence": sequence})
            same = (sf.col("incarnation") == sf.col("wanted_incarnation")) & (
                sf.col("sequence") == sf.col("wanted_sequence")
            )
            rows = inside(stamped(spark, windows), ranges)
            keys = sf.broadcast(spark.createDataFrame(wanted))
            return dict(brought(rows.join(keys, same, "left_semi")))


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


def stamped(spark: SparkSession, windows: Sequence[Window]) -> DataFrame:
    """The windows' records: partition, offset, incarnation, sequence, digest."""
    rows = spark.table(bronze_table(windows[0].topic)).where(
        sf.col("window_id").isin([w.window_id for w in windows])
    )
    # A select for each step: what is used twice is then computed once.
    record = ("partition", "offset", "key", "value")
    found = rows.select(*record, _last_named(HEADER_NAME).alias("found"))
    headed = found.select(*record, sf.when(_is_ours("found"), sf.col("found")).alias("header"))
    numbered = headed.select(
        *record, _header_number(2).alias("incarnation"), _header_number(10).alias("sequence")
    )
    whole = sf.col("incarnation").isNotNull() & sf.col("sequence").isNotNull()
    return numbered.select(
        "partition",
        "offset",
        sf.when(whole, sf.col("incarnation")).otherwise(NO_INCARNATION).alias("incarnation"),
        sf.when(whole, sf.col("sequence")).otherwise(NO_SEQUENCE).alias("sequence"),
        sf.when(whole, record_digest(sf.col("sequence"))).otherwise(0).alias("digest"),
    )


def inside(rows: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    """The rows at these offsets. There is at least one range."""
    if len(ranges) <= RANGES_IN_FILTER_MAX:
        return rows.where(_within(ranges))
    table = ClaimTable.of_ranges(merge(ranges))
    return _in_hull(rows, table).join(_pieces(rows, table), _in_piece(), "left_semi")


def brought(rows: DataFrame) -> Iterator[tuple[int, StoredRecords]]:
    """Rows of ``stamped`` as records, by partition, in offset order."""
    table = rows.toArrow()
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


# --- claims ---------------------------------------------------------------------------------------


def _in_parts(claims: ClaimTable) -> Iterator[tuple[int, ClaimTable]]:
    """The claims in runs of at most ``PIECES_PER_READ`` pieces (or one claim), each with its first
    claim's place."""
    pieces = np.cumsum(claims.pieces(PIECE_BITS))
    first = 0
    while first < len(claims):
        before = int(pieces[first - 1]) if first else 0
        end = int(np.searchsorted(pieces, before + PIECES_PER_READ, side="right"))
        end = max(end, first + 1)
        yield first, claims.take(slice(first, end))
        first = end


def _sums_of(rows: DataFrame, claims: ClaimTable) -> pa.Table:
    own = sf.col("incarnation") == sf.col("piece_incarnation")
    low, high = digest_halves(sf.when(own, sf.col("digest")))
    here = sf.when(own & (sf.col("offset") >= sf.col("window_start")), sf.col("sequence"))
    return (
        _in_hull(rows, claims)
        .join(_pieces(rows, claims), _in_piece())
        .groupBy("claim")
        .agg(
            sf.count(sf.lit(1)).alias("rows"),
            sf.count(sf.when(own, sf.lit(1))).alias("own"),
            low,
            high,
            sf.coalesce(sf.min(here), sf.lit(NO_SEQUENCE)).alias("first"),
            sf.coalesce(sf.max(here), sf.lit(NO_SEQUENCE)).alias("last"),
        )
        .toArrow()
    )


def _add_sums(sums: ClaimSums, first: int, table: pa.Table) -> None:
    found = {name: table.column(name).fill_null(0).to_numpy() for name in table.column_names}
    place = found["claim"] + first
    for name in ("rows", "own", "first", "last"):
        getattr(sums, name)[place] = found[name]
    low, high = (found[half].astype(np.int64).view(np.uint64) for half in ("low", "high"))
    sums.digest[place] = low + (high << np.uint64(32))  # modulo 2^64, as unsigned arithmetic is


def _pieces(rows: DataFrame, claims: ClaimTable) -> DataFrame:
    """The claims, cut at multiples of 2^``PIECE_BITS``, for a join by partition and piece."""
    pieces = claims.pieces(PIECE_BITS)
    claim = np.repeat(np.arange(len(claims)), pieces)
    number = np.arange(claim.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    columns = {
        "claim": claim,
        "piece_partition": claims.partition[claim].astype(np.int32),
        "piece": (claims.start[claim] >> PIECE_BITS) + number,
        "piece_start": claims.start[claim],
        "piece_end": claims.end[claim],
        "piece_incarnation": claims.incarnation[claim],
        "window_start": claims.window_start[claim],
    }
    return sf.broadcast(rows.sparkSession.createDataFrame(pa.table(columns)))


def _in_piece() -> Column:
    offset = sf.col("offset")
    return (
        (sf.col("partition") == sf.col("piece_partition"))
        & (sf.shiftright(offset, PIECE_BITS) == sf.col("piece"))
        & (offset >= sf.col("piece_start"))
        & (offset < sf.col("piece_end"))
    )


def _in_hull(rows: DataFrame, claims: ClaimTable) -> DataFrame:
    """The rows between the first and the last offset of a partition's claims."""
    hull = [
        OffsetRange(int(p), int(claims.start[mine].min()), int(claims.end[mine].max()))
        for p in np.unique(claims.partition)
        if (mine := claims.partition == p).any()
    ]
    return rows.where(_within(hull)) if len(hull) <= RANGES_IN_FILTER_MAX else rows


def _spans(rows: DataFrame) -> Mapping[int, Spans]:
    return coverage_of(rows, chunk_sums(rows, sf.lit(0).cast("bigint"))).once


# --- columns --------------------------------------------------------------------------------------


def _audited() -> Column:
    sequence = sf.col("sequence")
    return (sf.col("incarnation") > 0) & (sequence >= 0) & (sequence < OFFSET_MAX)


def _within(ranges: Sequence[OffsetRange]) -> Column:
    partition, offset = sf.col("partition"), sf.col("offset")
    parts = [(partition == r.partition) & offset.between(r.start, r.end - 1) for r in ranges]
    return reduce(lambda a, b: a | b, parts)


def _last_named(name: str) -> Column:
    """The value of the last header of this name. The client's own is the last of all, as a rule;
    then the others are not searched."""
    headers = sf.col("headers")
    last = sf.try_element_at(headers, sf.lit(-1))
    searched = sf.try_element_at(sf.filter(headers, lambda h: h["key"] == name), sf.lit(-1))
    return sf.when(last["key"] == name, last["value"]).otherwise(searched["value"])


def _is_ours(column: str) -> Column:
    version = sf.substring(sf.col(column), 1, 1) == sf.lit(bytes([HEADER_VERSION]))
    return (sf.octet_length(column) >= HEADER_BYTES) & version


def _header_number(start: int) -> Column:
    """Eight bytes of ``header`` from a 1-based position; null where they are a negative number."""
    digits = sf.hex(sf.substring(sf.col("header"), start, 8))
    return sf.conv(digits, 16, 10).try_cast("bigint")
