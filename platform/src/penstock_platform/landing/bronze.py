"""Land exactly one frozen window in its bronze table: a pure function of the window object.

The job reads the offsets that the window names, no more and no fewer, and replaces the window's
rows in one commit. Run it again, or after a crash at any instruction: the same rows. A commit
carries its proof in the snapshot's properties (``SNAPSHOT_*``).

The fence: the base snapshot is taken before the read, and the commit is refused (Iceberg's
serializable isolation) when anything has touched the window's rows since: a zombie of this job, a
compaction, a person. A refused commit takes a fresh base and tries again.

Offsets that the broker has deleted meanwhile (``LandingJob.gone``) are not silently skipped: their
rows come from exactly one snapshot of the table, which the caller has proven
(``reconciliation/model/recovery.py``). What is nowhere is missing in the table, and the books
name it.

Not promised: one row per offset on compacted or transactional topics; there the log itself has
holes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from penstock_platform.lake.model.digests import digest_of_halves
from penstock_platform.lake.spark_content import rows_as_of
from penstock_platform.lake.spark_digests import digest_halves, row_digest
from penstock_platform.landing.tables import (
    BRONZE_COLUMNS,
    LakeTable,
    base_snapshot,
    commit_refused,
    observed,
    overwrite_window,
    snapshot_of_attempt,
)
from penstock_platform.ranges import OffsetRange, subtract
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.windows.model.window import Window

TRIES_MAX = 3
RECORDS_PER_FILE = 250_000
RECORDS_PER_TASK_MAX = 1_000_000

# The reader's own knobs. A frozen window's records are all there, so a fetch need never wait; with
# Kafka's default of 500 ms the reader's look at the log's ends queues behind a long poll, half a
# second a partition. 500 records a poll (the default) halve the throughput. Fetches stay at the
# default megabyte a partition: larger ones gain nothing and keep a small heap collecting garbage.
READER_OPTIONS = {
    "failOnDataLoss": "true",
    "includeHeaders": "true",
    "kafkaConsumer.pollTimeoutMs": "30000",
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "20000",
    "kafka.fetch.max.wait.ms": "10",
}


# What Spark says of a snapshot whose metadata or data files are no longer there.
_FILE_GONE = ("Cannot find snapshot", "NotFoundException", "NoSuchKey", "does not exist")


class LandingError(RuntimeError):
    """A window that could not be landed: names window, table and cause. Nothing was committed."""


@dataclass(frozen=True, slots=True)
class LandingJob:
    """What one attempt needs to know beside the window.

    ``kafka_properties`` carry the Java client's names. ``gone``: offsets of the window that are not
    read from the broker. ``recover_from``: the snapshot of the table that has the rows of ``gone``;
    None where there is none. ``at`` gets each step's name as it is reached.
    """

    bootstrap_servers: str
    attempt_id: str
    kafka_properties: Mapping[str, str] = field(default_factory=dict)
    gone: tuple[OffsetRange, ...] = ()
    recover_from: int | None = None
    at: Callable[[str], None] = lambda _step: None


@dataclass(frozen=True, slots=True)
class LandingResult:
    """What an attempt committed. ``digest`` is of the rows as they were read, 16 hex
    digits (``lake/model/digests.py``).

    ``record_bytes`` counts keys and values. The snapshot is found by ``attempt_id``: Spark Connect
    does not return it.
    """

    table: str
    window_id: str
    attempt_id: str
    rows: int
    record_bytes: int
    digest: str
    seconds: float
    tries: int


def land_bronze(spark: SparkSession, window: Window, job: LandingJob) -> LandingResult:
    """Replace the window's rows in bronze by the records at its offsets.

    Raises LandingError: offsets that are not on the broker though ``gone`` does not name them, an
    unreachable broker, a commit that was refused ``TRIES_MAX`` times.
    """
    table = LakeTable(bronze_table(window.topic), BRONZE_COLUMNS)
    started = time.monotonic()
    for attempt in range(1, TRIES_MAX + 1):
        try:
            counted = _attempt(spark, table, window, job)
        except PySparkException as error:
            if commit_refused(error) and attempt < TRIES_MAX:
                continue
            raise LandingError(
                f"window {window.window} of {window.topic} ({window.window_id}) was not landed in "
                f"{table.name} at try {attempt}: {first_line(error)}"
            ) from error
        return LandingResult(
            table=table.name,
            window_id=window.window_id,
            attempt_id=job.attempt_id,
            rows=counted["rows"],
            record_bytes=counted["record_bytes"],
            digest=digest_of_halves(counted["low"], counted["high"]),
            seconds=time.monotonic() - started,
            tries=attempt,
        )
    raise AssertionError("unreachable: the last try returns or raises")


def _attempt(
    spark: SparkSession, table: LakeTable, window: Window, job: LandingJob
) -> dict[str, int]:
    base = base_snapshot(spark, table)
    rows = _rows(spark, table.name, window, job)
    job.at("planned")
    counted = Observation()
    figures = (
        sf.count(sf.lit(1)).alias("rows"),
        sf.sum(sf.octet_length("value").cast("bigint")).alias("values"),
        sf.sum(sf.octet_length("key").cast("bigint")).alias("keys"),
        *digest_halves(row_digest(rows.schema)),
    )
    rows = rows.observe(counted, *figures)
    job.at("writing")
    overwrite_window(
        rows, table, window.window_id, base, snapshot_properties(window, job.attempt_id)
    )
    seen = observed(counted, lambda: _written(spark, table, window, job).agg(*figures))
    return {**seen, "record_bytes": seen["values"] + seen["keys"]}


def _rows(spark: SparkSession, table: str, window: Window, job: LandingJob) -> DataFrame:
    """What the window holds: the broker's records, and those of ``gone`` from one snapshot."""
    parts = []
    if any(remaining_ranges(window, job.gone)):
        parts.append(window_rows(spark, window, job))
    if job.gone and job.recover_from is not None:
        inside = reduce(lambda a, b: a | b, (_within(r) for r in job.gone))
        parts.append(rows_as_of(spark, table, window.window_id, job.recover_from).where(inside))
    return reduce(DataFrame.unionByName, parts) if parts else spark.table(table).limit(0)


