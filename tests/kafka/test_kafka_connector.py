"""Spark's own Kafka connector against the broker, as any Spark user runs it: the Java clients'
admin, consumer and idempotent producer, in batches and in streams."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as sf

from penstock_platform.connections import Connections

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.session import SparkSession

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]

RECORDS = 3_000


@pytest.fixture
def spark(penstock: Connections) -> SparkSession:
    return penstock.spark.session()


@pytest.fixture
def topics(penstock: Connections) -> Callable[[], str]:
    admin = AdminClient({"bootstrap.servers": penstock.settings.bootstrap_servers})

    def make() -> str:
        name = f"spark-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(name, 3, 1)])[name].result(30)
        return name

    return make


def options(penstock: Connections, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": penstock.settings.bootstrap_servers, **more}


def write(penstock: Connections, rows: DataFrame, topic: str, codec: str) -> None:
    given = options(penstock, topic=topic, includeHeaders="true")
    rows.write.format("kafka").options(**given | {"kafka.compression.type": codec}).mode(
        "append"
    ).save()


def read(penstock: Connections, spark: SparkSession, topic: str, **more: str) -> DataFrame:
    given = options(penstock, subscribe=topic, includeHeaders="true", **more)
    return spark.read.format("kafka").options(**given).load()


def numbers(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end).select(
        sf.when(sf.col("id") % 10 != 0, sf.col("id").cast("string").cast("binary")).alias("key"),
        sf.when(sf.col("id") % 7 != 0, sf.col("id").cast("string").cast("binary")).alias("value"),
        sf.array(
            sf.struct(
                sf.lit("n").alias("key"), sf.col("id").cast("string").cast("binary").alias("value")
            )
        ).alias("headers"),
    )


def sums(frame: DataFrame) -> tuple[int, int, int, int]:
    """Rows, null keys, null values, and the sum of what the headers say."""
    header = sf.col("headers")[0]["value"].cast("string").cast("bigint")
    (row,) = frame.agg(
        sf.count("*"),
        sf.count_if(sf.col("key").isNull()),
        sf.count_if(sf.col("value").isNull()),
        sf.sum(header),
    ).collect()
    return (row[0], row[1], row[2], row[3])


def expected(start: int, end: int) -> tuple[int, int, int, int]:
    ids = range(start, end)
    return (
        len(ids),
        sum(n % 10 == 0 for n in ids),
        sum(n % 7 == 0 for n in ids),
        sum(ids),
    )


def test_batches_and_streams_round_trip(
    penstock: Connections, spark: SparkSession, topics: Callable[[], str], tmp_path: Path
) -> None:
    topic = topics()
    for turn, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        rows = numbers(spark, turn * RECORDS, (turn + 1) * RECORDS)
        write(penstock, rows, topic, codec)
    total = 5 * RECORDS
    everything = read(penstock, spark, topic)
    assert sums(everything) == expected(0, total)
    places = everything.groupBy("partition").agg(sf.min("offset"), sf.max("offset"), sf.count("*"))
    for _, first, last, count in (tuple(row) for row in places.collect()):
        assert (first, last) == (0, count - 1), "exact offsets, without a gap"

    (half,) = everything.agg(sf.max("timestamp").alias("newest")).collect()
    later = int(half["newest"].timestamp() * 1000) + 60_000
    by_time = read(
        penstock,
        spark,
        topic,
        startingOffsetsByTimestamp=json.dumps({topic: {"0": 0, "1": 0, "2": 0}}),
        endingOffsetsByTimestamp=json.dumps({topic: {"0": later, "1": later, "2": later}}),
    )
    assert by_time.count() == total

    copy = topics()

    def stream() -> None:
        source: Any = spark.readStream.format("kafka").options(
            **options(
                penstock,
                subscribe=topic,
                startingOffsets="earliest",
                includeHeaders="true",
                maxOffsetsPerTrigger="6000",
            )
        )
        query = (
            source.load()
            .select("key", "value", "headers")
            .writeStream.format("kafka")
            .options(**options(penstock, topic=copy, includeHeaders="true"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    stream()
    assert sums(read(penstock, spark, copy)) == expected(0, total)
    write(penstock, numbers(spark, total, total + 100), topic, "zstd")
    stream()
    assert sums(read(penstock, spark, copy)) == expected(0, total + 100), "continues, once each"
