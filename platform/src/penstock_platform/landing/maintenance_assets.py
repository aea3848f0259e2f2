"""``["ops", "snapshots"]`` and ``["ops", "orphan_files"]``: the schedules that keep tables healthy.

What they do is ``maintenance.py``'s. A table that could not be looked after fails the check of the
asset, with the reason; the others had their turn.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Protocol

import dagster as dg

from penstock_platform.connections import Connections
from penstock_platform.landing.maintenance import (
    Maintained,
    each_table,
    expire_snapshots,
    remove_orphans,
    tables_of,
)
from penstock_platform.topics.jobs import build_job
from penstock_platform.topics.metadata import table
from penstock_platform.topics.names import ORPHAN_FILES, SNAPSHOTS, Names
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.topics.schedules import LOOK, build_schedule

CHECK = "all_maintained"
ERRORS_SHOWN = 5
SNAPSHOTS_KEY = dg.AssetKey(["ops", "snapshots"])
ORPHANS_KEY = dg.AssetKey(["ops", "orphan_files"])
TABLE_SCHEMA = dg.TableSchema(
    [
        dg.TableColumn("table", "string"),
        dg.TableColumn("snapshots", "int", "How many are kept"),
        dg.TableColumn("tagged", "int", "Kept from now on because they could heal a window"),
        dg.TableColumn("expired", "int", "Snapshots removed"),
        dg.TableColumn("files_deleted", "int", "Files that only expired snapshots had"),
        dg.TableColumn("orphans", "int", "Files removed that no snapshot has"),
        dg.TableColumn("error", "string", "Why nothing was done"),
    ]
)
Work = Callable[[Connections, str], Maintained]


class Settings(Protocol):
    """The block `maintenance` of the PlatformComponent."""

    @property
    def cron(self) -> str: ...
    @property
    def keep(self) -> timedelta: ...
    @property
    def repair_horizon(self) -> timedelta: ...
    @property
    def orphans_cron(self) -> str: ...


def build_maintenance(
    plans: Sequence[TopicPlan], settings: Settings, names: Names
) -> dg.Definitions:
    """Two assets with job and schedule each."""

    def expire(penstock: Connections, name: str) -> Maintained:
        return expire_snapshots(
            penstock, name, keep=settings.keep, repair_horizon=settings.repair_horizon
        )

    return dg.Definitions.merge(
        _maintained(
            SNAPSHOTS_KEY,
            plans,
            expire,
            _job(plans, names, SNAPSHOTS, SNAPSHOTS_KEY, settings.cron),
            "Snapshots of the lake's tables that are older than "
            f"{_hours(settings.keep)} expire, but for those that could still heal a window: they "
            f"are kept for {settings.repair_horizon.days} days.",
        ),
        _maintained(
            ORPHANS_KEY,
            plans,
            remove_orphans,
            _job(plans, names, ORPHAN_FILES, ORPHANS_KEY, settings.orphans_cron),
            "Files in the tables' folders that no snapshot has, left by writers that were killed, "
            "are removed when they are three days old.",
        ),
    )


def _job(
    plans: Sequence[TopicPlan], names: Names, name: str, key: dg.AssetKey, cron: str
) -> dg.Definitions:
    job = build_job(
        names.of(name),
        dg.AssetSelection.assets(key),
        job=name,
        cluster=plans[0].cluster,
        description="Keep the lake's tables healthy.",
    )
    schedule = build_schedule(
        job, cron, priority=LOOK, description="Every landing adds to the tables' metadata."
    )
    return dg.Definitions(jobs=[job], schedules=[schedule])


def _maintained(
    key: dg.AssetKey,
    plans: Sequence[TopicPlan],
    work: Work,
    scheduled: dg.Definitions,
    description: str,
) -> dg.Definitions:
    @dg.asset(
        key=key,
        group_name="ops",
        kinds={"iceberg"},
        deps=[k for plan in plans for k in plan.landing_keys[:-1]],
        required_resource_keys={"penstock"},
        check_specs=[
            dg.AssetCheckSpec(
                CHECK, asset=key, blocking=False, description="Every table could be looked after."
            )
        ],
        description=description,
    )
    def maintenance(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        penstock: Connections = context.resources.penstock
        started = penstock.clock.monotonic()
        done: list[Maintained] = []
        for one in each_table(penstock, tables_of(plans), work):
            done.append(one)
            if one.error:
                context.log.error("%s: %s", one.table, one.error)
        yield dg.MaterializeResult(
            metadata={
                "tables": table(
                    [row_of(one) for one in done if one.snapshots or one.error], TABLE_SCHEMA
                ),
                "snapshots": sum(one.snapshots for one in done),
                "expired": sum(one.expired for one in done),
                "files_deleted": sum(one.files_deleted + one.orphans for one in done),
                "seconds": round(penstock.clock.monotonic() - started, 3),
            },
            check_results=[all_maintained(key, [one for one in done if one.error])],
        )

    return dg.Definitions.merge(dg.Definitions(assets=[maintenance]), scheduled)


def row_of(one: Maintained) -> dict[str, str | int]:
    return {column.name: getattr(one, column.name) for column in TABLE_SCHEMA.columns}


def all_maintained(key: dg.AssetKey, failed: Sequence[Maintained]) -> dg.AssetCheckResult:
    """Red when a table could not be looked after: its metadata grows with every window."""
    shown = [f"{one.table}: {one.error}" for one in failed[:ERRORS_SHOWN]]
    more = len(failed) - len(shown)
    said = "; ".join([*shown, *([f"and {more} more"] if more > 0 else [])])
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CHECK,
        passed=not failed,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{len(failed)} tables could not be looked after: {said}"
        if failed
        else "every table was looked after",
        metadata={"failed": len(failed)},
    )


def _hours(age: timedelta) -> str:
    hours = age.total_seconds() / 3600
    return f"{hours:g} hour" if hours == 1 else f"{hours:g} hours"