def digest_as_of(spark: SparkSession, table: str, window: Window, snapshot_id: int) -> str | None:
    """The digest of the window's bronze rows as of a snapshot, as a receipt has it.

    None where the snapshot or one of its files is gone; other errors are raised.
    """
    rows = rows_as_of(spark, table, window.window_id, snapshot_id)
    try:
        found = rows.agg(*digest_halves(row_digest(rows.schema))).collect()[0]
    except PySparkException as error:
        if any(text in str(error) for text in _FILE_GONE):
            return None
        raise
    return digest_of_halves(int(found["low"] or 0), int(found["high"] or 0))


def _written(spark: SparkSession, table: LakeTable, window: Window, job: LandingJob) -> DataFrame:
    """The rows that this attempt has committed."""
    snapshot = snapshot_of_attempt(spark, table, job.attempt_id)
    return rows_as_of(spark, table.name, window.window_id, snapshot or 0)


def window_rows(spark: SparkSession, window: Window, job: LandingJob) -> DataFrame:
    """The window's records as bronze rows, straight from the broker; ``gone`` offsets left out."""
    ranges = [r for r in remaining_ranges(window, job.gone) if r]
    options = {
        **READER_OPTIONS,
        **{f"kafka.{name}": value for name, value in job.kafka_properties.items()},
        "kafka.bootstrap.servers": job.bootstrap_servers,
        "assign": json.dumps({window.topic: [r.partition for r in ranges]}),
        "startingOffsets": json.dumps({window.topic: {str(r.partition): r.start for r in ranges}}),
        "endingOffsets": json.dumps({window.topic: {str(r.partition): r.end for r in ranges}}),
        "maxRecordsPerPartition": str(RECORDS_PER_TASK_MAX),
    }
    records = spark.read.format("kafka").options(**options).load()
    count = sum(len(r) for r in ranges)
    return records.select(
        sf.lit(window.window_id).alias("window_id"),
        sf.col("topic"),
        sf.col("partition"),
        sf.col("offset"),
        sf.col("timestamp"),
        sf.col("timestampType").alias("timestamp_type"),
        sf.col("key"),
        sf.col("value"),
        sf.col("headers"),
    ).coalesce(files_of(count, len(ranges)))


def files_of(records: int, partitions: int) -> int:
    """How many data files a window becomes: two at least, so two cores read, if there is enough.

    A file per partition and minute would be a file per few hundred records on a quiet topic.
    Large windows are not held back: each task's share is bounded by ``RECORDS_PER_TASK_MAX``.
    """
    if records > RECORDS_PER_TASK_MAX:
        return partitions + math.ceil(records / RECORDS_PER_TASK_MAX)
    return max(1, min(partitions, max(2, math.ceil(records / RECORDS_PER_FILE))))


def remaining_ranges(window: Window, gone: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
    """What is read from the broker: for each of the window's ranges one without what is gone.

    ``gone`` takes a beginning (deleted), an end (the log was cut) or all of a range. Raises
    ValueError where it leaves two pieces.
    """
    left: list[OffsetRange] = []
    for r in window.ranges:
        pieces = subtract([r], gone)
        if len(pieces) > 1:
            raise ValueError(f"{r} without {gone} is in {len(pieces)} pieces")
        left.append(pieces[0] if pieces else OffsetRange(r.partition, r.end, r.end))
    return tuple(left)


def snapshot_properties(window: Window, attempt_id: str) -> dict[str, str]:
    """What a commit says of itself. The window object in the archive stays the source of truth:
    expiring a snapshot takes its properties with it."""
    return {
        "penstock.attempt": attempt_id,
        "penstock.window": window.window,
        "penstock.window-id": window.window_id,
        "penstock.window-sha256": window.sha256,
        "penstock.topic": window.topic,
        "penstock.ranges": json.dumps(
            [[r.partition, r.start, r.end] for r in window.ranges], separators=(",", ":")
        ),
    }


def first_line(error: PySparkException) -> str:
    """What a JVM error says, without its stack."""
    return str(error).strip().split("\n", 1)[0]


def _within(gone: OffsetRange) -> Column:
    return (sf.col("partition") == gone.partition) & sf.col("offset").between(
        gone.start, gone.end - 1
    )
