"""Damage a landed table behind the platform's back: what act two of the demo is about.

    python -m penstock_pipelines.demo.saboteur --table bronze.flights --window-id ID/SEQ \
        --remove 37 --duplicate 0 --report FILE

A process of its own, with nothing but the catalog's address: it picks rows at random, removes some
and writes others twice in one commit, and notes in ``--report`` which offsets it took. Nothing of
that reaches the platform; the demo compares at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import EqualTo

from penstock_platform.lake.tables import pyiceberg_properties
from penstock_platform.settings import Settings

ATTEMPTS_MAX = 200  # on a slow machine every other commit comes in between


def main(arguments: Sequence[str] | None = None) -> int:
    """Damage one window; 1 when it has not enough rows."""
    parser = argparse.ArgumentParser(prog="demo saboteur", description=__doc__)
    parser.add_argument("--table", required=True, help="namespace.table")
    parser.add_argument("--window-id", required=True)
    parser.add_argument("--remove", type=int, required=True, help="rows to take away")
    parser.add_argument("--duplicate", type=int, default=0, help="rows to write a second time")
    parser.add_argument("--report", type=Path, required=True, help="where to note the offsets")
    options = parser.parse_args(arguments)
    catalog = SqlCatalog("lake", **pyiceberg_properties(Settings.load()))
    table = catalog.load_table(options.table)
    mine = EqualTo("window_id", options.window_id)  # type: ignore[call-arg,arg-type]
    rows = table.scan(row_filter=mine).to_arrow()
    if rows.num_rows < options.remove + options.duplicate:
        sys.stderr.write(f"{options.table} {options.window_id}: only {rows.num_rows} rows\n")
        return 1
    chosen = random.SystemRandom().sample(range(rows.num_rows), options.remove + options.duplicate)
    removed, doubled = chosen[: options.remove], chosen[options.remove :]
    removed_set = pa.array(removed, pa.int64())
    kept = pc.invert(pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=removed_set))
    damaged = pa.concat_tables([rows.filter(kept), rows.take(pa.array(doubled, pa.int64()))])
    _overwrite(catalog, options.table, damaged, mine)
    report = {"removed": _coordinates(rows, removed), "duplicated": _coordinates(rows, doubled)}
    options.report.write_text(json.dumps(report))
    return 0


def _overwrite(catalog: SqlCatalog, name: str, rows: Any, mine: Any) -> None:
    """Other windows land meanwhile, and pyiceberg takes each such commit for a conflict."""
    for attempt in range(ATTEMPTS_MAX):
        try:
            catalog.load_table(name).overwrite(rows, overwrite_filter=mine)
        except (CommitFailedException, ValidationException):
            if attempt == ATTEMPTS_MAX - 1:
                raise
        else:
            return


def _coordinates(rows: Any, indexes: list[int]) -> list[list[int]]:
    """[partition, offset] of each row, sorted."""
    taken = rows.select(["partition", "offset"]).take(pa.array(indexes, pa.int64()))
    pairs = zip(taken["partition"].to_pylist(), taken["offset"].to_pylist(), strict=True)
    return sorted([partition, offset] for partition, offset in pairs)


if __name__ == "__main__":
    sys.exit(main())
