"""The sensors: what they freeze, what they request, and what they ask for again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from penstock_platform.lake.spark_connect import SparkUnavailableError
from penstock_platform.landing import assets as landing
from penstock_platform.landing import ownership
from penstock_platform.landing.model.leases import LAPSE, Lease
from penstock_platform.landing.model.retries import (
    INSIDE_MAX,
    Action,
    Cause,
    decide,
    hindered,
    outcome_text,
    parse_outcome,
)
from penstock_platform.landing.ownership import landing_attempts
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.testing.clock import ManualClock
from penstock_platform.topics.names import LANDING_TAG, LEASE_TAG, OUTCOME_TAG
from penstock_platform.windows.model.window import Window

EVIDENCE = "produced_equals_stored"
EMPTY = "penstock_prove_empty_windows"


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
    assert request.job_name == "penstock_land_shop_orders"

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
    windows = list(ready.penstock.windows.all(ready.ref))
    assert [w.window for w in windows] == [f"2026-11-20-00:0{n}" for n in range(4)]
    # The oldest window holds all records; the others are empty, and proven in one run.
    land, empty = requests(result)
    assert (land.partition_key, empty.job_name) == ("2026-11-20-00:00", EMPTY)


def test_empty_windows_are_proven_in_one_run_with_results_on_their_partitions(ready: Any) -> None:
    ready.pass_time(3 * 60)
    (request,) = requests(ready.tick("window_sensor"))
    assert request.job_name == EMPTY
    assert ready.run("prove_empty_windows").success
    windows = list(ready.penstock.windows.all(ready.ref))
    assert len(windows) == 3
    states = [ready.penstock.books.newest_book(w.ref, w.sequence).state for w in windows]
    assert states == [WindowState.BALANCED] * 3
    key = dg.AssetCheckKey(ready.plan.bronze_key, "stored_equals_landed")
    rows = ready.instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    assert {row.partition for row in rows} == {w.window for w in windows}
    found = ready.instance.get_materialized_partitions(ready.plan.books_key)
    assert found == {w.window for w in windows}
    assert not requests(ready.tick("window_sensor"))


def one_clock(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster's records carry the machine's time. A time that is seen first is the stage's now."""
    seen: dict[float, datetime] = {}
    monkeypatch.setattr(
        ownership,
        "from_dagster",
        lambda seconds: seen.setdefault(seconds, made.penstock.clock.now()),
    )


def see_runs(made: Any) -> None:
    ownership.attempts_of(made.instance, dg.RunsFilter())


