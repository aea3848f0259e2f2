"""Departure delays by airport, airline and hour, beside the weather of that hour.

Flights are replayed without end, so the same flight may be there several times; means do not mind.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from penstock_platform.topics.model.declaration import silver_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LATE_MINUTES = 15
COLOURS = {"EWR": "#2f6f9f", "JFK": "#c8553d", "LGA": "#5b8c5a"}


class NothingLandedError(RuntimeError):
    """A silver table that the mart reads is not there yet: says which."""


@dataclass(frozen=True, slots=True)
class Mart:
    """What was made. ``by_hour``: (origin, hour, flights, mean minutes late, mean visibility)."""

    rows: int
    flights: int
    with_weather: int
    worst: str
    by_hour: tuple[tuple[str, int, int, float, float | None], ...]


def rebuild(spark: SparkSession, table: str) -> Mart:
    """Make the table again from silver, in one commit. Raises NothingLandedError."""
    flights = _silver(spark, "flights").where(sf.col("dep_delay").isNotNull())
    weather = (
        _silver(spark, "weather")
        .groupBy("origin", "time_hour")
        .agg(
            sf.avg("wind_speed").alias("wind_speed"),
            sf.avg("precip").alias("precip"),
            sf.avg("visib").alias("visib"),
        )
    )
    joined = flights.join(weather, ["origin", "time_hour"], "left")
    rows = joined.groupBy("origin", "carrier", "hour").agg(
        sf.count(sf.lit(1)).alias("flights"),
        sf.count("visib").alias("flights_with_weather"),
        sf.round(sf.avg("dep_delay"), 2).alias("mean_delay_minutes"),
        sf.sum(sf.when(sf.col("dep_delay") > 15, 1).otherwise(0)).alias(
            "more_than_15_minutes_late"
        ),
        sf.round(sf.avg("wind_speed"), 2).alias("mean_wind_mph"),
        sf.round(sf.avg("precip"), 4).alias("mean_precip_inches"),
        sf.round(sf.avg("visib"), 2).alias("mean_visibility_miles"),
    )
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rsplit('.', 1)[0]}").collect()
    rows.coalesce(1).sortWithinPartitions("origin", "carrier", "hour").writeTo(table).using(
        "iceberg"
    ).createOrReplace()
    return _described(spark.table(table))


def _described(mart: DataFrame) -> Mart:
    found = mart.collect()
    hours: dict[tuple[str, int], list[Any]] = {}
    for row in found:
        hours.setdefault((row["origin"], int(row["hour"])), []).append(row)
    by_hour = tuple(_hour(origin, hour, rows) for (origin, hour), rows in sorted(hours.items()))
    worst = max(by_hour, key=lambda h: h[3], default=None)
    return Mart(
        rows=len(found),
        flights=sum(int(row["flights"]) for row in found),
        with_weather=sum(int(row["flights_with_weather"]) for row in found),
        worst=f"{worst[0]} {worst[1]:02d}:00, {worst[3]:.1f} minutes" if worst else "",
        by_hour=by_hour,
    )


def _hour(origin: str, hour: int, rows: Sequence[Any]) -> tuple[str, int, int, float, float | None]:
    flights = sum(int(row["flights"]) for row in rows)
    delay = sum(row["mean_delay_minutes"] * row["flights"] for row in rows) / flights
    seen = [row for row in rows if row["mean_visibility_miles"] is not None]
    weighed = sum(int(row["flights_with_weather"]) for row in seen)
    visibility = (
        sum(row["mean_visibility_miles"] * row["flights_with_weather"] for row in seen) / weighed
        if weighed
        else None
    )
    return origin, hour, flights, float(delay), visibility


def picture(by_hour: Sequence[tuple[str, int, int, float, float | None]]) -> str:
    """Delay by hour and airport, and how many flights that is, as Markdown with the image in it."""
    import matplotlib as mpl  # noqa: PLC0415 - a second, needed only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7.5, 5.2), sharex=True, height_ratios=[2, 1], layout="constrained"
    )
    for number, origin in enumerate(sorted({row[0] for row in by_hour})):
        mine = [row for row in by_hour if row[0] == origin]
        colour = COLOURS.get(origin, f"C{number}")
        hours = [row[1] for row in mine]
        top.plot(hours, [row[3] for row in mine], marker="o", color=colour, label=origin)
        shift = (number - 1) * 0.28
        bottom.bar([h + shift for h in hours], [r[2] for r in mine], 0.28, color=colour)
    top.axhline(0, color="#999999", linewidth=0.8)
    top.set_ylabel("mean delay, minutes")
    top.set_title("Departures from New York: delay by scheduled hour")
    top.legend(frameon=False)
    bottom.set_ylabel("flights")
    bottom.set_xticks(range(0, 24, 2))
    bottom.set_xlabel("scheduled hour of departure, local")
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f"![delay by hour](data:image/png;base64,{data})"


def _silver(spark: SparkSession, topic: str) -> DataFrame:
    table = silver_table(topic)
    try:
        frame = spark.table(table)
        frame.columns  # noqa: B018 - asks the catalog now
    except AnalysisException as error:
        raise NothingLandedError(
            f"{table} is not there yet: no window of {topic} has been parsed"
        ) from error
    return frame
