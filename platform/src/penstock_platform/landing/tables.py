"""Tables of the lake, as Spark writes them: how they are created, and how a window is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from penstock_platform.lake.model.manifests import TARGET_BYTES, TARGET_PROPERTY
from penstock_platform.reconciliation.model.recovery import REPAIR_HORIZON_DAYS
from penstock_platform.topics.model.contract_changes import ColumnChange, SparkType, type_of_json

# Every record in full fidelity: bronze is the archive too.
BRONZE_COLUMNS: tuple[tuple[str, str], ...] = (
    ("window_id", "string"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestamp_type", "int"),
    ("key", "binary"),
    ("value", "binary"),
    ("headers", "array<struct<key:string,value:binary>>"),
)

QUARANTINE_COLUMNS: tuple[tuple[str, str], ...] = (
    ("window_id", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("reason", "string"),
    ("value", "binary"),
)

# Iceberg's expire_snapshots obeys these and the age below unless it is called with other values.
SNAPSHOTS_KEPT_MIN = 100

TABLE_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # A row group is held in memory until it is whole, one for each task.
    "write.parquet.row-group-size-bytes": str(32 * 1024 * 1024),
    # One window is one table partition: nothing to shuffle or to sort for.
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    # Other windows' commits are no conflict: take the new base and continue.
    "commit.retry.num-retries": "20",
    "history.expire.max-snapshot-age-ms": str(REPAIR_HORIZON_DAYS * 24 * 3600 * 1000),
    "history.expire.min-snapshots-to-keep": str(SNAPSHOTS_KEPT_MIN),
    # A reader of one window reads few manifests, and small ones.
    TARGET_PROPERTY: str(TARGET_BYTES),
    # Files of older metadata only: the current one lists every snapshot that is kept.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Snapshots name the windows they touched: the summaries say whether a receipt counts.
    "write.summary.partition-limit": "20",
}

# What Iceberg says when a commit lost: another one touched the same rows (MergingSnapshotProducer),
# the base has been expired meanwhile, or other windows' commits came first twenty times.
_REFUSALS = (
    "Found conflicting",
    "Found new conflicting",
    "Cannot determine history between starting snapshot",
    "org.apache.iceberg.exceptions.CommitFailedException",
)


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table with ``window_id`` as identity partition: full name, columns as (name, SQL type)."""

    name: str
    columns: tuple[tuple[str, str], ...]

    @property
    def namespace(self) -> str:
        return self.name.rsplit(".", 1)[0]


def create_table(spark: SparkSession, table: LakeTable) -> None:
    """Create namespace and table where they are missing. Safe under racing creators."""
    columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in table.columns)
    properties = ", ".join(f"'{key}'='{value}'" for key, value in TABLE_PROPERTIES.items())
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.namespace}").collect()
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table.name} ({columns}) USING iceberg "
        f"PARTITIONED BY (window_id) TBLPROPERTIES ({properties})"
    ).collect()


def base_snapshot(spark: SparkSession, table: LakeTable) -> int | None:
    """The table's current snapshot id, None for none yet; creates the table when it is missing."""
    if not spark.catalog.tableExists(table.name):
        create_table(spark, table)
    rows = spark.sql(f"SELECT snapshot_id FROM {table.name}.refs WHERE name = 'main'").collect()
    return int(rows[0][0]) if rows else None


def columns_of(spark: SparkSession, table: LakeTable) -> dict[str, SparkType]:
    """The table's columns by name, as ``topics/model/contract_changes.py`` has types."""
    fields = spark.table(table.name).schema.jsonValue()["fields"]
    return {f["name"]: type_of_json(f["type"]) for f in fields}


def alter_columns(spark: SparkSession, table: LakeTable, changes: Iterable[ColumnChange]) -> None:
    """Add columns and fields, and widen types. Racing alterations of one kind are one."""
    for change in changes:
        altered = (
            f"ADD COLUMN {change.path} {change.type}"
            if change.add
            else f"ALTER COLUMN {change.path} TYPE {change.type}"
        )
        spark.sql(f"ALTER TABLE {table.name} {altered}").collect()


def snapshot_of_attempt(spark: SparkSession, table: LakeTable, attempt_id: str) -> int | None:
    """The snapshot that carries this attempt id. Connect does not return it from a write."""
    rows = (
        spark.table(f"{table.name}.snapshots")
        .where(sf.col("summary")["penstock.attempt"] == attempt_id)
        .orderBy(sf.col("committed_at").desc())
        .select("snapshot_id")
        .limit(1)
        .collect()
    )
    return int(rows[0][0]) if rows else None


def observed(counted: Observation, again: Callable[[], DataFrame]) -> dict[str, int]:
    """What ``counted`` saw of a write that is done, by name; a sum over nothing is 0.

    A Connect server that is busy answers before its listener has the figures, and then sends
    none at all; ``again`` counts the same in what was written.
    """
    seen = counted.get
    if not seen:
        seen = again().collect()[0].asDict()
    return {name: int(value or 0) for name, value in seen.items()}


def overwrite_window(
    rows: DataFrame,
    table: LakeTable,
    window_id: str,
    base: int | None,
    properties: Mapping[str, str],
) -> None:
    """Replace a window's rows in one commit, refused when the window was touched since ``base``.

    ``overwrite`` by the condition, not ``overwritePartitions``: the latter cannot empty a window
    whose re-run has no rows. Without a base every commit of the table's life is a conflict, which
    is right: the table was empty when the rows were read.
    """
    writer = rows.writeTo(table.name).option("isolation-level", "serializable")
    if base is not None:
        writer = writer.option("validate-from-snapshot-id", str(base))
    for name, value in properties.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.overwrite(sf.col("window_id") == sf.lit(window_id))


def commit_refused(error: PySparkException) -> bool:
    """Whether a commit lost against another one. Spark Connect wraps Iceberg's exception."""
    return any(name in str(error) for name in _REFUSALS)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
