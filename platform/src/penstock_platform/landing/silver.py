"""Parse the bronze rows of one window by the topic's contract into silver and quarantine.

Both tables are a pure function of one bronze snapshot and the contract; each is overwritten for
the window in one fenced commit, silver first. Quarantine then takes exactly the landed rows that
this attempt did not put into silver, found by coordinates in silver's own snapshot, so a row can
fall neither between the two nor into both. A run after a crash between them writes both again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from penstock_platform.lake.model.digests import digest_of_halves
from penstock_platform.lake.spark_digests import digest_halves, row_digest
from penstock_platform.landing.bronze import (
    TRIES_MAX,
    LandingError,
    first_line,
    snapshot_properties,
)
from penstock_platform.landing.contract_parser import RAW_VALUE, REASON, parse_values
from penstock_platform.landing.tables import (
    QUARANTINE_COLUMNS,
    LakeTable,
    alter_columns,
    base_snapshot,
    columns_of,
    commit_refused,
    observed,
    overwrite_window,
    snapshot_of_attempt,
)
from penstock_platform.topics.model.contract import Contract
from penstock_platform.topics.model.contract_changes import column_changes, ddl, left_columns
from penstock_platform.topics.model.declaration import bronze_table, quarantine_table, silver_table
from penstock_platform.windows.model.window import Window


@dataclass(frozen=True, slots=True)
class ParseJob:
    """``bronze_snapshot``: the snapshot of the bronze table that is parsed."""

    attempt_id: str
    bronze_snapshot: int
    at: Callable[[str], None] = lambda _step: None


@dataclass(frozen=True, slots=True)
class ParseResult:
    """Rows that were read from bronze, and where they went, with the digests of what was written
    (``lake/model/digests.py``)."""

    silver: str
    quarantine: str
    attempt_id: str
    landed: int
    parsed: int
    quarantined: int
    silver_digest: str
    quarantine_digest: str
    seconds: float


def parse_silver(
    spark: SparkSession, window: Window, contract: Contract, job: ParseJob
) -> ParseResult:
    """Replace the window's rows in silver and quarantine.

    Raises ContractChangeError when the table was made by a contract that this one does not fit, and
    LandingError: the bronze snapshot is gone, a commit was refused ``TRIES_MAX`` times.
    """
    table, started = silver_table(window.topic, contract.version), time.monotonic()
    for attempt in range(1, TRIES_MAX + 1):
        try:
            counted = _attempt(spark, window, contract, job)
        except PySparkException as error:
            if commit_refused(error) and attempt < TRIES_MAX:
                continue
            raise LandingError(
                f"window {window.window} of {window.topic} ({window.window_id}) was not parsed "
                f"into {table} at try {attempt}: {first_line(error)}"
            ) from error
        return ParseResult(
            silver=table,
            quarantine=quarantine_table(window.topic, contract.version),
            attempt_id=job.attempt_id,
            landed=counted["landed"],
            parsed=counted["parsed"],
            quarantined=counted["landed"] - counted["parsed"],
            silver_digest=digest_of_halves(counted["low"], counted["high"]),
            quarantine_digest=digest_of_halves(counted["rest_low"], counted["rest_high"]),
            seconds=time.monotonic() - started,
        )
    raise AssertionError("unreachable: the last try returns or raises")


def landed_rows(spark: SparkSession, window: Window, bronze_snapshot: int) -> DataFrame:
    """The window's bronze rows as of a snapshot: coordinates and value, silver's names."""
    return (
        spark.read.option("versionAsOf", str(bronze_snapshot))
        .table(bronze_table(window.topic))
        .where(sf.col("window_id") == window.window_id)
        .select(
            sf.col("window_id"),
            sf.col("partition").alias("_kafka_partition"),
            sf.col("offset").alias("_kafka_offset"),
            sf.col("timestamp").alias("_kafka_timestamp"),
            sf.col("value").alias(RAW_VALUE),
        )
    )


def _attempt(
    spark: SparkSession, window: Window, contract: Contract, job: ParseJob
) -> dict[str, int]:
    silver = LakeTable(silver_table(window.topic, contract.version), contract.silver_columns)
    quarantine = LakeTable(quarantine_table(window.topic, contract.version), QUARANTINE_COLUMNS)
    silver_base = base_snapshot(spark, silver)
    present = columns_of(spark, silver)
    alter_columns(spark, silver, column_changes(silver.name, present, contract, window.topic))
    left = {name: present[name] for name in left_columns(present, contract)}
    quarantine_base = base_snapshot(spark, quarantine)
    properties = {
        **snapshot_properties(window, job.attempt_id),
        "penstock.bronze-snapshot": str(job.bronze_snapshot),
    }
    job.at("planned")
    rows = landed_rows(spark, window, job.bronze_snapshot)
    seen = Observation()
    parsed = parse_values(rows, contract)
    good = sf.col(REASON).isNull()
    declared = [sf.col(f"`{name}`") for name, _ in contract.silver_columns]
    nulls = [sf.lit(None).cast(ddl(kind)).alias(name) for name, kind in left.items()]
    # In the table's order of fields and with its names; columns that stay null add nothing.
    fields = spark.table(silver.name).schema.fields
    digest = row_digest(StructType([f for f in fields if f.name not in left]))
    figures = (
        sf.count(sf.lit(1)).alias("landed"),
        sf.count(sf.when(good, sf.lit(1))).alias("parsed"),
        *digest_halves(sf.when(good, digest)),
    )
    job.at("writing")
    overwrite_window(
        parsed.observe(seen, *figures).where(good).select(*declared, *nulls),
        silver,
        window.window_id,
        silver_base,
        properties,
    )
    counted = observed(seen, lambda: parsed.agg(*figures))
    job.at("silver")
    nothing = counted["landed"] == counted["parsed"]
    rest = _quarantined(spark, silver, contract, rows, job.attempt_id, nothing=nothing)
    left_out = Observation()
    halves = digest_halves(row_digest(rest.schema))
    overwrite_window(
        rest.observe(left_out, *halves), quarantine, window.window_id, quarantine_base, properties
    )
    rest_counted = observed(left_out, lambda: rest.agg(*halves))
    job.at("quarantine")
    return {**counted, "rest_low": rest_counted["low"], "rest_high": rest_counted["high"]}


def _quarantined(
    spark: SparkSession,
    silver: LakeTable,
    contract: Contract,
    rows: DataFrame,
    attempt_id: str,
    *,
    nothing: bool,
) -> DataFrame:
    """The rows that this attempt's silver commit does not hold, each with its reason."""
    if nothing:
        rest = rows.limit(0).withColumn(REASON, sf.lit(""))
    else:
        snapshot = snapshot_of_attempt(spark, silver, attempt_id)
        held = (
            spark.read.option("versionAsOf", str(snapshot))
            .table(silver.name)
            .select("window_id", "_kafka_partition", "_kafka_offset")
        )
        left = rows.join(held, ["window_id", "_kafka_partition", "_kafka_offset"], "left_anti")
        rest = parse_values(left, contract)
    return rest.select(
        sf.col("window_id"),
        sf.col("_kafka_partition").alias("partition"),
        sf.col("_kafka_offset").alias("offset"),
        sf.col("_kafka_timestamp").alias("timestamp"),
        sf.coalesce(sf.col(REASON), sf.lit("does not keep the contract")).alias("reason"),
        sf.col(RAW_VALUE).alias("value"),
    ).coalesce(1)
