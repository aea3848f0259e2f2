"""A log that was cut below what was frozen, through landing, books and retention."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock_platform.domain.books import Equation, WindowState
from penstock_platform.domain.ranges import OffsetRange
from penstock_platform.domain.topics import bronze_table
from penstock_platform.domain.windows import Window


def cut(stage: Any, offset: int, regrown: int) -> None:
    stage.twin.kafka.memory.topics[stage.topic].partitions[0].truncate(offset)
    if regrown:
        stage.produce(regrown)


def findings(stage: Any, window: Window) -> dict[str, list[OffsetRange]]:
    book = stage.twin.windows.newest_book(window.ref, window.sequence)
    result = book.result(Equation.STORED_EQUALS_LANDED)
    return {f.kind: list(f.ranges) for f in result.findings}


def test_frozen_and_not_landed_before_the_cut_is_missing_lost_by_the_log(ready: Any) -> None:
    first = ready.frozen(100)
    cut(ready, 60, 90)
    done = ready.land(first)  # before the next freeze has recorded the cut
    assert not done.success
    assert findings(ready, first) == {"log_truncated": [OffsetRange(0, 60, 100)]}
    book = ready.twin.windows.newest_book(first.ref, first.sequence)
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
    rows = ready.twin.lake.offsets(bronze_table(ready.topic), first.window_id)[0]
    assert rows.tolist() == list(range(60))


def test_landed_before_the_cut_stays_proven(ready: Any) -> None:
    first = ready.landed(100)
    cut(ready, 60, 90)
    ready.pass_time(60)
    ready.tick("window_sensor")
    assert ready.land(first).success, "its own rows come from the table"
    assert findings(ready, first) == {}
    rows = ready.twin.lake.offsets(bronze_table(ready.topic), first.window_id)[0]
    assert np.array_equal(rows, np.arange(100))
