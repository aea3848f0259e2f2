"""`penstock lineage row`: real tables on local files; no Spark, no S3."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from lineage_lake import TOPIC, Shop

from penstock_platform.cli import lineage as command
from penstock_platform.cli.errors import described
from penstock_platform.lake import search

Run = Callable[..., Result]
SILVER = "silver.shop_orders"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    found = Shop(tmp_path)
    for _ in range(3):
        found.produce(10)
        found.land_all(found.freeze())
    return found


@pytest.fixture
def run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(command, "Connections", lambda _settings: shop.penstock)
    monkeypatch.setattr(command, "settings", lambda: shop.penstock.settings)
    return lambda *arguments: CliRunner().invoke(
        command.command, ["row", *map(str, arguments)], standalone_mode=False
    )


def rows_of(result: Result) -> dict[str, Any]:
    assert result.exception is None, result.exception
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def error_of(result: Result) -> str:
    assert result.exception is not None
    return str(described(result.exception))


def test_a_row_says_where_it_comes_from(shop: Shop, run: Run) -> None:
    window = shop.windows.get(shop.ref, 1)
    assert window is not None
    where = ("--where", "total = 14", "--columns", "customer,total")
    document = rows_of(run(SILVER, *where, "-o", "json"))
    (row,) = document["rows"]
    assert not document["more"]
    assert (row["topic"], row["partition"], row["offset"]) == (TOPIC, 0, 14)
    assert (row["window"], row["window_id"], row["state"]) == (
        window.window,
        window.window_id,
        "FROZEN",
    )
    assert row["receipt"]["attempt"] == "attempt-1"
    assert row["columns"] == {"customer": "c-0", "total": 14.0}
    shown = run(f"lake.{SILVER}", *where).output
    assert TOPIC in shown
    assert "attempt-1" in shown
    assert "c-0" in shown


@pytest.mark.parametrize(
    ("table", "where", "offsets"),
    [
        ("bronze.shop_orders", "offset between 3 and 4", [3, 4]),
        ("quarantine.shop_orders", "reason like 'total%' and offset > 26", [27, 29]),
        (SILVER, "customer in ('c-0', 'c-9') and not total < 28", [28]),
        (SILVER, "customer is null", []),
    ],
)
def test_tables_and_filters(run: Run, table: str, where: str, offsets: list[int]) -> None:
    document = rows_of(run(table, "--where", where, "-o", "json"))
    assert [row["offset"] for row in document["rows"]] == offsets
    assert "no row matches" in run(SILVER, "--where", "total < 0").output


def test_reading_stops_at_the_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read a few at a time, and none after the limit."""
    monkeypatch.setattr(search, "FILES_AT_ONCE", 1)
    read: list[str] = []

    class Scan(search.ArrowScan):
        def to_record_batches(self, tasks: Any) -> Any:
            read.extend(t.file.file_path for t in tasks if "/silver/" in t.file.file_path)
            return super().to_record_batches(tasks)

    monkeypatch.setattr(search, "ArrowScan", Scan)
    document = rows_of(run(SILVER, "--where", "total >= 0", "--limit", 4, "-o", "json"))
    assert (len(document["rows"]), document["more"], len(read)) == (4, True, 1)
    read.clear()
    document = rows_of(run(SILVER, "--where", "total >= 0", "--limit", 15, "-o", "json"))
    assert (len(document["rows"]), document["more"], len(read)) == (15, False, 3)
    assert "more than 4 rows match" in run(SILVER, "--where", "total >= 0", "--limit", 4).output


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("total >", "the filter 'total >' is not understood"),
        ("", "the filter '' is not understood"),
        ("price = 1", "Could not find field with name price"),
        ("total = 'much'", "Could not convert much into a double"),
        ("customer = 1", "Cannot convert LongLiteral into string"),
    ],
)
def test_a_wrong_filter(run: Run, where: str, said: str) -> None:
    assert said in error_of(run(SILVER, "--where", where))


def test_wrong_tables_and_columns(shop: Shop, run: Run) -> None:
    assert "lake.silver.shop does not exist yet" in error_of(
        run("silver.shop", "--where", "total = 1")
    )
    shop.catalog.create_table("marts.takings", pa.schema([("total", pa.float64())]))
    for name in ("marts.takings", "takings"):
        assert "have no offsets" in error_of(run(name, "--where", "total = 1"))
    said = error_of(run(SILVER, "--where", "total = 1", "--columns", "price"))
    assert "has no column price; its columns are window_id" in said
    assert "Missing option '--where'" in error_of(run(SILVER))


def test_a_window_that_the_archive_does_not_have(shop: Shop, run: Run) -> None:
    """The row is shown with its window's id alone."""
    shop.penstock.archive.objects.clear()
    shop.penstock.shut()
    (row,) = rows_of(run(SILVER, "--where", "total = 14", "-o", "json"))["rows"]
    assert (row["topic"], row["window"], row["state"], row["receipt"]) == (TOPIC, None, None, None)
    assert row["window_id"] in run(SILVER, "--where", "total = 14").output
