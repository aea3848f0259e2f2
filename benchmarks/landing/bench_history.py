"""How a table's history slows its landings down, with and without maintenance.

Commits tiny windows to a table through pyiceberg, thousands of them, as a month of minutely windows
does, and measures at intervals what a landing and a proof pay for the history: the size of the
metadata, the time to load the table, to plan one window's files, and to commit one more window.
With maintenance older snapshots expire every ``--keep`` commits, as by ``ops/snapshots``.

    python benchmarks/landing/bench_history.py [--windows 5000] [--keep 360] [--every 1000]

The table is on the local disk with a SQLite catalog: a store on the network adds its round trips,
the same with a short history and a long one.
"""

from __future__ import annotations

import argparse
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

NAME = "bronze.history"
SCHEMA = pa.schema([("window_id", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
TRIES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--windows", type=int, default=5000)
    parser.add_argument("--keep", type=int, default=360)
    parser.add_argument("--every", type=int, default=1000)
    args = parser.parse_args()
    for keep in (0, args.keep):
        print(f"the last {keep} snapshots kept" if keep else "every snapshot kept")
        with tempfile.TemporaryDirectory() as directory:
            grow(Path(directory), args.windows, keep, args.every)


def grow(folder: Path, windows: int, keep: int, every: int) -> None:
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    )
    catalog.create_namespace("bronze")
    made = catalog.create_table(
        NAME,
        schema=SCHEMA,
        properties={
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "20",
            "commit.manifest-merge.enabled": "true",
        },
    )
    with made.update_spec() as update:
        update.add_field("window_id", IdentityTransform(), "window_id")
    for number in range(1, windows + 1):
        add_window(catalog.load_table(NAME), number)
        if keep and number % keep == 0:
            expire(catalog.load_table(NAME), keep)
        if number % every == 0 or number == 10:
            report(catalog, number)


def add_window(table: Table, number: int) -> None:
    rows = {"window_id": [f"t/{number}"], "partition": [0], "offset": [number]}
    table.append(pa.table(rows, schema=SCHEMA))


def expire(table: Table, keep: int) -> None:
    snapshots = sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)
    table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in snapshots[:-keep]]).commit()


def report(catalog: SqlCatalog, number: int) -> None:
    table = catalog.load_table(NAME)
    size = Path(urlsplit(table.metadata_location).path).stat().st_size
    only = EqualTo("window_id", f"t/{number // 2}")
    load = timed(lambda: catalog.load_table(NAME))
    plan = timed(lambda: list(table.scan(row_filter=only).plan_files()))
    commit = timed(lambda: add_window(catalog.load_table(NAME), number))
    print(
        f"{number:>6,} windows: {len(table.metadata.snapshots):>6,} snapshots, metadata "
        f"{size / 2**20:6.2f} MiB; load {load:6.3f} s, plan one window {plan:6.3f} s, commit one "
        f"{commit:6.3f} s",
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
