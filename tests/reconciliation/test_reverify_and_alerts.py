"""A proof goes stale, an alert reports it, and resolves when the window is green again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from penstock_platform.alerts.channels import (
    AlertError,
    FileChannel,
    WebhookChannel,
    read_alerts,
)
from penstock_platform.alerts.events import Position, new_evaluations
from penstock_platform.alerts.state import load_state, state_file
from penstock_platform.archive.store import ArchiveError
from penstock_platform.lake.tables import LakeError
from penstock_platform.landing import assets as landing
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.topics.model.declaration import bronze_table

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
    stage.penstock.lake.put(bronze_table(stage.topic), window.window_id, {0: [*offsets, *doubled]})


def history(stage: Any, partition: str) -> list[bool]:
    key = dg.AssetCheckKey(stage.plan.bronze_key, STORED)
    rows = stage.instance.event_log_storage.get_asset_check_execution_history(key, limit=50)
    return [row.status.value == "SUCCEEDED" for row in rows if row.partition == partition][::-1]


def test_rows_that_vanish_are_found_alerted_repaired_and_resolved(ready: Any, alarm: Alarm) -> None:
    whole, hurt = ready.landed(100), ready.landed(50)
    assert not alarm.look()
    assert ready.run("reverify").success
    assert not alarm.look(), "all is well"

    first = hurt.ranges[0].start
    gone = {3, 4, 17}
    kept = [o for o in range(first, first + 50) if o - first not in gone]
    ready.penstock.lake.put(bronze_table(ready.topic), hurt.window_id, {0: kept})
    assert ready.run("reverify").success, "a finding is no failure of the run that found it"
    assert history(ready, hurt.window) == [True, False]
    assert history(ready, whole.window) == [True], "an unchanged result is reported once"
    book = ready.penstock.books.newest_book(hurt.ref, hurt.sequence)
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


def test_as_many_lost_as_doubled_are_distinguished(ready: Any, alarm: Alarm) -> None:
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
    unique index: check results are events of the run that made them."""
    window = ready.landed(10)
    table = bronze_table(ready.topic)
    for offsets in ([0, 1, 2], range(10), range(10), [0, 1]):
        ready.penstock.lake.put(table, window.window_id, {0: list(offsets)})
        assert ready.run("reverify").success
    assert history(ready, window.window) == [True, False, True, False]
    books = ready.penstock.books.books(window.ref, window.sequence)
    assert len(books) == 6, "a result with nothing new writes no book"


def test_pending_evidence_sends_no_alert_and_missing_evidence_one(ready: Any, alarm: Alarm) -> None:
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

    ready.penstock.books.accept(window, "ann", "known", ready.penstock.clock.now())
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
    assert alert["payload"]["class"] == STORED, "the failed run sends no second alert"

    job = ready.job("reverify")
    monotonic = ready.penstock.clock.monotonic
    ready.penstock.clock.monotonic = None
    failed = job.execute_in_process(instance=ready.instance, raise_on_error=False)
    ready.penstock.clock.monotonic = monotonic
    assert not failed.success
    (alert,) = alarm.look()
    assert alert["dedup_key"].endswith("run/penstock_reverify")
    assert alert["payload"]["summary"].startswith("penstock_reverify failed")
    assert ready.run("reverify").success
    actions = [(a["event_action"], a["dedup_key"]) for a in alarm.look()]
    assert ("resolve", alert["dedup_key"]) in actions


def test_a_window_that_cannot_be_looked_at_is_visible_and_stops_no_other(
    ready: Any, alarm: Alarm
) -> None:
    odd, hurt = ready.landed(10), ready.landed(10)
    alarm.look()
    content = ready.penstock.lake.content

    def broken(table: str, window_id: str) -> Any:
        if window_id == odd.window_id:
            raise LakeError("lake.bronze.shop_orders: cannot be read")
        return content(table, window_id)

    damage(ready, odd, {3})
    damage(ready, hurt, {2})
    ready.penstock.lake.content = broken
    assert ready.run("reverify").success
    alerts = alarm.look()
    assert {a["payload"]["class"] for a in alerts} == {STORED, "all_reverified"}
    (unseen,) = [a for a in alerts if a["payload"]["class"] == "all_reverified"]
    assert f"shop.orders {odd.window}: lake.bronze.shop_orders: cannot" in str(unseen)
    newest = ready.penstock.books.newest_proof(odd.ref)
    assert newest.open == (odd.sequence, hurt.sequence)

    ready.run("reverify")
    assert not alarm.look(), "nothing resolves without a proof"
    ready.penstock.lake.content = content
    ready.run("reverify")
    actions = [(a["event_action"], a["payload"]["class"]) for a in alarm.look()]
    assert ("resolve", "all_reverified") in actions
    assert ("trigger", STORED) in actions


