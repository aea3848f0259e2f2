"""A tick with more records than a window may hold: several windows, one partition, one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.windows.model.window import Window


@pytest.fixture
def bounded(stage: Callable[..., Any]) -> Any:
    made = stage(land={"window": "minutely", "max_records": 40})
    made.create_topics()
    made.pass_time(30)
    made.tick("window_sensor")
    return made


def frozen(stage: Any, records: int) -> tuple[list[Window], list[dg.RunRequest]]:
    stage.claim(stage.produce(records))
    stage.pass_time(60)
    requests = stage.tick("window_sensor").run_requests
    return stage.penstock.windows.tick_of(stage.newest()), requests


def state(stage: Any, window: Window) -> WindowState:
    book = stage.penstock.books.newest_book(window.ref, window.sequence)
    return book.state if book is not None else WindowState.FROZEN


def test_one_run_lands_every_window_of_its_key(bounded: Any) -> None:
    windows, requests = frozen(bounded, 100)
    assert [w.record_count for w in windows] == [40, 40, 20]
    assert [(r.partition_key, r.run_key) for r in requests] == [
        (windows[0].window, windows[-1].sha256)
    ]
    done = bounded.land(windows[-1])
    assert done.success
    assert [state(bounded, w) for w in windows] == [WindowState.BALANCED] * 3
    [bronze] = done.asset_materializations_for_node("lake__bronze__shop_orders")
    assert bronze.metadata["rows"].value == 100
    assert bounded.tick("window_sensor").run_requests == []


def test_the_partitions_check_is_the_worst_of_its_windows(bounded: Any) -> None:
    windows, _ = frozen(bounded, 100)
    bounded.refuse_rows = lambda window: {0: {45}} if window.sequence == 1 else {}
    done = bounded.land(windows[-1])
    assert not done.success  # it blocks what follows
    [check] = [e for e in done.get_asset_check_evaluations() if not e.passed]
    assert check.metadata["window"].value == windows[1].name
    assert "partition 0 offset 45" in check.description
    assert check.metadata["windows_failed"].value == 1
    assert state(bounded, windows[1]) is WindowState.MISSING
    cursor = bounded.tick("alert_sensor").cursor
    [alert] = bounded.alerts()
    assert alert["dedup_key"].endswith(windows[1].name)
    # landed again: every window, and the incident resolves
    bounded.refuse_rows = lambda _window: {}
    assert bounded.land(windows[-1]).success
    assert [state(bounded, w) for w in windows] == [WindowState.BALANCED] * 3
    bounded.tick("alert_sensor", cursor)
    assert [a["event_action"] for a in bounded.alerts()] == ["trigger", "resolve"]


def test_a_tick_that_is_frozen_in_part_is_not_landed(
    bounded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_platform.landing.sensors.FROZEN_AT_ONCE_MAX", 2)
    windows, requests = frozen(bounded, 100)
    assert [w.more for w in windows] == [True, True]
    assert requests == []
    early = bounded.land(windows[0])
    assert not early.success
    assert state(bounded, windows[0]) is WindowState.FROZEN
    requests = bounded.tick("window_sensor").run_requests
    whole = bounded.penstock.windows.tick_of(windows[0])
    assert [w.record_count for w in whole] == [40, 40, 20]
    assert [r.run_key for r in requests] == [whole[-1].sha256]


def test_evidence_is_asked_for_once_a_tick(bounded: Any) -> None:
    sent = bounded.produce(100)  # not claimed yet
    bounded.pass_time(60)
    bounded.tick("window_sensor")
    windows = bounded.penstock.windows.tick_of(bounded.newest())
    assert bounded.land(windows[-1]).success
    assert [state(bounded, w) for w in windows] == [WindowState.PENDING] * 3
    bounded.claim(sent)
    bounded.pass_time(30)
    requests = bounded.tick("evidence_sensor").run_requests
    assert [r.partition_key for r in requests] == [windows[0].window]


def test_a_proof_made_again_weighs_the_whole_tick(bounded: Any) -> None:
    windows, _ = frozen(bounded, 100)
    assert bounded.land(windows[-1]).success
    lake = bounded.penstock.lake
    for window, gone in ((windows[0], 3), (windows[2], 85)):
        rows = lake.rows["lake.bronze.shop_orders", window.window_id]
        rows[0] = rows[0][rows[0] != gone]
    lake.commits += 1
    done = bounded.run("reverify")
    assert done.success
    checks = bounded.instance.event_log_storage.get_asset_check_execution_history(
        dg.AssetCheckKey(bounded.plan.bronze_key, "stored_equals_landed"), limit=1
    )
    newest = checks[0].event.dagster_event.event_specific_data
    assert newest.partition == windows[0].window
    assert not newest.passed
    assert newest.metadata["windows_failed"].value == 2
