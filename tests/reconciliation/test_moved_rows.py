"""Rows that move between silver and quarantine: their offsets are the same, the digests are not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock_platform.lake.content import WindowContent
from penstock_platform.lake.model.digests import digest_of
from penstock_platform.lake.model.rows import Rows
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.reconciliation.model.equations import LogView
from penstock_platform.reconciliation.model.receipts import Receipt
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.reconciliation.table_views import Prover
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.connections import MemoryConnections
from penstock_platform.testing.windows import make_window
from penstock_platform.topics.model.declaration import (
    bronze_table,
    parse_topic,
    quarantine_table,
    silver_table,
)

WINDOW = make_window({0: (0, 10)})
SPEC = parse_topic(
    {
        "metadata": {"name": WINDOW.topic},
        "land": {"window": "minutely"},
        "schema": {"file": "s.json"},
    }
)
BRONZE, SILVER, QUARANTINE = (
    table(WINDOW.topic) for table in (bronze_table, silver_table, quarantine_table)
)


def content(*offsets: int, salt: int = 1) -> WindowContent:
    rows = Rows(
        np.zeros(len(offsets), np.int32),
        np.array(offsets, np.int64),
        np.array([(o + 1) * 7919 * salt for o in offsets], np.uint64),
    )
    return WindowContent.of_rows(rows, "files", {}, 9)


class Tables:
    """What ``Prover`` asks of the lake. ``kept``: whether the receipts' snapshot is."""

    def __init__(self) -> None:
        self.now = {BRONZE: content(*range(10)), SILVER: content(*range(8), salt=3)}
        self.now[QUARANTINE] = content(8, 9, salt=5)
        self.then = dict(self.now)
        self.kept = True

    def content(self, table: str, _window_id: str) -> WindowContent:
        return self.now[table]

    def content_at(self, table: str, _window_id: str, snapshot_id: int) -> WindowContent | None:
        return replace(self.then[table], snapshot_id=snapshot_id) if self.kept else None

    def current_snapshot(self, _table: str) -> Any:
        return None

    def snapshots_with(self, _table: str, _window_id: str) -> list[Any]:
        return [SimpleNamespace(snapshot_id=1, attempt_id="a", parent_id=None)]


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.fixture
def prover(tables: Tables) -> Prover:
    penstock = MemoryConnections(archive=MemoryArchive(), lake=tables)
    for table, held in tables.then.items():
        BookStore.of(penstock).add_receipt(
            Receipt.of(
                WINDOW,
                table=table,
                attempt_id="a",
                snapshot_id=1,
                rows=held.count,
                size_bytes=1,
                seconds=1.0,
                landed_at="2026-11-20T00:01:00Z",
                code_version="test",
                digest=held.digest,
            )
        )
    return Prover(penstock, lambda *_: LogView(), lambda *_: ())


def test_what_was_received_is_balanced(tables: Tables, prover: Prover) -> None:
    assert prover.landed(WINDOW, SPEC).result.balanced
    assert prover.parsed(WINDOW, SPEC).result.balanced


@pytest.mark.parametrize("kept", [True, False])
def test_a_row_that_moved_to_quarantine_is_corrupt(
    tables: Tables, prover: Prover, kept: bool
) -> None:
    tables.kept = kept
    tables.now[SILVER] = content(*range(7), salt=3)
    tables.now[QUARANTINE] = content(7, 8, 9, salt=5)
    result = prover.parsed(WINDOW, SPEC).result
    assert result.state is WindowState.CORRUPT
    (altered,) = [f for f in result.findings if f.kind == "altered"]
    assert altered.ranges == (OffsetRange(0, 7, 8) if kept else OffsetRange(0, 0, 10),)


def test_a_forged_row_in_silver_is_corrupt(tables: Tables, prover: Prover) -> None:
    forged = content(*range(8), salt=3)
    assert forged.rows is not None
    forged.rows.digest[4] += np.uint64(1)
    tables.now[SILVER] = replace(forged, digest=digest_of([forged.rows.digest]))
    result = prover.parsed(WINDOW, SPEC).result
    assert [(f.kind, f.ranges) for f in result.findings] == [("altered", (OffsetRange(0, 4, 5),))]


def test_receipts_without_a_digest_prove_nothing(tables: Tables, prover: Prover) -> None:
    """Bronze, silver and quarantine alike: nothing says what their content is to be."""
    store = BookStore.of(prover._penstock)
    for table in (BRONZE, SILVER):
        (newest,) = store.receipts(WINDOW.ref, table, WINDOW.sequence)
        store.add_receipt(replace(newest, digest="", attempt_id="b"))
    for result in (prover.landed(WINDOW, SPEC).result, prover.parsed(WINDOW, SPEC).result):
        assert result.state is WindowState.PENDING
        assert "does not say" in result.findings[0].detail
