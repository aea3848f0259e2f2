"""`penstock table show` on a real table: pyiceberg on local files, without Spark and S3."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog

from penstock_platform.cli import table as table_command
from penstock_platform.lake.tables import Lake
from penstock_platform.settings import Settings

ROWS = [
    {"method": "card", "value": b"[1]", "total": 45.0},
    {"method": "cash", "value": None, "total": 22.5},
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    settings = Settings(home=tmp_path)
    lake = Lake(settings)
    lake._opened = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    lake._opened.create_namespace("marts")
    rows = pa.Table.from_pylist(ROWS)
    lake._opened.create_table("marts.takings", schema=rows.schema).append(rows)
    monkeypatch.setattr(table_command, "settings", lambda: settings)
    monkeypatch.setattr(table_command, "Connections", lambda _settings: SimpleNamespace(lake=lake))

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(table_command.command, arguments, catch_exceptions=False)

    return invoke


def test_rows_are_shown(run: Callable[..., Result]) -> None:
    for name in ("marts.takings", "lake.marts.takings"):
        lines = [line.split() for line in run("show", name).output.splitlines()]
        assert lines == [
            ["method", "value", "total"],
            ["card", "[1]", "45.0"],
            ["cash", "–", "22.5"],
        ]


def test_for_programs_and_at_most_so_many(run: Callable[..., Result]) -> None:
    (row,) = json.loads(run("show", "marts.takings", "--rows", "1", "-o", "json").stdout)
    assert row["method"] == "card"
    assert row["value"] == "[1]"


def test_a_table_that_is_not_there(run: Callable[..., Result]) -> None:
    result = run("show", "marts.revenue")
    assert result.exit_code == 1
    assert "lake.marts.revenue does not exist yet" in result.stderr