def test_a_swapped_value_is_an_alert_with_its_offset_and_holds_the_sweep(
    ready: Any, alarm: Alarm
) -> None:
    window = ready.landed(20)
    alarm.look()
    key = bronze_table(ready.topic), window.window_id
    ready.penstock.lake.contents[key] = {(0, 7): 8, (0, 8): 7}
    ready.penstock.lake.commits += 1
    ready.pass_time(600)
    held = ready.run("retention")
    (swept,) = held.asset_materializations_for_node("retention__shop_orders")
    assert "stored = landed is CORRUPT" in str(swept.metadata["decisions"].value)
    assert ready.penstock.kafka.memory.topics[ready.topic].partitions[0].log_start == 0
    ready.run("reverify")
    (alert,) = [a for a in alarm.look() if a["payload"]["class"] == STORED]
    assert alert["payload"]["custom_details"]["corrupt"] == [[0, 7, 9]]
    assert alert["payload"]["custom_details"]["state"] == "CORRUPT"


def test_a_check_that_is_planned_before_another_and_judged_after_it_is_seen(
    ready: Any, alarm: Alarm
) -> None:
    """Rows of checks keep the place of their planning; the newest row alone is not enough."""
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
    local = False

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
    ready.penstock.use_alerts(FileChannel(ready.penstock.alert_file), pager)
    window = ready.landed(20)
    damage(ready, window, {5})
    ready.run("reverify")
    (alert,) = alarm.look()
    ready.land(window)
    (resolve,) = alarm.look()
    outbox = ready.penstock.settings.alert_directory / "outbox"
    assert len(list(outbox.rglob("*.json"))) == 1
    assert not list(read_alerts(tmp_path / "pager.jsonl"))

    pager.down = False
    ready.pass_time(20)
    assert not alarm.look(), "the file has them already"
    assert list(read_alerts(tmp_path / "pager.jsonl")) == [alert, resolve]
    assert not list(outbox.rglob("*.json"))


def test_an_evaluation_is_read_once_although_looks_overlap(ready: Any) -> None:
    """Seen twice, a check that failed and passed since would alert and resolve once more."""
    ready.landed(10)
    keys = [dg.AssetCheckKey(ready.plan.bronze_key, STORED)]
    position = Position()
    assert len(new_evaluations(ready.instance, keys, position)) == 1
    position.rows = {}
    assert not new_evaluations(ready.instance, keys, position)
    again = Position.from_document(json.loads(json.dumps(position.document())))
    assert not new_evaluations(ready.instance, keys, again)


def test_a_sensor_killed_before_its_state_was_kept_repeats_nothing_in_the_file(
    ready: Any, alarm: Alarm
) -> None:
    window = ready.landed(20)
    alarm.look()
    file = state_file(ready.penstock.settings.alert_directory)
    kept = file.read_bytes()
    damage(ready, window, {5})
    ready.run("reverify")
    assert len(alarm.look()) == 1
    file.write_bytes(kept)
    assert not alarm.look()


def test_another_dagster_database_is_read_again_and_the_incidents_stay(
    ready: Any, alarm: Alarm
) -> None:
    window = ready.landed(20)
    damage(ready, window, {5})
    ready.run("reverify")
    (alert,) = alarm.look()
    first, alarm.cursor = alarm.cursor, None
    assert not alarm.look(), "the incident is open already"
    assert alarm.cursor != first
    ready.land(window)
    (resolve,) = alarm.look()
    assert (resolve["event_action"], resolve["dedup_key"]) == ("resolve", alert["dedup_key"])


def test_an_unreadable_state_is_moved_aside(ready: Any, alarm: Alarm) -> None:
    directory = ready.penstock.settings.alert_directory
    directory.mkdir(parents=True)
    state_file(directory).write_text('{"v": 1, "mark')
    window = ready.landed(20)
    damage(ready, window, {5})
    ready.run("reverify")
    assert len(alarm.look()) == 1
    assert state_file(directory).with_suffix(".unreadable").is_file()


def test_a_chain_that_stops_is_an_incident_until_it_continues(ready: Any, alarm: Alarm) -> None:
    ready.landed(20)
    assert not alarm.look()
    ready.produce(7)
    ready.pass_time(185)
    assert not alarm.look(), "it may be frozen in a moment"
    ready.pass_time(61)
    (alert,) = alarm.look()
    assert alert["dedup_key"] == "chain:local:health/shop.orders/not_frozen"
    assert "7 records are in no window" in alert["payload"]["summary"]
    assert alert["payload"]["severity"] == "critical"
    ready.pass_time(31)
    assert not alarm.look()
    ready.tick("window_sensor")
    ready.pass_time(31)
    (resolve,) = alarm.look()
    assert (resolve["event_action"], resolve["dedup_key"]) == ("resolve", alert["dedup_key"])


