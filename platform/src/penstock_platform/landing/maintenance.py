"""Keeping the lake's tables healthy: snapshots expire, orphan files go.

Every landing adds a snapshot, and a table's metadata lists them all: after a month of minutely
windows every commit would write, and every reader read, 70 MB. ``model/expiry.py`` says which may
go; what could still heal a window inside the repair horizon gets a tag first. Manifests that are
larger than readers like, of a table that an earlier release made, are written again. Content and
lineage stay as they are: no data file of the current snapshot is touched, so neither digests nor
fingerprints change.

Orphan files are what a killed writer left. Only files older than ``ORPHANS_OLDER_THAN`` are
removed, which no writer that is still running has begun.

Run again at any time, also after a kill between any two steps: tags that are there are left, and
what has expired is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from penstock_platform.connections import Connections
from penstock_platform.extras import require_extra
from penstock_platform.lake.model.manifests import TARGET_BYTES, TARGET_PROPERTY
from penstock_platform.landing.model.expiry import Commit, ExpiryPlan, plan_expiry, tag_name
from penstock_platform.landing.model.expiry import takes_away as taken_away
from penstock_platform.topics.model.declaration import (
    bronze_table,
    quarantine_table,
    silver_table,
)
from penstock_platform.topics.plan import TopicPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Kept whatever their age, for readers and for what is committed during a pass.
SNAPSHOTS_KEPT_MIN = 20
ORPHANS_OLDER_THAN = timedelta(days=3)  # Iceberg refuses less than one


@dataclass(frozen=True, slots=True)
class Maintained:
    """What a pass did to one table. ``error`` says why nothing was done."""

    table: str
    snapshots: int = 0
    tagged: int = 0
    expired: int = 0
    files_deleted: int = 0
    orphans: int = 0
    error: str = ""


def tables_of(plans: Sequence[TopicPlan]) -> list[str]:
    """All tables that the landings of these topics write, earlier versions of silver among them."""
    names: list[str] = []
    for plan in plans:
        names.append(bronze_table(plan.name))
        if plan.contract is not None:
            for version in range(1, plan.spec.silver_version + 1):
                names += [silver_table(plan.name, version), quarantine_table(plan.name, version)]
    return names


def expire_snapshots(
    penstock: Connections, table: str, *, keep: timedelta, repair_horizon: timedelta
) -> Maintained:
    """Tag what could still heal a window, and let Iceberg remove the other old snapshots with the
    files that only they have.

    Raises LakeError, StoreError, SparkUnavailableError, PySparkException.
    """
    commits = commits_of(penstock, table)
    if not commits:
        return Maintained(table)
    keep_manifests_small(penstock, table)
    tags = penstock.lake.tags(table)
    plan = plan_expiry(
        commits,
        set(tags.values()),
        now=penstock.clock.now(),
        keep=keep,
        repair_horizon=repair_horizon,
        keep_last=SNAPSHOTS_KEPT_MIN,
    )
    if plan.tag:
        penstock.lake.tag(table, {tag_name(i): i for i in plan.tag}, repair_horizon)
    if not plan.expirable:  # a Spark job costs seconds
        return Maintained(table, snapshots=len(commits), tagged=len(plan.tag))
    deleted = _expire(penstock, table, plan)
    left = len(penstock.lake.commits(table))
    return Maintained(
        table,
        snapshots=left,
        tagged=len(plan.tag),
        expired=max(0, len(commits) - left),
        files_deleted=deleted,
    )


def keep_manifests_small(penstock: Connections, table: str) -> None:
    """Give the table the properties that landings rely on, and write manifests again that are much
    larger than they say. The data files, and what they are listed with, stay as they are."""
    large = max(penstock.lake.manifest_bytes(table), default=0) > 2 * TARGET_BYTES
    as_wanted = penstock.lake.properties(table).get(TARGET_PROPERTY) == str(TARGET_BYTES)
    if as_wanted and not large:
        return
    with _session(penstock, table) as spark:
        if not as_wanted:
            change = f"SET TBLPROPERTIES ('{TARGET_PROPERTY}'='{TARGET_BYTES}')"
            spark.sql(f"ALTER TABLE {table} {change}").collect()
        if large:
            spark.sql(
                f"CALL {_procedure(table, 'rewrite_manifests')} (table => '{_name(table)}')"
            ).collect()


def remove_orphans(penstock: Connections, table: str) -> Maintained:
    """Remove files of the table's folder that no snapshot has and that are old enough.

    Raises LakeError, StoreError, SparkUnavailableError, PySparkException.
    """
    commits = penstock.lake.commits(table)
    if not commits:
        return Maintained(table)
    before = penstock.clock.now() - ORPHANS_OLDER_THAN
    with _session(penstock, table) as spark:
        removed = spark.sql(
            f"CALL {_procedure(table, 'remove_orphan_files')} (table => '{_name(table)}', "
            f"older_than => {_timestamp(before)}, prefix_listing => true)"
        ).count()
    return Maintained(table, snapshots=len(commits), orphans=removed)


def commits_of(penstock: Connections, table: str) -> list[Commit]:
    """The table's kept snapshots as the plan looks at them, oldest first."""
    return [
        Commit(s.snapshot_id, s.parent_id, s.committed_ms, taken_away(s.operation, s.summary))
        for s in penstock.lake.commits(table)
    ]


def each_table(
    penstock: Connections, tables: Sequence[str], work: Callable[[Connections, str], Maintained]
) -> Iterator[Maintained]:
    """``work`` on each table; one that fails stops no other."""
    for table in tables:
        try:
            yield work(penstock, table)
        except Exception as error:  # noqa: BLE001 - the others have their turn
            said = str(error).strip().split("\n", 1)[0] or type(error).__name__
            yield Maintained(table, error=said)


def _expire(penstock: Connections, table: str, plan: ExpiryPlan) -> int:
    with _session(penstock, table) as spark:
        (counts,) = spark.sql(
            f"CALL {_procedure(table, 'expire_snapshots')} (table => '{_name(table)}', "
            f"older_than => {_timestamp(plan.before)}, retain_last => {SNAPSHOTS_KEPT_MIN}, "
            "stream_results => true)"
        ).collect()
    return sum(int(count or 0) for count in counts)


def _session(penstock: Connections, table: str) -> AbstractContextManager[SparkSession]:
    require_extra("pyspark")
    return penstock.spark.tagged(f"penstock/maintenance/{table}", "")


def _procedure(table: str, name: str) -> str:
    return f"{table.split('.', 1)[0]}.system.{name}"


def _name(table: str) -> str:
    return table.split(".", 1)[1]


def _timestamp(moment: datetime) -> str:
    return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}'"
