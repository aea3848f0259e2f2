"""One run of the demo's path, as ``make demo`` runs it where there is no terminal.

Real services on ports of their own, real producers, one of them killed, a saboteur, the alert's
own commands. The demo judges itself; here its evidence is read once more from what it left behind:
the alerts, the saboteurs' notes, that nothing runs any more, and, with S3 alone started again, the
repaired tables themselves: row for row what was there before the sabotage.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from penstock_platform.lake.tables import pyiceberg_properties
from penstock_platform.settings import Settings
from penstock_services.testing.services import Services, free_ports

pytestmark = [pytest.mark.services, pytest.mark.end_to_end]
DEMO_SECONDS_MAX = 3 * 3600  # against hanging; a quiet machine needs three minutes
PORTS = ("KAFKA_PORT", "S3_PORT", "SPARK_PORT", "DAGSTER_PORT", "DAGSTER_CODE_SERVER_PORT")


def ends_of_logs(home: Path) -> str:
    """What the services wrote last; the directory does not outlive the test."""
    logs = (home / "logs" / f"{service}.log" for service in ("daemon", "workers", "code"))
    return "".join(f"\n{log}:\n{log.read_text()[-6000:]}" for log in logs if log.is_file())


@pytest.mark.timeout(DEMO_SECONDS_MAX + 1800)
def test_the_demo_goes_as_planned(tmp_path: Path) -> None:
    home = tmp_path / ".penstock"
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    env = {**os.environ, "CI": "true", "PENSTOCK_HOME": str(home)}
    env |= {f"PENSTOCK_{name}": port for name, port in ports.items()}
    demo = Path(sys.executable).with_name("penstock-demo")
    run = subprocess.run(
        [str(demo), "--rate", "1500"],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:] + ends_of_logs(home)
    assert "All went as planned" in run.stdout
    alerts = [json.loads(line) for line in (home / "alerts.jsonl").read_text().splitlines()]
    sabotaged: dict[str, tuple[str, dict[str, Any]]] = {}
    for table in ("flights", "weather"):
        noted = json.loads((home / "demo" / f"sabotage-{table}.json").read_text())
        naming = [a for a in alerts if names_exactly(a, noted)]
        assert naming, f"no alert names the offsets that were taken from {table}"
        resolved = {a["dedup_key"] for a in alerts if a["event_action"] == "resolve"}
        assert naming[0]["dedup_key"] in resolved
        sabotaged[table] = (naming[0]["payload"]["custom_details"]["window_id"], noted)
    assert not left_behind(home)
    settings = Settings.load(home, {f"PENSTOCK_{name}": port for name, port in ports.items()})
    with Services(settings, ["s3"]).running():
        catalog = SqlCatalog("lake", **pyiceberg_properties(settings))
        for table, (window_id, noted) in sabotaged.items():
            assert_repaired(catalog, table, window_id, noted)
    assert not left_behind(home)


def assert_repaired(
    catalog: SqlCatalog, table: str, window_id: str, noted: dict[str, list[list[int]]]
) -> None:
    """Every record of the window is there once, with the content that it had when it was landed.

    Read by pyiceberg and compared by DuckDB, not by the platform: the newest rows against those
    of the first snapshot that had the window, and against silver and quarantine.
    """
    bronze = catalog.load_table(f"bronze.{table}")
    history = [rows_of(bronze, window_id, s.snapshot_id) for s in bronze.snapshots()]
    versions = [rows for rows in history if rows.num_rows]
    landed = versions[0]
    damaged = [rows for rows in versions if sorted(places(rows)) != sorted(places(landed))]
    assert damaged, "the sabotage is in the table's history"
    now = rows_of(bronze, window_id)
    assert now.num_rows == landed.num_rows > 0
    held = places(now)
    assert len(set(held)) == len(held), "twice in the table"
    assert {(p, o) for p, o in noted["removed"] + noted["duplicated"]} <= set(held)
    content = 'partition, "offset", timestamp, timestamp_type, key, value, headers'
    with duckdb.connect() as db:
        db.register("landed", landed)
        db.register("now", now)
        for one, other in (("landed", "now"), ("now", "landed")):
            query = f"SELECT {content} FROM {one} EXCEPT ALL SELECT {content} FROM {other}"
            assert db.execute(query).fetchall() == []
    parsed = places(rows_of(catalog.load_table(f"silver.{table}"), window_id), "_kafka_")
    refused = places(rows_of(catalog.load_table(f"quarantine.{table}"), window_id))
    assert sorted(parsed + refused) == sorted(held), "each in silver or quarantine, once"


def rows_of(table: Table, window_id: str, snapshot_id: int | None = None) -> Any:
    """A window's rows as an Arrow table."""
    return table.scan(EqualTo("window_id", window_id), snapshot_id=snapshot_id).to_arrow()


def places(rows: Any, prefix: str = "") -> list[tuple[int, int]]:
    columns = (rows[f"{prefix}{name}"].to_pylist() for name in ("partition", "offset"))
    return list(zip(*columns, strict=True))


def names_exactly(alert: dict[str, Any], noted: dict[str, list[list[int]]]) -> bool:
    """Whether an alert names the saboteur's offsets, all of them and no other."""
    details = alert["payload"]["custom_details"]

    def offsets(key: str) -> list[list[int]]:
        return sorted([p, o] for p, start, end in details.get(key, []) for o in range(start, end))

    return (
        alert["event_action"] == "trigger"
        and offsets("missing") == noted["removed"]
        and offsets("duplicates") == noted["duplicated"]
    )


def left_behind(home: Path) -> list[str]:
    """Processes that still belong to this home."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(home) in line:
            found.append(f"{process.info['pid']}: {line[:200]}")
    return found
