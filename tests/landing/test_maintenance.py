"""Tables are kept healthy, and nothing that is proven or could heal is lost: real Spark and S3."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_landing import rows_sha
from test_recovery import Proven

from penstock_platform.archive.store import s3_client
from penstock_platform.connections import Connections
from penstock_platform.lake.errors import LakeError
from penstock_platform.lake.model.manifests import TARGET_BYTES, TARGET_PROPERTY
from penstock_platform.landing import maintenance
from penstock_platform.landing.attempt import land_window
from penstock_platform.landing.maintenance import (
    Maintained,
    each_table,
    expire_snapshots,
    keep_manifests_small,
    remove_orphans,
)
from penstock_platform.testing.clock import ManualClock
from penstock_platform.topics.model.declaration import bronze_table

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]

KEEP, HORIZON = timedelta(hours=6), timedelta(days=90)


def days_later(penstock: Connections, days: int) -> Any:
    """The same services, seen by a clock that is ahead."""
    clock = ManualClock(datetime.now(UTC) + timedelta(days=days))
    return SimpleNamespace(lake=penstock.lake, spark=penstock.spark, clock=clock)


def test_old_snapshots_go_and_what_was_damaged_is_still_healed(
    penstock: Connections, desk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SNAPSHOTS_KEPT_MIN", 2)
    topic = desk("kept", partitions=2)
    first = Proven(penstock, topic)
    table = bronze_table(topic.topic)
    first.sql("DELETE FROM {table} WHERE offset < 20")
    later = []
    for _ in range(3):
        topic.send_values([b"more"] * 50)
        later.append(topic.freeze())
        land_window(penstock, later[-1])
    first.sweep({0: 100, 1: 100})
    shas = [rows_sha(penstock, window) for window in later]
    prints = fingerprints(penstock, table, later)
    assert len(penstock.lake.commits(table)) == 5

    done = expire_snapshots(days_later(penstock, 1), table, keep=KEEP, repair_horizon=HORIZON)
    assert (done.tagged, done.expired, done.snapshots) == (2, 1, 4)
    again = expire_snapshots(days_later(penstock, 1), table, keep=KEEP, repair_horizon=HORIZON)
    assert again == Maintained(table, snapshots=4)
    assert [rows_sha(penstock, window) for window in later] == shas
    assert fingerprints(penstock, table, later) == prints

    healed = land_window(penstock, first.window)
    assert healed.recovered == 200
    assert first.sha == first.before


def test_young_snapshots_and_a_table_that_is_not_there_cost_no_spark_job(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    topic = desk("young")
    topic.send_values([b"x"])
    land_window(penstock, topic.freeze())
    table = bronze_table(topic.topic)
    no_spark: Any = SimpleNamespace(lake=penstock.lake, clock=penstock.clock)
    done = expire_snapshots(no_spark, table, keep=KEEP, repair_horizon=HORIZON)
    assert done == Maintained(table, snapshots=1)
    nothing = "lake.bronze.never_landed"
    assert expire_snapshots(no_spark, nothing, keep=KEEP, repair_horizon=HORIZON) == Maintained(
        nothing
    )
    assert remove_orphans(no_spark, nothing) == Maintained(nothing)


def test_a_table_of_an_earlier_release_gets_small_manifests(
    penstock: Connections, desk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = desk("manifests")
    windows = []
    for _ in range(3):
        topic.send_values([b"x"] * 5)
        windows.append(topic.freeze())
        land_window(penstock, windows[-1])
    table = bronze_table(topic.topic)
    before = fingerprints(penstock, table, windows)
    unset = f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{TARGET_PROPERTY}')"
    penstock.spark.session().sql(unset).collect()
    manifests = len(penstock.lake.manifest_bytes(table))
    keep_manifests_small(penstock, table)
    assert penstock.lake.properties(table)[TARGET_PROPERTY] == str(TARGET_BYTES)
    assert len(penstock.lake.manifest_bytes(table)) == manifests, "they are small"
    # As if each were twice as large as it should be.
    monkeypatch.setattr(maintenance, "TARGET_BYTES", min(penstock.lake.manifest_bytes(table)) // 3)
    keep_manifests_small(penstock, table)
    assert penstock.lake.commits(table)[-1].operation == "replace"
    assert fingerprints(penstock, table, windows) == before
    assert penstock.lake.snapshots_with(table, windows[0].window_id)[0].operation == "overwrite"


def test_files_of_killed_writers_go_when_they_are_old(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    topic = desk("orphans")
    topic.send_values([b"x"] * 10)
    window = topic.freeze()
    land_window(penstock, window)
    table = bronze_table(topic.topic)
    before = rows_sha(penstock, window)
    bucket, folder = penstock.lake.location(table).removeprefix("s3://").split("/", 1)
    s3 = s3_client(penstock.settings)
    for name in ("old", "young"):
        s3.put_object(Bucket=bucket, Key=f"{folder}/data/{name}.parquet", Body=b"half a file")
    (stored,) = Path(penstock.settings.home).rglob(f"{folder}/data/old.parquet")
    long_ago = time.time() - 5 * 24 * 3600
    os.utime(stored, (long_ago, long_ago))
    assert remove_orphans(penstock, table).orphans == 1
    left = s3.list_objects_v2(Bucket=bucket, Prefix=f"{folder}/data/")["Contents"]
    names = {item["Key"].rsplit("/", 1)[1] for item in left}
    assert "young.parquet" in names
    assert "old.parquet" not in names
    assert rows_sha(penstock, window) == before


def test_a_table_that_cannot_be_looked_after_stops_no_other() -> None:
    def work(_penstock: Connections, table: str) -> Maintained:
        if table == "b":
            raise LakeError("the catalog is locked\nstack")
        return Maintained(table, snapshots=1)

    found = list(each_table(Connections.__new__(Connections), ["a", "b", "c"], work))
    assert found == [
        Maintained("a", snapshots=1),
        Maintained("b", error="the catalog is locked"),
        Maintained("c", snapshots=1),
    ]


def fingerprints(penstock: Connections, table: str, windows: list[Any]) -> list[str]:
    files = penstock.lake.files(table, [window.window_id for window in windows])
    assert files is not None
    return [files.fingerprint(window.window_id) for window in windows]
