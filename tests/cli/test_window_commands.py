"""The user's commands on windows, books, topics and alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import graphql
import pytest
from click.testing import CliRunner, Result
from dagster_graphql.schema import create_schema

from penstock_platform.alerts.health import HealthReader
from penstock_platform.alerts.model.chain_health import Kind, PlatformFacts, judge_chain
from penstock_platform.cli import alert as alert_command
from penstock_platform.cli import audit as audit_command
from penstock_platform.cli import balance, dagster_api
from penstock_platform.cli import retention as retention_command
from penstock_platform.cli import table as table_command
from penstock_platform.cli import topic as topic_command
from penstock_platform.cli import window as window_command
from penstock_platform.cli.dagster_api import CheckOutcome, DagsterApiError, RunOutcome
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.landing import assets as landing
from penstock_platform.topics.model.declaration import bronze_table

Run = Callable[..., Result]


@pytest.fixture
def run(ready: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the stage: ``run(window_command, "list", "shop.orders")``."""
    for module in (window_command, audit_command, topic_command, table_command):
        monkeypatch.setattr(module, "Connections", lambda _settings: ready.penstock)
        monkeypatch.setattr(module, "settings", lambda: ready.penstock.settings)
    monkeypatch.setattr(alert_command, "settings", lambda: ready.penstock.settings)

    def invoke(module: Any, *arguments: str) -> Result:
        return CliRunner().invoke(module.command, list(arguments), catch_exceptions=False)

    return invoke


class FakeApi:
    """Dagster, as far as `window rerun` uses it: landing happens in this process."""

    stage: Any
    launched: list[tuple[dict[str, str], dict[str, str]]]
    assets: Any = None

    def __init__(self, _settings: object, _clock: object) -> None:
        pass

    def launch(self, job: dict[str, str], tags: dict[str, str], assets: Any = None) -> str:
        type(self).assets = assets
        type(self).launched.append((job, tags))
        return f"run-{len(type(self).launched)}"

    def run_url(self, run_id: str) -> str:
        return f"http://here/runs/{run_id}"

    def follow(self, run_id: str, _timeout: float, progress: Callable[[str], None]) -> RunOutcome:
        _job, tags = type(self).launched[int(run_id.rpartition("-")[2]) - 1]
        window = self.stage.penstock.windows.find(self.stage.ref, tags["dagster/partition"])[-1]
        progress("started")
        done = self.stage.land(window)
        errors = [e.step_failure_data.error for e in done.all_events if e.is_step_failure]
        failures = [e.cause or e for e in errors if e.cls_name != dagster_api.CHECK_FAILED]
        checks = tuple(
            CheckOutcome("/".join(e.asset_key.path), e.check_name, e.passed, e.severity.value, "")
            for e in done.get_asset_check_evaluations()
        )
        status = "SUCCESS" if done.success else "FAILURE"
        said = tuple(e.message.strip() for e in failures)
        return RunOutcome(run_id, status, self.run_url(run_id), said, checks)


@pytest.fixture
def api(ready: Any, monkeypatch: pytest.MonkeyPatch) -> type[FakeApi]:
    FakeApi.stage, FakeApi.launched = ready, []
    monkeypatch.setattr(window_command, "DagsterApi", FakeApi)
    return FakeApi


def test_the_windows_of_a_topic(ready: Any, run: Run) -> None:
    landed = ready.landed(1234)
    waiting = ready.frozen(5)
    shown = run(window_command, "list", "shop.orders").output
    assert landed.window in shown
    assert "1,234" in shown
    assert "BALANCED" in shown
    rows = json.loads(run(window_command, "list", "shop.orders", "-o", "json").output)
    assert [(r["window"], r["state"], r["landed"]) for r in rows] == [
        (landed.window, "BALANCED", 1234),
        (waiting.window, "FROZEN", None),
    ]


def test_one_window_with_all_that_was_found(ready: Any, run: Run) -> None:
    window = ready.landed(20)
    ready.penstock.lake.put(bronze_table("shop.orders"), window.window_id, {0: range(5, 20)})
    ready.run("reverify")
    shown = run(window_command, "show", "shop.orders", window.window).output
    assert "5 missing 0:0-4" in shown
    assert window.sha256 in shown
    document = json.loads(
        run(window_command, "show", "shop.orders", window.window, "-o", "json").output
    )
    assert document["ranges"][0] == {"partition": 0, "start": 0, "end": 20}
    assert len(document["books"]) == 4
    assert document["state"] == "MISSING"


