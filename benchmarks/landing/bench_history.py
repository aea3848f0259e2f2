"""How a table's history slows a landing down, with and without maintenance.

Makes a table of ``--windows`` windows (43,200: a month of minutely ones), each a partition with a
data file, and gives it as many snapshots as landings would have left: all of them, or those of the
last six hours, which is what ``ops/snapshots`` leaves; with Iceberg's manifests and with ours. Then
measures what every landing and every proof pay for it: to load the table, to plan one window's
files, to commit one more window.

    python benchmarks/landing/bench_history.py [--windows 43200] [--kept 360]

The snapshots are entries in the table's metadata that are as long as those of real landings, and
all name the manifests of the newest one. The table is on the local disk with a SQLite catalog: a
store on the network adds its round trips, the same ones for a short history and a long one.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from penstock_platform.lake.model.manifests import TARGET_BYTES, TARGET_PROPERTY

NAME = "bronze.history"
SCHEMA = pa.schema([("window_id", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
WINDOWS_PER_COMMIT = 2_000
TRIES = 3
# The summary of a landing's snapshot, but for its counts.
SUMMARY = {
    "penstock.attempt": "0" * 32,
    "penstock.window": "2026-11-20-00:00",
    "penstock.window-id": "XURsdZ53Si2s43EEWRZbdQ/12345",
    "penstock.window-sha256": "0" * 64,
    "penstock.topic": "shop.orders",
    "penstock.ranges": json.dumps([[p, 10_000_000, 10_060_000] for p in range(6)]),
    "spark.app.id": "local-1700000000000",
    "engine-version": "4.1.3",
    "app-id": "local-1700000000000",
    "engine-name": "spark",
    "iceberg-version": "Apache Iceberg 1.12.0",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--windows", type=int, default=43_200)
    parser.add_argument("--kept", type=int, default=360)
    args = parser.parse_args()
    for small_manifests in (False, True):
        with tempfile.TemporaryDirectory() as directory:
            print(
                "manifests of " + ("512 kB, as landings make them" if small_manifests else "8 MB")
            )
            history = History(Path(directory), small_manifests=small_manifests)
            history.fill(args.windows)
            history.keep(args.kept)
            history.report(args.windows)
            if small_manifests:
                history.keep(args.windows)
                history.report(args.windows)


class History:
    """One table with a history of a chosen length."""

    def __init__(self, folder: Path, *, small_manifests: bool) -> None:
        self._file = folder / "catalog.db"
        self._catalog = SqlCatalog(
            "lake", uri=f"sqlite:///{self._file}", warehouse=f"file://{folder}/warehouse"
        )
        self._catalog.create_namespace("bronze")
        made = self._catalog.create_table(
            NAME,
            schema=SCHEMA,
            properties={
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "1",
                "commit.manifest-merge.enabled": "true",
                **({TARGET_PROPERTY: str(TARGET_BYTES)} if small_manifests else {}),
            },
        )
        with made.update_spec() as update:
            update.add_field("window_id", IdentityTransform(), "window_id")

    def fill(self, windows: int) -> None:
        """Write the windows, many in a commit."""
        for first in range(0, windows, WINDOWS_PER_COMMIT):
            self.add(range(first, min(first + WINDOWS_PER_COMMIT, windows)))

    def add(self, numbers: range) -> None:
        rows = {
            "window_id": [f"XURsdZ53Si2s43EEWRZbdQ/{n}" for n in numbers],
            "partition": [0] * len(numbers),
            "offset": list(numbers),
        }
        self.load().append(pa.table(rows, schema=SCHEMA))

    def load(self) -> Table:
        return self._catalog.load_table(NAME)

    def keep(self, snapshots: int) -> None:
        """Give the table so many snapshots, a minute apart."""
        place = self.load().metadata_location
        path = Path(urlsplit(place).path)
        document = json.loads(path.read_text())
        newest = next(
            s for s in document["snapshots"] if s["snapshot-id"] == document["current-snapshot-id"]
        )
        earlier = [
            {
                **newest,
                "snapshot-id": n + 1,
                "parent-snapshot-id": n,
                "timestamp-ms": newest["timestamp-ms"] - 60_000 * (snapshots - n),
                "sequence-number": n + 1,
                "summary": {**newest["summary"], **SUMMARY},
            }
            for n in range(snapshots - 1)
        ]
        document["snapshots"] = [*earlier, newest]
        document["snapshot-log"] = [
            {"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]}
            for s in document["snapshots"]
        ]
        document["last-sequence-number"] = newest["sequence-number"] = snapshots + 1
        longer = path.with_name(
            f"{snapshots:05d}-00000000-0000-0000-0000-000000000000.metadata.json"
        )
        longer.write_text(json.dumps(document))
        with sqlite3.connect(self._file) as catalog:
            catalog.execute(
                "UPDATE iceberg_tables SET metadata_location = ?",
                (place.replace(path.name, longer.name),),
            )

    def report(self, windows: int) -> None:
        table = self.load()
        size = Path(urlsplit(table.metadata_location).path).stat().st_size
        only = EqualTo("window_id", f"XURsdZ53Si2s43EEWRZbdQ/{windows // 2}")
        load = timed(self.load)
        plan = timed(lambda: list(table.scan(row_filter=only).plan_files()))
        commit = timed(lambda: self.add(range(windows, windows + 1)))
        print(
            f"{windows:,} windows, {len(table.metadata.snapshots):,} snapshots: metadata "
            f"{size / 2**20:.2f} MiB; load {load:.3f} s, plan one window {plan:.3f} s, commit one "
            f"{commit:.3f} s",
            flush=True,
        )


def timed(work: Callable[[], object]) -> float:
    """Median seconds."""
    spent = []
    for _ in range(TRIES):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


if __name__ == "__main__":
    main()
