"""The sensors: what they freeze, what they request, and what they ask for again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from penstock_platform.components.names import WINDOW_ID_TAG
from penstock_platform.components.sensors import ATTEMPTS_MAX
from penstock_platform.domain.books import WindowState

EVIDENCE = "produced_equals_stored"


def requests(result: Any) -> list[dg.RunRequest]:
    return list(result.run_requests or [])


def test_a_window_is_frozen_when_it_has_closed_and_landed_once(ready: Any) -> None:
    ready.produce(10)
    assert not requests(ready.tick("window_sensor")), "nothing is due before the minute is over"
    ready.pass_time(31)
    first = ready.tick("window_sensor")
    (request,) = requests(first)
    window = ready.newest()
    assert window.record_count == 10
    assert (request.run_key, request.partition_key) == (window.sha256, window.window)
    assert request.job_name == "land_shop_orders"

    # Asked again before any run was launched: the same key, which Dagster runs once.
    (again,) = requests(ready.tick("window_sensor", first.cursor))
    assert again.run_key == request.run_key

    assert ready.land(window).success
    after = ready.tick("window_sensor", first.cursor)
    assert not requests(after)
    assert "no window" in str(after.skip_message)


def test_it_catches_up_after_a_pause_in_order(ready: Any) -> None:
    ready.produce(10)
    ready.pass_time(4 * 60)
    result = ready.tick("window_sensor")
    windows = list(ready.twin.windows.all(ready.ref))
    assert [w.window for w in windows] == [f"2026-11-20-00:0{n}" for n in range(4)]
    # The oldest took what there was; the others are empty, and settled together.
    land, settle = requests(result)
    assert (land.partition_key, settle.job_name) == ("2026-11-20-00:00", "settle")


def test_empty_windows_are_settled_in_one_run_with_verdicts_on_their_partitions(ready: Any) -> None:
    ready.pass_time(3 * 60)
    (settle,) = requests(ready.tick("window_sensor"))
    assert settle.job_name == "settle"
    assert ready.run("settle").success
    windows = list(ready.twin.windows.all(ready.ref))
    assert len(windows) == 3
    states = [ready.twin.windows.newest_book(w.ref, w.sequence).state for w in windows]
    assert states == [WindowState.BALANCED] * 3
    key = dg.AssetCheckKey(ready.plan.bronze_key, "stored_equals_landed")
    rows = ready.instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    assert {row.partition for row in rows} == {w.window for w in windows}
    found = ready.instance.get_materialized_partitions(ready.plan.books_key)
    assert found == {w.window for w in windows}
    assert not requests(ready.tick("window_sensor"))


def test_a_landing_that_died_is_asked_for_again_a_few_times(ready: Any) -> None:
    ready.produce(10)
    ready.pass_time(31)
    ready.tick("window_sensor")
    window = ready.newest()
    keys = set()
    for _attempt in range(ATTEMPTS_MAX + 2):
        result = ready.tick("window_sensor")
        for request in requests(result):
            keys.add(request.run_key)
            run = ready.instance.create_run_for_job(
                ready.defs.resolve_job_def("land_shop_orders"),
                tags={WINDOW_ID_TAG: window.window_id},
            )
            ready.instance.report_run_failed(run, "killed")
    assert len(keys) == ATTEMPTS_MAX
    assert window.sha256 in keys


def test_nothing_is_requested_while_a_run_is_under_way(ready: Any) -> None:
    ready.produce(10)
    ready.pass_time(31)
    ready.tick("window_sensor")
    window = ready.newest()
    ready.instance.create_run_for_job(
        ready.defs.resolve_job_def("land_shop_orders"),
        tags={WINDOW_ID_TAG: window.window_id},
        status=dg.DagsterRunStatus.STARTED,
    )
    # The twin's clock stands years off the instance's: a run of "now" is under way.
    assert not requests(ready.tick("window_sensor"))


def test_a_failed_proof_is_a_verdict_and_not_landed_again_by_itself(ready: Any) -> None:
    window = ready.frozen(20)
    ready.refuse_rows = lambda _w: {0: {3}}
    ready.land(window)
    assert not requests(ready.tick("window_sensor"))


def test_topics_that_are_declared_and_not_there_are_created_once(stage: Callable[..., Any]) -> None:
    made = stage()
    result = made.tick("topic_sensor")
    (request,) = requests(result)
    assert request.asset_selection == [made.plan.topic_key]
    assert request.asset_check_keys == []
    assert made.run("topics").success
    assert made.twin.kafka.topics() == ["shop.orders"]
    assert made.twin.kafka.configs["shop.orders"]["retention.ms"] == "-1"
    assert not requests(made.tick("topic_sensor"))


def test_materialising_a_topic_alters_what_differs(stage: Callable[..., Any]) -> None:
    made = stage(spec={"partitions": 4, "configs": {"max.message.bytes": 2000000}})
    made.twin.kafka.create("shop.orders", 2, configs={"retention.ms": "1000"})
    result = made.run("topics")
    (materialised,) = result.asset_materializations_for_node("local__topic__shop_orders")
    said = str(materialised.metadata["changes"].value)
    assert "partitions 2 → 4" in said
    assert "retention.ms 1000 → -1" in said
    assert "max.message.bytes unset → 2000000" in said
    assert len(made.twin.kafka.memory.topics["shop.orders"].partitions) == 4
    assert "none; it agreed" in str(
        made.run("topics").asset_materializations_for_node("local__topic__shop_orders")[0]
        .metadata["changes"].value
    )  # fmt: skip


def test_a_sensor_without_its_services_says_so_and_goes_on(stage: Callable[..., Any]) -> None:
    made = stage()  # no topic at all
    result = made.tick("window_sensor")
    assert not requests(result)
    assert "shop.orders: not created yet" in str(result.skip_message)


def test_evidence_is_asked_for_check_only_and_not_too_often(ready: Any) -> None:
    sent = ready.produce(30)
    ready.pass_time(60)
    ready.tick("window_sensor")
    window = ready.newest()
    ready.land(window)
    assert not requests(ready.tick("evidence_sensor")), "it was heard a moment ago"
    ready.pass_time(20)
    result = ready.tick("evidence_sensor")
    (request,) = requests(result)
    assert request.asset_selection == []
    assert request.asset_check_keys == [dg.AssetCheckKey(ready.plan.books_key, EVIDENCE)]
    assert request.partition_key == window.window

    ready.claim(sent)
    job = ready.defs.resolve_job_def(request.job_name)
    subset = job.get_subset(
        asset_selection=set(), asset_check_selection=set(request.asset_check_keys)
    )
    subset.execute_in_process(instance=ready.instance, partition_key=window.window)
    book = ready.twin.windows.newest_book(window.ref, window.sequence)
    assert book.state is WindowState.BALANCED
    ready.pass_time(60)
    after = ready.tick("evidence_sensor", result.cursor)
    assert not requests(after)
    assert after.cursor == f'{{"{ready.ref.topic_id}": 1}}', "what is decided is not read again"


def test_evidence_is_asked_for_again_when_the_run_died_before_it_judged(ready: Any) -> None:
    """Its key is another than the dead run's: Dagster would pass over the same one for ever."""
    ready.produce(30)
    ready.pass_time(60)
    ready.tick("window_sensor")
    ready.land(ready.newest())
    ready.pass_time(20)
    keys = set()
    for _attempt in range(3):
        (request,) = requests(ready.tick("evidence_sensor"))
        assert request.run_key not in keys
        keys.add(request.run_key)
        run = ready.instance.create_run_for_job(
            ready.defs.resolve_job_def(request.job_name), tags=dict(request.tags)
        )
        assert not requests(ready.tick("evidence_sensor")), "a run is under way"
        ready.instance.report_run_failed(run, "killed")
        # Dagster's own clock says when a run began: two minutes later by that.
        ready.pass_time((datetime.now(UTC) - ready.twin.clock.now()).total_seconds() + 120)


