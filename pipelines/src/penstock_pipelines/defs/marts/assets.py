"""Marts: what the landed records are good for.

A mart reads silver, which has only proven windows, and is replaced each time: a second run writes
the same table.
"""

from typing import Any

import dagster as dg

from penstock_pipelines.marts import delays
from penstock_platform.topics.model.declaration import mart_table, silver_key, silver_table
from penstock_platform.topics.schedules import build_schedule

MART = "departure_delay"


@dg.asset(
    key=["lake", "marts", MART],
    group_name="marts",
    kinds={"spark", "iceberg", "matplotlib"},
    owners=["team:flights"],
    tags={"domain": "flights"},
    deps=[dg.AssetKey(silver_key("flights")), dg.AssetKey(silver_key("weather"))],
    required_resource_keys={"penstock"},
    metadata={"dagster/table_name": mart_table(MART), "dagster/storage_kind": "iceberg"},
    description=(
        "How late New York's departures were, by airport, airline and scheduled hour, with the "
        "weather of that hour at that airport. Read from silver, so from proven windows alone."
    ),
)
def departure_delay(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
    """Rebuild the mart and draw it."""
    penstock = context.resources.penstock
    with penstock.spark.tagged(f"penstock/marts/{MART}", "") as spark:
        made = delays.rebuild(spark, mart_table(MART))
    return dg.MaterializeResult(
        metadata={
            "flights": made.flights,
            "flights_with_weather": made.with_weather,
            "dagster/row_count": made.rows,
            "dagster/uri": penstock.lake.location(mart_table(MART)),
            "worst_hour": made.worst,
            "delay_by_hour": dg.MetadataValue.md(delays.picture(made.by_hour)),
        }
    )


departure_delay_job = dg.define_asset_job(
    "marts", selection=[departure_delay], executor_def=dg.in_process_executor
)


def waiting_for(context: dg.ScheduleEvaluationContext) -> str | None:
    """Why there is nothing to rebuild yet, or None."""
    lake = context.resources.penstock.lake
    missing = [topic for topic in ("flights", "weather") if not lake.exists(silver_table(topic))]
    return f"nothing of {' and '.join(missing)} has been parsed yet" if missing else None


departure_delay_schedule = build_schedule(
    departure_delay_job,
    "*/3 * * * *",
    description="Rebuild the marts from silver, once there is any.",
    ready=waiting_for,
)
