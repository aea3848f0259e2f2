"""Make a fresh Spark server warm: do, on rows that are dropped, what every landing does.

A JVM that has just started loads some ten thousand classes for its first plan, its first parse and
its first Iceberg commit; on two cores that took the first window of a day half a minute. Done once
after the start, while nothing is due yet, it delays nothing.
"""

from __future__ import annotations

import json

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from penstock_platform.lake.spark_session import CATALOG
from penstock_platform.landing.contract_parser import RAW_VALUE, REASON, parse_values
from penstock_platform.topics.model.contract import load_contract

ROWS = 20_000
ROUNDS = 3
NAMESPACE = f"{CATALOG}.penstock"
TABLE = f"{NAMESPACE}.warm_up"
_CONTRACT = json.dumps(
    {
        "title": "warm-up",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string"},
            "amount": {"type": "number"},
            "at": {"type": "string", "format": "date-time"},
        },
        "required": ["id", "at"],
    }
)


def warm_up(spark: SparkSession) -> None:
    """Parse, sort, write, overwrite and read back; leaves no table behind."""
    contract = load_contract(_CONTRACT, "warmup")
    moment = sf.lit("2026-01-01T00:00:00Z")
    value = sf.to_json(
        sf.struct("id", sf.lit("name").alias("name"), sf.rand().alias("amount"), moment.alias("at"))
    )
    rows = spark.range(ROWS).select(
        sf.lit("warm/0").alias("window_id"), "id", value.cast("binary").alias(RAW_VALUE)
    )
    parsed = parse_values(rows.withColumnRenamed("id", "offset"), contract)
    good = parsed.where(sf.col(REASON).isNull()).select("window_id", "offset", "id", "at")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    spark.sql(f"DROP TABLE IF EXISTS {TABLE} PURGE")
    spark.sql(
        f"CREATE TABLE {TABLE} (window_id string, offset bigint, id bigint, at timestamp) "
        "USING iceberg PARTITIONED BY (window_id)"
    )
    for _ in range(ROUNDS):
        good.sortWithinPartitions("offset").writeTo(TABLE).overwrite(
            sf.col("window_id") == "warm/0"
        )
        held = spark.table(TABLE).select("window_id", "offset")
        left = parsed.join(held, ["window_id", "offset"], "left_anti")
        left.select(sf.sum(sf.xxhash64("offset", RAW_VALUE) % 1000)).collect()
    spark.sql(f"DROP TABLE {TABLE} PURGE")