def test_a_topic_that_was_deleted_is_one_incident(ready: Any, alarm: Alarm) -> None:
    ready.landed(20)
    alarm.look()
    del ready.penstock.kafka.memory.topics[ready.topic]
    ready.pass_time(31)
    (alert,) = alarm.look()
    assert alert["payload"]["class"] == "topic_deleted"
    assert "20 records until window" in alert["payload"]["summary"]
    ready.pass_time(600)
    assert not alarm.look()


def fail_with(ready: Any, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Reading the archive ends in this error."""

    def refuse(*_: object) -> Any:
        raise error

    monkeypatch.setattr(ready.penstock.archive, "get", refuse)
    monkeypatch.setattr(ready.penstock.archive, "ping", refuse)
    ready.penstock.shut()  # nothing remembered


def test_an_outage_of_the_store_is_one_incident_and_ends_with_it(
    ready: Any, alarm: Alarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen before: `reverify`, `prove_empty_windows` and each landing alerted, each minute."""
    window = ready.landed(20)
    alarm.look()
    with monkeypatch.context() as patch:
        fail_with(
            ready,
            patch,
            ArchiveError("cannot get s3://penstock/x: Could not connect to the endpoint URL"),
        )
        assert not ready.run("reverify").success
        assert not ready.run("prove_empty_windows").success
        assert not ready.land(window).success
        (alert,) = alarm.look()
        assert alert["dedup_key"] == "outage:local:store"
        assert alert["payload"]["custom_details"]["stops"] == [
            "re-verification",
            f"the landing of shop.orders {window.window}",
            "the results of empty windows",
        ]
        for _ in range(3):
            ready.run("reverify")
            ready.run("prove_empty_windows")
            ready.pass_time(61)
            assert not alarm.look()
    ready.penstock.shut()  # nothing remembered
    assert ready.run("reverify").success
    assert ready.run("prove_empty_windows").success
    ready.pass_time(31)
    assert not alarm.look(), "the landing has not succeeded yet"
    assert ready.land(window).success
    (resolve,) = alarm.look()
    assert (resolve["event_action"], resolve["dedup_key"]) == ("resolve", alert["dedup_key"])


def test_evaluations_are_read_when_the_store_is_back(
    ready: Any, alarm: Alarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = ready.landed(20)
    alarm.look()
    damage(ready, window, {5})
    ready.run("reverify")
    with monkeypatch.context() as patch:
        fail_with(ready, patch, ArchiveError("cannot get: connection refused"))
        assert not alarm.look()
    ready.penstock.shut()  # nothing remembered
    ready.pass_time(31)
    (alert,) = alarm.look()
    assert alert["payload"]["custom_details"]["missing"] == [[0, 5, 6]]


def test_an_incident_is_not_resolved_by_leaving_the_scope(ready: Any, alarm: Alarm) -> None:
    hurt = ready.landed(20)
    damage(ready, hurt, {5})
    ready.run("reverify")
    assert len(alarm.look()) == 1
    for _ in range(3):
        ready.landed(5)
    for _ in range(3):
        assert ready.run("reverify").success
        ready.pass_time(1)
    assert not [a for a in alarm.look() if a["event_action"] == "resolve"]
    assert load_state(ready.penstock.settings.alert_directory).incidents.open


def test_a_run_that_succeeds_without_judging_its_window_resolves_nothing(
    ready: Any, alarm: Alarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = ready.frozen(20)
    with monkeypatch.context() as patch:
        patch.setattr(landing, "land_window", lambda *_a, **_k: 1 / 0)
        assert not ready.land(window).success
    (alert,) = alarm.look()
    assert "division by zero" in alert["payload"]["summary"]
    only = [dg.AssetKey(["books", ready.topic])]
    assert ready.land(window, asset_selection=only).success
    assert not [a for a in alarm.look() if a["dedup_key"] == alert["dedup_key"]]
    assert ready.land(window).success
    (resolve,) = [a for a in alarm.look() if a["dedup_key"] == alert["dedup_key"]]
    assert resolve["event_action"] == "resolve"


def test_neither_cursor_nor_state_holds_an_address(ready: Any, alarm: Alarm) -> None:
    ready.penstock.use_alerts(WebhookChannel("http://127.0.0.1:9/services/T0KEN4711"))
    window = ready.landed(20)
    damage(ready, window, {5})
    ready.run("reverify")
    alarm.look()
    assert len(alarm.cursor or "") == 32
    files = [p for p in ready.penstock.settings.alert_directory.rglob("*") if p.is_file()]
    assert any(p.suffix == ".json" and p.parent.name.startswith("webhook") for p in files)
    assert not [p for p in files if b"T0KEN4711" in p.read_bytes() or "T0KEN" in str(p)]