@pytest.fixture
def one_time(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one_clock(ready, monkeypatch)


def failing_run(ready: Any, request: dg.RunRequest, outcome: str = "") -> None:
    """The requested run, ended without a result; no outcome: its process was killed."""
    run = ready.create_run(request.job_name, tags=request.tags)
    if outcome:
        ready.instance.add_run_tags(run.run_id, {OUTCOME_TAG: outcome})
    ready.instance.report_run_failed(run, "killed")
    see_runs(ready)


def landings(result: Any) -> list[dg.RunRequest]:
    return [r for r in requests(result) if r.job_name == "penstock_land_shop_orders"]


def waiting_window(ready: Any) -> Window:
    """A frozen window with records whose landing was requested and not run."""
    ready.produce(10)
    ready.pass_time(31)
    ready.tick("window_sensor")
    return ready.newest()


@pytest.mark.usefixtures("one_time")
def test_a_landing_that_fails_inside_is_tried_a_few_times_and_then_named(ready: Any) -> None:
    window = waiting_window(ready)
    keys = []
    for _look in range(INSIDE_MAX + 3):
        for request in landings(ready.tick("window_sensor")):
            keys.append(request.run_key)
            failing_run(ready, request, outcome_text(Cause.INSIDE, "it is bad"))
        ready.pass_time(301)
    assert len(set(keys)) == len(keys) == INSIDE_MAX
    assert window.sha256 in keys
    ready.tick("window_sensor")
    ready.run("prove_empty_windows")
    said = str(ready.tick("window_sensor").skip_message)
    assert f"{window.window}: abandoned after {INSIDE_MAX} attempts: it is bad" in said
    found = landing_attempts(ready.instance, window.topic_id, window.window)
    assert decide(found, ready.penstock.clock.now()).action is Action.ABANDONED

    # The command still works, and what is landed waits no longer.
    assert ready.land(window).success
    ready.run("prove_empty_windows")
    assert "abandoned" not in str(ready.tick("window_sensor").skip_message)


@pytest.mark.usefixtures("one_time")
@pytest.mark.parametrize("outcome", ["", outcome_text(Cause.OUTSIDE, "Spark is away")])
def test_an_hour_without_spark_uses_up_no_attempts(ready: Any, outcome: str) -> None:
    window = waiting_window(ready)
    keys = []
    for _look in range(4 * INSIDE_MAX):
        for request in landings(ready.tick("window_sensor")):
            keys.append(request.run_key)
            failing_run(ready, request, outcome)
        ready.pass_time(301)
    assert len(set(keys)) == len(keys) == 4 * INSIDE_MAX
    last = ready.instance.get_run_records(limit=1)[0].dagster_run
    assert last.tags["penstock/landing"] == f"{window.topic_id}/{window.window}"


@pytest.mark.usefixtures("one_time")
def test_pauses_grow_while_spark_is_away(ready: Any) -> None:
    waiting_window(ready)
    tried = []
    for second in range(0, 400, 5):
        for request in landings(ready.tick("window_sensor")):
            tried.append(second)
            failing_run(ready, request)
        ready.pass_time(5)
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert gaps[:5] == [5, 10, 20, 40, 80]
    assert "killed" not in str(ready.tick("window_sensor").skip_message)


@pytest.mark.usefixtures("one_time")
def test_while_spark_is_away_one_window_tries_for_all(ready: Any) -> None:
    first = waiting_window(ready)
    for request in landings(ready.tick("window_sensor")):
        failing_run(ready, request)
    for _ in range(3):
        ready.produce(10)
        ready.pass_time(60)
        ready.tick("window_sensor")
    chosen = []
    for _look in range(8):
        found = landings(ready.tick("window_sensor"))
        assert len(found) <= 1
        for request in found:
            chosen.append(request.partition_key)
            failing_run(ready, request)
        ready.pass_time(301)
    assert chosen[:2] == [first.window] * 2
    assert len(set(chosen)) > 1, "one window's own trouble does not hold up the others forever"
    # Spark is back: the first that is landed frees the others.
    (request,) = landings(ready.tick("window_sensor"))
    (window,) = [
        w for w in ready.penstock.windows.all(ready.ref) if w.window == request.partition_key
    ]
    assert ready.land(window).success
    assert len(landings(ready.tick("window_sensor"))) == 3


@pytest.mark.usefixtures("one_time")
def test_a_landing_that_takes_hours_is_not_followed_by_another(ready: Any) -> None:
    window = waiting_window(ready)
    run = ready.create_run(
        "land_shop_orders",
        tags={LANDING_TAG: f"{window.topic_id}/{window.window}"},
        status=dg.DagsterRunStatus.STARTED,
    )
    asked = ready.penstock.clock.now()

    def renew() -> None:
        lease = Lease(run.run_id, asked, ready.penstock.clock.now())
        ready.instance.add_run_tags(run.run_id, {LEASE_TAG: lease.to_text()})

    for _minute in range(0, 180, 20):
        ready.pass_time(20 * 60)
        renew()
        assert not landings(ready.tick("window_sensor"))
    # The machine was switched off: the lease is not renewed, and no event has ended the run.
    ready.pass_time(LAPSE.total_seconds())
    (request,) = landings(ready.tick("window_sensor"))
    assert request.run_key == f"{window.sha256}/1"


def test_a_run_that_waits_in_the_queue_is_under_way_however_long() -> None:
    run = SimpleNamespace(
        run_id="r",
        status=dg.DagsterRunStatus.QUEUED,
        is_finished=False,
        is_success=False,
        tags=dict[str, str](),
    )
    long_ago = datetime(2026, 1, 1, tzinfo=UTC)
    record: Any = SimpleNamespace(
        dagster_run=run, start_time=None, end_time=None, update_timestamp=long_ago
    )
    assert ownership.attempt_of(record).under_way(datetime(2026, 11, 20, tzinfo=UTC))


@pytest.mark.usefixtures("one_time")
def test_a_failed_proof_of_empty_windows_is_retried_with_pauses_and_new_keys(ready: Any) -> None:
    ready.pass_time(60)
    tried, keys = [], set()
    for second in range(0, 50, 5):
        for request in requests(ready.tick("window_sensor")):
            tried.append(second)
            keys.add(request.run_key)
            failing_run(ready, request)
        ready.pass_time(5)
    assert tried == [0, 5, 15, 35]
    assert len(keys) == len(tried)


def test_creating_a_topic_is_tried_again_when_its_run_failed(
    stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage()
    one_clock(made, monkeypatch)
    tried, keys = [], set()
    for second in range(0, 100, 5):
        for request in requests(made.tick("topic_sensor")):
            tried.append(second)
            keys.add(request.run_key)
            run = made.create_run("topics", tags=request.tags)
            assert not requests(made.tick("topic_sensor")), "one is under way"
            made.instance.report_run_failed(run, "killed")
            see_runs(made)
        made.pass_time(5)
    assert tried == [0, 5, 15, 35, 75]
    assert len(keys) == len(tried)


def test_only_the_owner_lands(ready: Any) -> None:
    """A second run of the same window waits for the first one, and names it when it gives up."""
    window = ready.frozen(10)
    subject = f"{window.topic_id}/{window.window}"
    now = ready.penstock.clock.now() + timedelta(hours=1)  # alive for as long as the other waits
    owner = ready.create_run(
        "land_shop_orders",
        tags={LANDING_TAG: subject, LEASE_TAG: Lease("x", now - timedelta(hours=2), now).to_text()},
        status=dg.DagsterRunStatus.STARTED,
    )
    result = ready.land(window)
    assert not result.success
    assert not ready.penstock.lake.rows, "it touched nothing"
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    assert f"run {owner.run_id} lands {subject}" in str(failure.step_failure_data.error)
    ended = ready.instance.get_run_by_id(result.run_id)
    assert parse_outcome(ended.tags[OUTCOME_TAG])[0] is Cause.OUTSIDE

    ready.instance.report_run_failed(owner, "killed")
    assert ready.land(window).success, "a run that has ended owns nothing"


def test_a_failed_proof_hinders_no_other_window(ready: Any) -> None:
    window = ready.frozen(20)
    ready.refuse_rows = lambda _w: {0: {3}}
    assert not ready.land(window).success
    attempts = landing_attempts(ready.instance, window.topic_id, window.window)
    assert [a.cause for a in attempts] == [Cause.INSIDE]
    assert hindered(attempts, datetime.now(UTC)) is None


def test_a_landing_reports_why_it_failed(ready: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    window = ready.frozen(20)
    causes = []
    for error in (SparkUnavailableError("it does not answer"), KeyError("defect")):

        def fail(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(landing, "land_window", fail)
        assert not ready.land(window).success
        (newest, *_) = landing_attempts(ready.instance, window.topic_id, window.window)
        causes.append((newest.cause, newest.error))
    assert causes == [(Cause.OUTSIDE, "it does not answer"), (Cause.INSIDE, "'defect'")]


def test_a_lease_is_renewed_until_the_block_ends(ready: Any, tmp_path: Path) -> None:
    del ready
    clock = ManualClock()
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        run = instance.create_run_for_job(dg.GraphDefinition("empty").to_job())

        class Ended:
            """Three waits pass, each of a minute; then the block has ended."""

            left = 3

            def wait(self, _seconds: float) -> bool:
                clock.advance(60)
                self.left -= 1
                return self.left < 0

        lease = Lease(run.run_id, clock.now(), clock.now())
        ownership._renew(instance, clock, lease, Ended())  # type: ignore[arg-type]
        found = ownership.lease_of(instance.get_run_by_id(run.run_id))
        assert found == Lease(run.run_id, lease.asked_at, lease.asked_at + timedelta(minutes=3))

        # Suspended for longer than the lease lasts: it is not taken up again.
        Ended.wait = lambda self, _s: clock.advance(LAPSE.total_seconds()) is not None  # type: ignore[assignment,method-assign]
        ownership._renew(instance, clock, found, Ended())  # type: ignore[arg-type]
        assert ownership.lease_of(instance.get_run_by_id(run.run_id)) == found


def test_a_failed_proof_is_a_result_and_the_sensor_does_not_land_it_again(ready: Any) -> None:
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
    assert made.penstock.kafka.topics() == ["shop.orders"]
    assert made.penstock.kafka.configs["shop.orders"]["retention.ms"] == "-1"
    assert not requests(made.tick("topic_sensor"))


def test_materialising_a_topic_alters_what_differs(stage: Callable[..., Any]) -> None:
    made = stage(spec={"partitions": 4, "configs": {"max.message.bytes": 2000000}})
    made.penstock.kafka.create("shop.orders", 2, configs={"retention.ms": "1000"})
    result = made.run("topics")
    (materialised,) = result.asset_materializations_for_node("local__topic__shop_orders")
    said = str(materialised.metadata["changes"].value)
    assert "partitions 2 → 4" in said
    assert "retention.ms 1000 → -1" in said
    assert "max.message.bytes unset → 2000000" in said
    assert len(made.penstock.kafka.memory.topics["shop.orders"].partitions) == 4
    assert "none; it agreed" in str(
        made.run("topics").asset_materializations_for_node("local__topic__shop_orders")[0]
        .metadata["changes"].value
    )  # fmt: skip


def test_a_sensor_without_its_services_says_so_and_continues(stage: Callable[..., Any]) -> None:
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
    assert not requests(ready.tick("evidence_sensor")), "its evidence was just checked"
    ready.pass_time(20)
    assert not requests(ready.tick("evidence_sensor")), "nothing came for it"
    ready.claim(sent)
    result = ready.tick("evidence_sensor")
    (request,) = requests(result)
    assert request.asset_selection == []
    assert request.asset_check_keys == [dg.AssetCheckKey(ready.plan.books_key, EVIDENCE)]
    assert request.partition_key == window.window

    job = ready.defs.resolve_job_def(request.job_name)
    subset = job.get_subset(
        asset_selection=set(), asset_check_selection=set(request.asset_check_keys)
    )
    subset.execute_in_process(instance=ready.instance, partition_key=window.window)
    book = ready.penstock.books.newest_book(window.ref, window.sequence)
    assert book.state is WindowState.BALANCED
    ready.pass_time(60)
    after = ready.tick("evidence_sensor", result.cursor)
    assert not requests(after)
    watch = json.loads(after.cursor)["topics"][ready.ref.topic_id]
    assert watch == {"waiting": [], "unread": 1, "looked": 0}, "what is decided is not read again"


def test_evidence_is_asked_for_again_when_the_run_died_before_it_judged(ready: Any) -> None:
    """Its key is another than the dead run's: Dagster would pass over the same one forever."""
    sent = ready.produce(30)
    ready.pass_time(60)
    ready.tick("window_sensor")
    ready.land(ready.newest())
    ready.claim(sent)
    ready.pass_time(20)
    keys = set()
    for _attempt in range(3):
        (request,) = requests(ready.tick("evidence_sensor"))
        assert request.run_key not in keys
        keys.add(request.run_key)
        run = ready.create_run(request.job_name, tags=request.tags)
        assert not requests(ready.tick("evidence_sensor")), "a run is under way"
        ready.instance.report_run_failed(run, "killed")
        # Dagster's own clock says when a run began: two minutes later by that.
        ready.pass_time((datetime.now(UTC) - ready.penstock.clock.now()).total_seconds() + 120)


def test_a_window_older_than_the_definitions_stops_no_other(ready: Any) -> None:
    """The code location was loaded before the archive had the chain's start."""
    ready.produce(5)
    ready.pass_time(31)
    sensors = ready.defs.resolve_sensor_def("penstock_window_sensor")
    assert sensors.default_status is dg.DefaultSensorStatus.RUNNING
    object.__setattr__(ready.plan, "start", ready.plan.start.replace(year=2027))
    result = ready.tick("window_sensor")
    assert not requests(result)
    assert "older than the loaded definitions" in str(result.skip_message)


def test_everything_runs_by_default(ready: Any) -> None:
    for name in ("window_sensor", "evidence_sensor", "alert_sensor", "topic_sensor"):
        sensor = ready.defs.resolve_sensor_def(f"penstock_{name}")
        assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    for name in ("reverify", "retention", "observe"):
        schedule = ready.defs.resolve_schedule_def(f"penstock_{name}")
        assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING


def test_a_schedule_waits_for_its_own_run_to_end(ready: Any, tmp_path: Path) -> None:
    schedule = ready.defs.resolve_schedule_def("penstock_reverify")
    resources = {"penstock": ready.penstock}
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:

        def look() -> Any:
            with dg.build_schedule_context(instance=instance, resources=resources) as context:
                return schedule.evaluate_tick(context)

        (request,) = look().run_requests
        assert int(request.tags["dagster/priority"]) > 10, "landings must not starve it"
        job = ready.job("reverify")
        instance.create_run_for_job(
            job, status=dg.DagsterRunStatus.STARTED, tags=dict(job.run_tags)
        )
        waiting = look()
        assert not waiting.run_requests
        assert "is still started" in waiting.skip_message