def test_a_window_that_is_not_there_names_those_that_are(ready: Any, run: Run) -> None:
    window = ready.landed(20)
    result = run(window_command, "show", "shop.orders", "2026-11-20-07:00")
    assert result.exit_code == 1
    assert f"its newest are: {window.window}" in result.output


def test_the_audit_ends_with_3_when_the_books_do_not_balance(ready: Any, run: Run) -> None:
    window = ready.landed(20)
    assert run(audit_command, "shop.orders").exit_code == 0
    ready.penstock.lake.put(bronze_table("shop.orders"), window.window_id, {0: range(5, 20)})
    ready.run("reverify")
    result = run(audit_command, "shop.orders", "-o", "json")
    assert result.exit_code == 3
    document = json.loads(result.output)
    assert (document["balanced"], document["windows"][0]["state"]) == (False, "MISSING")
    one = run(audit_command, "shop.orders", "--window", window.window)
    assert (one.exit_code, "5 missing" in one.output) == (3, True)


def test_the_audit_ends_with_3_when_the_chain_stops(ready: Any, run: Run) -> None:
    """Seen before: nothing was frozen for minutes, and the audit said balanced."""
    ready.landed(20)
    ready.produce(7)
    ready.pass_time(185)
    result = run(audit_command, "shop.orders")
    assert result.exit_code == 3
    assert "balanced for the windows so far, but the chain stops" in result.output
    assert "no window is frozen since" in result.output
    result = run(audit_command, "shop.orders", "-o", "json")
    assert result.exit_code == 3
    document = json.loads(result.output)
    assert not document["balanced"]
    assert [(p["kind"], p["topic"]) for p in document["problems"]] == [
        ("not_frozen", "shop.orders")
    ]


def test_the_audit_ends_with_3_for_a_topic_that_is_gone(ready: Any, run: Run) -> None:
    ready.landed(20)
    del ready.penstock.kafka.memory.topics[ready.topic]
    result = run(audit_command, "shop.orders")
    assert result.exit_code == 3
    assert "was deleted from the cluster" in result.output
    with pytest.raises(UnknownTopicError):
        run(audit_command, "never.was")


