"""A log that was cut below what was frozen, through landing, books and retention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock_platform.ranges import OffsetRange, intersect
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.model.books import Equation, WindowState
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.topics.model.declaration import bronze_table
from penstock_platform.windows.model.window import Window


def cut(stage: Any, offset: int, regrown: int) -> None:
    stage.penstock.kafka.memory.topics[stage.topic].partitions[0].truncate(offset)
    if regrown:
        stage.produce(regrown)


def findings(stage: Any, window: Window) -> dict[str, list[OffsetRange]]:
    book = stage.penstock.books.newest_book(window.ref, window.sequence)
    result = book.result(Equation.STORED_EQUALS_LANDED)
    return {f.kind: list(f.ranges) for f in result.findings}


def landed_offsets(ready: Any, window: Any) -> tuple[int, tuple[OffsetRange, ...]]:
    """How many rows the window has in bronze, and their offsets."""
    found = ready.penstock.lake.content(bronze_table(ready.topic), window.window_id).coverage
    return found.rows, found.ranges()


def test_frozen_and_not_landed_before_the_cut_is_missing_lost_by_the_log(ready: Any) -> None:
    first = ready.frozen(100)
    cut(ready, 60, 90)
    done = ready.land(first)  # before the next freeze has recorded the cut
    assert not done.success
    assert findings(ready, first) == {"log_truncated": [OffsetRange(0, 60, 100)]}
    book = ready.penstock.books.newest_book(first.ref, first.sequence)
    assert book.state is WindowState.MISSING
    assert "cut" in book.findings[0].detail

    ready.pass_time(60)
    ready.tick("window_sensor")
    second = ready.newest()
    assert [(r.start, r.end) for r in second.ranges if r] == [(60, 150)]
    ready.land(second)
    assert findings(ready, second) == {}
    # landed again, with the cut recorded: the regrown records are not taken for the lost ones
    ready.land(first)
    assert findings(ready, first) == {"log_truncated": [OffsetRange(0, 60, 100)]}
    assert landed_offsets(ready, first) == (60, (OffsetRange(0, 0, 60),))


def test_landed_before_the_cut_stays_proven(ready: Any) -> None:
    first = ready.landed(100)
    cut(ready, 60, 90)
    ready.pass_time(60)
    ready.tick("window_sensor")
    assert ready.land(first).success, "its own rows come from the table"
    assert findings(ready, first) == {}
    assert landed_offsets(ready, first) == (100, (OffsetRange(0, 0, 100),))


def test_claims_on_offsets_that_exist_twice_belong_to_the_records_they_describe(
    ready: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after the cut the same offsets hold records of two producers."""
    first = ready.landed(100)
    cut(ready, 60, 0)
    monkeypatch.setitem(type(ready).claim.__globals__, "INCARNATION", 4712)
    ready.claim(ready.produce(90))  # offsets 60 to 149, of another producer
    ready.pass_time(60)
    ready.tick("window_sensor")
    second = ready.newest()
    assert [(r.start, r.end) for r in second.ranges if r] == [(60, 150)]

    def stored(_self: Any, windows: Any, wanted: Any) -> dict[int, StoredRecords]:
        offsets, owners = [], []
        for window in windows:
            owner = 4711 if window.sequence == first.sequence else 4712
            for r in intersect(window.ranges, wanted):
                offsets += range(r.start, r.end)
                owners += [owner] * len(r)
        zeros = np.zeros(len(offsets), np.uint64)
        return {0: StoredRecords.of(offsets, owners, offsets, zeros)}

    monkeypatch.setattr(Bookkeeper, "_stored", stored)
    assert ready.land(second).success
    for window in (first, second):
        book = Bookkeeper(ready.penstock).prove_produced(window, ready.plan.spec)
        result = book.result(Equation.PRODUCED_EQUALS_STORED)
        assert result.balanced, (window.sequence, result.findings)
