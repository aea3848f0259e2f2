"""Proof goes stale, an alert tells of it, and resolves when the window is green again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from penstock_platform.components.alerting import AlertCursor, deliver, new_evaluations
from penstock_platform.domain.books import WindowState
from penstock_platform.domain.topics import bronze_table
from penstock_platform.resources.alerts import AlertError, Alerts, FileChannel, read_alerts

STORED = "stored_equals_landed"


class Alarm:
    """The alert sensor with its cursor."""

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self.cursor: str | None = None

    def look(self) -> list[dict[str, Any]]:
        """One evaluation; the alerts that it added to the local file."""
        before = len(self.stage.alerts())
        self.cursor = self.stage.tick("alert_sensor", self.cursor).cursor
        return self.stage.alerts()[before:]


@pytest.fixture
def alarm(ready: Any) -> Alarm:
    return Alarm(ready)


def damage(stage: Any, window: Any, removed: set[int], doubled: tuple[int, ...] = ()) -> None:
    offsets = [o for o in range(window.record_count) if o not in removed]
    stage.twin.lake.put(bronze_table(stage.topic), window.window_id, {0: [*offsets, *doubled]})


def history(stage: Any, partition: str) -> list[bool]:
    key = dg.AssetCheckKey(stage.plan.bronze_key, STORED)
    rows = stage.instance.event_log_storage.get_asset_check_execution_history(key, limit=50)
    return [row.status.value == "SUCCEEDED" for row in rows if row.partition == partition][::-1]


def test_rows_that_vanish_are_found_told_mended_and_resolved(ready: Any, alarm: Alarm) -> None:
    whole, hurt = ready.landed(100), ready.landed(50)
    assert not alarm.look()
    assert ready.run("reverify").success
    assert not alarm.look(), "all is well"

    first = hurt.ranges[0].start
    gone = {3, 4, 17}
    kept = [o for o in range(first, first + 50) if o - first not in gone]
    ready.twin.lake.put(bronze_table(ready.topic), hurt.window_id, {0: kept})
    assert ready.run("reverify").success, "a finding is no failure of the run that found it"
    assert history(ready, hurt.window) == [True, False]
    assert history(ready, whole.window) == [True], "what stands is told once"
    book = ready.twin.windows.newest_book(hurt.ref, hurt.sequence)
    assert book.state is WindowState.MISSING

    (alert,) = alarm.look()
    details = alert["payload"]["custom_details"]
    assert alert["event_action"] == "trigger"
    assert details["missing"] == [[0, first + 3, first + 5], [0, first + 17, first + 18]]
    assert details["rerun"] == f"penstock window rerun shop.orders {hurt.window}"
    assert details["owner"] == "team:shop"
    assert alert["links"][0]["href"].endswith("/assets/lake/bronze/shop_orders?view=checks")

    ready.run("reverify")
    assert not alarm.look(), "one alert an incident, however often it is seen"

    assert ready.land(hurt).success
    (resolved,) = alarm.look()
    assert (resolved["event_action"], resolved["dedup_key"]) == ("resolve", alert["dedup_key"])


def test_as_many_lost_as_doubled_are_told_apart(ready: Any, alarm: Alarm) -> None:
    window = ready.landed(40)
    damage(ready, window, {7, 8}, (20, 30))
    ready.run("reverify")
    (alert,) = alarm.look()
    details = alert["payload"]["custom_details"]
    assert details["state"] == "MIXED"
    assert details["missing"] == [[0, 7, 9]]
    assert details["duplicates"] == [[0, 20, 21], [0, 30, 31]]


def test_the_same_window_may_be_judged_again_and_again(ready: Any) -> None:
    """Reports outside of any run share one run id, and a second one of a partition is refused by a
    unique index: verdicts are events of the run that made them."""
    window = ready.landed(10)
    table = bronze_table(ready.topic)
    for offsets in ([0, 1, 2], range(10), range(10), [0, 1]):
        ready.twin.lake.put(table, window.window_id, {0: list(offsets)})
        assert ready.run("reverify").success
    assert history(ready, window.window) == [True, False, True, False]
    books = ready.twin.windows.books(window.ref, window.sequence)
    assert len(books) == 6, "a verdict that says nothing new writes no book"


def test_pending_evidence_alerts_nobody_and_missing_evidence_once(ready: Any, alarm: Alarm) -> None:
    ready.produce(30)
    ready.pass_time(60)
    ready.tick("window_sensor")
    window = ready.newest()
    ready.land(window)
    assert not alarm.look()
    ready.pass_time(90)
    ready.land(window)
    (alert,) = alarm.look()
    assert alert["payload"]["class"] == "produced_equals_stored"
    assert alert["payload"]["custom_details"]["unaudited"] == [[0, 0, 30]]
    assert "rerun" not in alert["payload"]["custom_details"], "landing again brings no evidence"

    ready.twin.windows.accept(window, "ann", "known", ready.twin.clock.now())
    ready.land(window)
    (resolved,) = alarm.look()
    assert resolved["event_action"] == "resolve"


def test_a_run_that_fails_for_itself_is_an_incident_and_one_on_a_check_is_the_checks(
    ready: Any, alarm: Alarm
) -> None:
    window = ready.frozen(10)
    ready.refuse_rows = lambda _w: {0: {1}}
    assert not ready.land(window).success
    (alert,) = alarm.look()
    assert alert["payload"]["class"] == STORED, "the failed run is not told a second time"

    job = ready.defs.resolve_job_def("reverify")
    broken = ready.twin.lake.offsets
    ready.twin.lake.offsets = None
    failed = job.execute_in_process(instance=ready.instance, raise_on_error=False)
    ready.twin.lake.offsets = broken
    assert not failed.success
    (alert,) = alarm.look()
    assert alert["dedup_key"].endswith("run/reverify")
    assert alert["payload"]["summary"].startswith("reverify failed")
    assert ready.run("reverify").success
    actions = [(a["event_action"], a["dedup_key"]) for a in alarm.look()]
    assert ("resolve", alert["dedup_key"]) in actions


def test_a_check_that_is_planned_before_another_and_judged_after_it_is_seen(
    ready: Any, alarm: Alarm
) -> None:
    """Rows of checks keep the place of their planning; the newest row alone tells too little."""
    one, two = ready.landed(10), ready.landed(10)
    alarm.look()
    key = dg.AssetCheckKey(ready.plan.bronze_key, STORED)
    storage = ready.instance.event_log_storage
    newest = storage.get_latest_asset_check_execution_by_key([key])[key]
    damage(ready, one, {2})
    ready.run("reverify")  # judges both, in one run
    assert storage.get_latest_asset_check_execution_by_key([key])[key].id > newest.id
    assert [a["payload"]["custom_details"]["window"] for a in alarm.look()] == [one.window]
    assert two.window != one.window


class Broken:
    """A channel that is down until it is not."""

    name = "pager"

    def __init__(self, path: Path) -> None:
        self.down = True
        self.file = FileChannel(path)

    def deliver(self, alert: Any) -> None:
        if self.down:
            raise AlertError("pager: no answer")
        self.file.deliver(alert)


def test_a_channel_that_is_down_gets_its_alerts_later_in_order(
    ready: Any, alarm: Alarm, tmp_path: Path
) -> None:
    pager = Broken(tmp_path / "pager.jsonl")
    ready.twin.alerts = Alerts([FileChannel(ready.twin.alert_file), pager])
    window = ready.landed(20)
    damage(ready, window, {5})
    ready.run("reverify")
    (alert,) = alarm.look()
    ready.land(window)
    (resolve,) = alarm.look()
    assert len(AlertCursor.from_text(alarm.cursor).outbox) == 2
    assert not list(read_alerts(tmp_path / "pager.jsonl"))

    pager.down = False
    assert not alarm.look(), "the file has them already"
    assert list(read_alerts(tmp_path / "pager.jsonl")) == [alert, resolve]
    assert not AlertCursor.from_text(alarm.cursor).outbox


def test_a_later_alert_of_an_incident_waits_for_the_earlier(ready: Any, tmp_path: Path) -> None:
    pager = Broken(tmp_path / "pager.jsonl")

    def deliver_and_recover(alert: Any) -> None:
        down, pager.down = pager.down, False
        if down:
            raise AlertError("pager: no answer")
        pager.file.deliver(alert)

    pager.deliver = deliver_and_recover  # type: ignore[method-assign]
    ready.twin.alerts = Alerts([pager])
    trigger, resolve = ({"event_action": a, "dedup_key": "k"} for a in ("trigger", "resolve"))
    cursor = AlertCursor()
    deliver(ready.twin, cursor, [trigger, resolve])
    assert not list(read_alerts(tmp_path / "pager.jsonl")), "a resolve must not come first"
    deliver(ready.twin, cursor, [])
    assert list(read_alerts(tmp_path / "pager.jsonl")) == [trigger, resolve]


def test_an_evaluation_is_read_once_although_looks_overlap(ready: Any) -> None:
    """Seen twice, a check that failed and passed since would alert and resolve once more."""
    ready.landed(10)
    keys = [dg.AssetCheckKey(ready.plan.bronze_key, STORED)]
    cursor = AlertCursor()
    assert len(new_evaluations(ready.instance, keys, cursor)) == 1
    cursor.rows = {}
    assert not new_evaluations(ready.instance, keys, cursor)
    assert not new_evaluations(ready.instance, keys, AlertCursor.from_text(cursor.to_text()))


def test_a_sensor_killed_before_its_cursor_was_kept_repeats_nothing_in_the_file(
    ready: Any, alarm: Alarm
) -> None:
    window = ready.landed(20)
    alarm.look()
    kept = alarm.cursor
    damage(ready, window, {5})
    ready.run("reverify")
    assert len(alarm.look()) == 1
    alarm.cursor = kept
    ready.twin.clock.advance(0)
    assert not alarm.look()