def test_the_audit_ends_with_3_when_the_store_or_dagster_is_away(
    ready: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.landed(20)
    assert run(audit_command, "shop.orders").exit_code == 0
    silent = PlatformFacts(dagster="connection refused")
    monkeypatch.setattr(audit_command, "managed", lambda _settings: True)
    monkeypatch.setattr(audit_command, "dagster_facts", lambda _settings: silent)
    result = run(audit_command, "shop.orders")
    assert result.exit_code == 3
    assert "Dagster does not answer" in result.output
    broken = PlatformFacts(dagster="", definitions="orders/defs.yaml:5: spec.partitons")
    monkeypatch.setattr(audit_command, "dagster_facts", lambda _settings: broken)
    result = run(audit_command, "shop.orders")
    assert result.exit_code == 3
    assert "defs.yaml:5" in result.output


@pytest.mark.parametrize(("accepts", "code"), [(True, 0), (False, 3)])
def test_the_declaration_says_whether_evidence_may_be_missing(
    stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, accepts: bool, code: int
) -> None:
    made = stage(audit={"grace": "1s", "accept_unaudited": accepts})
    made.freeze_without_evidence()
    made.land(made.newest())
    monkeypatch.setattr(audit_command, "Connections", lambda _settings: made.penstock)
    monkeypatch.setattr(audit_command, "settings", lambda: made.penstock.settings)
    declared = {made.topic: made.plan.spec}
    for module in (audit_command, balance):
        monkeypatch.setattr(module, "declarations", lambda _penstock: declared)
    result = CliRunner().invoke(audit_command.command, ["shop.orders", "-o", "json"])
    assert json.loads(result.output)["windows"][0]["state"] == "UNAUDITED"
    assert result.exit_code == code, result.output


def test_a_rerun_lands_again_and_says_how_it_ended(
    ready: Any, run: Run, api: type[FakeApi]
) -> None:
    window = ready.landed(20)
    ready.penstock.lake.put(bronze_table("shop.orders"), window.window_id, {0: range(5, 20)})
    ready.run("reverify")
    result = run(window_command, "rerun", "shop.orders", window.window)
    assert result.exit_code == 0
    assert f"shop.orders {window.window}: BALANCED" in result.output
    ((job, tags),) = api.launched
    assert job == {"penstock/job": "land", "penstock/topic": "shop.orders"}
    assert tags["dagster/partition"] == window.window
    assert tags["penstock/window_id"] == window.window_id


def test_a_rerun_whose_silver_fails_ends_with_1_and_says_why(
    ready: Any, run: Run, api: type[FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    window = ready.landed(20)
    assert ready.penstock.books.newest_book(ready.ref, 0).state == "BALANCED"

    def fails(*_arguments: Any) -> Any:
        raise RuntimeError("CANNOT_SAFELY_CAST in silver")

    monkeypatch.setattr(landing, "parse_window", fails)
    result = run(window_command, "rerun", "shop.orders", window.window, "-o", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["failed"] == 1
    assert "CANNOT_SAFELY_CAST in silver" in document["windows"][0]["problem"]
    assert document["windows"][0]["state"] != "BALANCED"
    shown = run(window_command, "rerun", "shop.orders", window.window)
    assert shown.exit_code == 1
    assert f"shop.orders {window.window}: PENDING (the run failed: " in shown.output
    assert "parsed_plus_quarantined_equals_landed was judged on an older landing" in shown.output
    assert len(api.launched) == 2


def test_a_range_is_landed_again_window_by_window_with_a_summary(
    ready: Any, run: Run, api: type[FakeApi]
) -> None:
    windows = [ready.landed(20) for _ in range(4)]
    result = run(
        window_command,
        *("rerun", "shop.orders", "--from", windows[1].window, "--to", windows[2].window),
        *("--at-once", "1"),
    )
    assert result.exit_code == 0
    wanted = [w.window for w in windows[1:3]]
    assert [tags["dagster/partition"] for _, tags in api.launched] == wanted
    assert "2 windows landed again; 0 runs failed, 0 windows do not balance" in result.output
    ready.refuse_rows = lambda w: {0: {w.ranges[0].start}} if w == windows[3] else {}
    result = run(
        window_command, "rerun", "shop.orders", "--from", windows[2].window, "--at-once", "1"
    )
    assert result.exit_code == 3
    assert "0 runs failed, 1 windows do not balance" in result.output


def test_only_windows_with_quarantined_records_are_landed_again(
    ready: Any, run: Run, api: type[FakeApi]
) -> None:
    bad = ready.landed(20)
    ready.pass_time(60)
    ready.tick("window_sensor")
    empty = ready.newest()
    assert ready.land(empty).success and empty.record_count == 0
    result = run(window_command, "rerun", "shop.orders", "--quarantined", "--at-once", "1")
    assert result.exit_code == 0
    assert [tags["dagster/partition"] for _, tags in api.launched] == [bad.window]
    assert empty.window not in result.output


def test_a_run_that_dagster_does_not_take_stops_no_other(
    ready: Any, run: Run, api: type[FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = [ready.landed(20) for _ in range(2)]
    launch = api.launch

    def picky(self: Any, job: str, tags: dict[str, str], _assets: Any) -> str:
        if tags["dagster/partition"] == windows[0].window:
            raise DagsterApiError("Dagster did not launch it")
        return launch(self, job, tags)

    monkeypatch.setattr(api, "launch", picky)
    first = windows[0].window
    result = run(window_command, "rerun", "shop.orders", "--from", first, "--at-once", "1")
    assert result.exit_code == 1
    assert "Dagster did not launch it" in result.output
    assert f"shop.orders {windows[1].window}: BALANCED" in result.output


def test_a_table_is_remade_for_windows_that_its_version_lacks_and_continues_where_it_ended(
    ready: Any, run: Run, api: type[FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = [ready.landed(20) for _ in range(2)]
    ready.frozen(5)  # not landed: its own run will parse it
    spec = ready.plan.spec
    second = spec.model_copy(update={"contract": spec.contract.model_copy(update={"version": 2})})
    declared = {"shop.orders": second}
    monkeypatch.setattr(table_command, "declarations", lambda _penstock: declared)
    monkeypatch.setattr(table_command, "DagsterApi", api)

    result = run(table_command, "remake", "shop.orders", "--at-once", "1")

    assert [tags["dagster/partition"] for _, tags in api.launched] == [w.window for w in windows]
    assert api.assets == [["lake", "silver", "shop_orders_v2"]]
    assert "lake.silver.shop_orders_v2: 2 windows parsed; 0 runs failed" in result.output
    declared["shop.orders"] = spec
    api.launched.clear()
    assert run(table_command, "remake", "shop.orders").exit_code == 0
    assert api.launched == [], "the first version has them"
    run(table_command, "remake", "shop.orders", "--all", "--at-once", "1")
    assert len(api.launched) == 2
    assert api.assets == [["lake", "silver", "shop_orders"]]


@pytest.mark.parametrize("more", [(), ("2026-11-20-00:00", "--quarantined")])
def test_a_rerun_takes_one_window_or_a_range(ready: Any, run: Run, more: tuple[str, ...]) -> None:
    assert ready
    result = run(window_command, "rerun", "shop.orders", *more)
    assert (result.exit_code, "give one WINDOW, or a range" in result.output) == (2, True)


def test_a_rerun_that_does_not_repair_ends_with_3(ready: Any, run: Run, api: type[FakeApi]) -> None:
    assert api
    window = ready.landed(20)
    ready.refuse_rows = lambda _w: {0: {3}}
    result = run(window_command, "rerun", "shop.orders", window.window)
    assert result.exit_code == 3
    assert f"shop.orders {window.window}: MISSING" in result.output


def test_a_person_accepts_with_a_reason(ready: Any, run: Run) -> None:
    ready.produce(5)
    ready.pass_time(60)
    ready.tick("window_sensor")
    ready.pass_time(90)
    window = ready.newest()
    ready.land(window)
    assert run(window_command, "accept", "shop.orders", window.window).exit_code == 2
    result = run(
        window_command, "accept", "shop.orders", window.window, "--reason", "a test", "--by", "ann"
    )
    assert result.exit_code == 0
    assert "ACCEPTED; 5 records in 1 findings accepted by ann" in result.output
    assert run(audit_command, "shop.orders").exit_code == 0


def test_there_is_nothing_to_accept_where_all_is_well(ready: Any, run: Run) -> None:
    window = ready.landed(20)
    result = run(window_command, "accept", "shop.orders", window.window, "--reason", "why not")
    assert result.exit_code == 1
    assert "no finding to accept" in result.output


def test_alerts_and_which_of_them_are_open(ready: Any, run: Run) -> None:
    window = ready.landed(20)
    ready.tick("alert_sensor")
    ready.penstock.lake.put(bronze_table("shop.orders"), window.window_id, {0: range(5, 20)})
    ready.run("reverify")
    first = ready.tick("alert_sensor")
    shown = run(alert_command, "list", "--open").output
    assert "5 records missing in the lake" in shown
    assert f"Run: penstock window rerun shop.orders {window.window}" in shown
    ready.land(window)
    ready.tick("alert_sensor", first.cursor)
    assert "no open incident" in run(alert_command, "list", "--open").output
    assert len(json.loads(run(alert_command, "list", "-o", "json").output)) == 2


def test_topics_of_the_cluster_and_what_is_declared(
    ready: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = {ready.topic: ready.plan.spec}
    monkeypatch.setattr(topic_command, "declarations", lambda _penstock: declared)
    ready.landed(20)
    ready.penstock.kafka.create("stray", 1)
    rows = json.loads(run(topic_command, "list", "-o", "json").output)
    assert [(r["topic"], r["declared"], r["records"], r["windows"]) for r in rows] == [
        ("shop.orders", True, 20, 1),
        ("stray", False, 0, 0),
    ]
    ready.penstock.kafka.configs[ready.topic]["retention.ms"] = "60000"
    ready.penstock.kafka.groups["penstock.bronze.shop_orders"] = {0: 15}
    document = json.loads(run(topic_command, "describe", "shop.orders", "-o", "json").output)
    assert document["drift"] == ["retention.ms is 60000, declared -1; materialise the topic"]
    assert document["offsets"][0] == {
        "partition": 0,
        "log_start": 0,
        "last_stable": 20,
        "end": 20,
        "frozen": 20,
        "landed": 15,
        "lag": 5,
    }
    assert "drift: retention.ms is 60000" in run(topic_command, "describe", "shop.orders").output


def test_a_topic_without_windows_says_so(ready: Any, run: Run) -> None:
    shown = run(topic_command, "describe", "shop.orders").output
    assert "no window is frozen yet" in shown
    assert "None" not in shown


def test_the_list_of_windows_fits_a_terminal_of_100_columns(ready: Any, run: Run) -> None:
    ready.landed(20)
    run(audit_command, "shop.orders")
    shown = run(window_command, "list", "shop.orders").output
    assert re.search(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d *$", shown, re.MULTILINE), shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 100


def test_topics_are_listed_while_dagster_is_away(
    ready: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_command, "declarations", lambda _penstock: None)
    ready.landed(20)
    result = run(topic_command, "list")
    assert "shop.orders" in result.output
    assert "Dagster does not answer" in result.output


def test_the_queries_fit_dagsters_schema() -> None:
    schema = create_schema().graphql_schema
    texts = {
        name: text
        for module in (dagster_api, topic_command, retention_command)
        for name, text in vars(module).items()
        if isinstance(text, str) and text.strip().startswith(("query", "mutation"))
    }
    assert len(texts) == 6
    for name, text in texts.items():
        assert not graphql.validate(schema, graphql.parse(text)), name


def test_a_dagster_that_is_away_is_an_error_with_its_fix(ready: Any) -> None:
    settings = ready.penstock.settings.model_copy(
        update={"dagster": ready.penstock.settings.dagster.model_copy(update={"port": 9})}
    )
    api = dagster_api.DagsterApi(settings, ready.penstock.clock)
    with pytest.raises(DagsterApiError, match="penstock up"):
        api.launch({"penstock/job": "land"}, {})


def test_a_recreated_topic_is_begun_with_what_it_lost_and_its_settings(
    ready: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.landed(100)
    unlanded = ready.frozen(30)
    ready.claim(ready.produce(5))  # acknowledged, and in no window yet
    old = ready.ref
    spec = ready.plan.spec
    monkeypatch.setattr(window_command, "declarations", lambda _penstock: {spec.name: spec})
    ready.penstock.kafka.memory.add_topic(spec.name, 2)
    ready.penstock.kafka.configs[spec.name] = {"retention.ms": "1000"}
    ready.pass_time(3600)
    health = judge_chain(
        HealthReader(ready.penstock).chain(spec.name, spec), ready.penstock.clock.now()
    )
    [incident] = [problem for problem in health.problems if problem.topic == spec.name]
    assert incident.kind is Kind.TOPIC_RECREATED
    assert incident.command == "penstock window begin shop.orders"
    assert "35 records are lost with it: 30 frozen and not landed" in incident.summary
    assert "5 acknowledged and in no window (partition 0 offsets 130-134)" in incident.summary
    assert "100 records until window" in incident.summary
    found = json.loads(run(window_command, "begin", "shop.orders", "-o", "json").output)
    assert found["begun"]
    assert found["previous_topic_id"] == old.topic_id
    assert found["lost"] == {
        "records": 35,
        "unlanded": [[0, 100, 130]],
        "unfrozen": [[0, 130, 135]],
        "safe_in_bronze": 100,
        "last_window": unlanded.window,
    }
    assert ready.penstock.kafka.configs[spec.name]["retention.ms"] == "-1"
    ready.produce(7)
    ready.pass_time(60)
    ready.tick("window_sensor")
    assert ready.newest().sequence == 0, "one window, not one a minute since the old topic began"
    shown = json.loads(run(window_command, "list", "shop.orders", "-o", "json").output)
    assert [row["topic_id"] for row in shown] == [ready.ref.topic_id]
    before = run(window_command, "list", "shop.orders", "--incarnation", old.topic_id).output
    assert unlanded.window in before
    every = run(window_command, "list", "shop.orders", "--incarnation", "all", "-o", "json")
    assert [row["topic_id"] for row in json.loads(every.output)] == [
        *[old.topic_id] * 2,
        ready.ref.topic_id,
    ]
    one = run(window_command, "show", "shop.orders", "0", "--incarnation", old.topic_id)
    assert "BALANCED" in one.output
    wrong = run(window_command, "list", "shop.orders", "--incarnation", "unknown")
    assert wrong.exit_code == 1