def test_a_window_older_than_the_definitions_stops_no_other(ready: Any) -> None:
    """The code location was loaded before the archive could tell where the chain begins."""
    ready.produce(5)
    ready.pass_time(31)
    sensors = ready.defs.resolve_sensor_def("window_sensor")
    assert sensors.default_status is dg.DefaultSensorStatus.RUNNING
    object.__setattr__(ready.plan, "start", ready.plan.start.replace(year=2027))
    result = ready.tick("window_sensor")
    assert not requests(result)
    assert "older than the loaded definitions" in str(result.skip_message)


def test_everything_runs_by_default(ready: Any) -> None:
    for name in ("window_sensor", "evidence_sensor", "alert_sensor", "topic_sensor"):
        sensor = ready.defs.resolve_sensor_def(name)
        assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    for name in ("reverify", "retention", "observe"):
        schedule = ready.defs.resolve_schedule_def(name)
        assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING


def test_a_schedule_waits_for_its_own_run_to_end(ready: Any, tmp_path: Path) -> None:
    schedule = ready.defs.resolve_schedule_def("reverify")
    resources = {"penstock": ready.twin}
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:

        def look() -> Any:
            with dg.build_schedule_context(instance=instance, resources=resources) as context:
                return schedule.evaluate_tick(context)

        (request,) = look().run_requests
        assert int(request.tags["dagster/priority"]) > 10, "landings must not starve it"
        instance.create_run_for_job(
            ready.defs.resolve_job_def("reverify"), status=dg.DagsterRunStatus.STARTED
        )
        waiting = look()
        assert not waiting.run_requests
        assert "is still started" in waiting.skip_message
