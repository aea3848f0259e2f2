"""The user's commands on windows, books, topics and alerts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import graphql
import pytest
from click.testing import CliRunner, Result
from dagster_graphql.schema import create_schema

from penstock_platform.cli import alert as alert_command
from penstock_platform.cli import audit as audit_command
from penstock_platform.cli import topic as topic_command
from penstock_platform.cli import window as window_command
from penstock_platform.domain.topics import bronze_table
from penstock_platform.resources import dagster_api
from penstock_platform.resources.dagster_api import CheckOutcome, DagsterApiError, RunOutcome

Run = Callable[..., Result]


@pytest.fixture
def run(ready: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the stage: ``run(window_command, "list", "shop.orders")``."""
    for module in (window_command, audit_command, topic_command):
        monkeypatch.setattr(module, "Connections", lambda _settings: ready.twin)
        monkeypatch.setattr(module, "settings", lambda: ready.twin.settings)
    monkeypatch.setattr(alert_command, "settings", lambda: ready.twin.settings)

    def invoke(module: Any, *arguments: str) -> Result:
        return CliRunner().invoke(module.command, list(arguments), catch_exceptions=False)

    return invoke


class FakeApi:
    """Dagster, as far as `window rerun` uses it: landing happens in this process."""

    stage: Any
    launched: list[tuple[str, dict[str, str]]]

    def __init__(self, _settings: object, _clock: object) -> None:
        pass

    def launch(self, job: str, tags: dict[str, str]) -> str:
        type(self).launched.append((job, tags))
        return "run-1"

    def run_url(self, run_id: str) -> str:
        return f"http://here/runs/{run_id}"

    def follow(self, run_id: str, _timeout: float, progress: Callable[[str], None]) -> RunOutcome:
        _job, tags = type(self).launched[-1]
        [window] = self.stage.twin.windows.find(self.stage.ref, tags["dagster/partition"])
        progress("started")
        done = self.stage.land(window)
        check = CheckOutcome("lake/bronze/shop_orders", "stored_equals_landed", True, "ERROR", "ok")
        status = "SUCCESS" if done.success else "FAILURE"
        return RunOutcome(run_id, status, self.run_url(run_id), (), (check,))


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
    ready.twin.lake.put(bronze_table("shop.orders"), window.window_id, {0: range(5, 20)})
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
    ready.twin.lake.put(bronze_table("shop.orders"), window.window_id, {0: range(5, 20)})
    ready.run("reverify")
    result = run(audit_command, "shop.orders", "-o", "json")
    assert result.exit_code == 3
    document = json.loads(result.output)
    assert (document["balanced"], document["windows"][0]["state"]) == (False, "MISSING")
    one = run(audit_command, "shop.orders", "--window", window.window)
    assert (one.exit_code, "5 missing" in one.output) == (3, True)


@pytest.mark.parametrize(("accepts", "code"), [(True, 0), (False, 3)])
def test_the_declaration_says_whether_evidence_may_be_missing(
    stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, accepts: bool, code: int
) -> None:
    made = stage(audit={"grace": "1s", "accept_unaudited": accepts})
    made.create_topics()
    made.pass_time(30)
    made.tick("window_sensor")
    made.produce(5)
    made.pass_time(60)
    made.tick("window_sensor")
    made.pass_time(10)
    made.land(made.newest())
    monkeypatch.setattr(audit_command, "Connections", lambda _settings: made.twin)
    monkeypatch.setattr(audit_command, "settings", lambda: made.twin.settings)
    declared = {made.topic: made.plan.spec}
    monkeypatch.setattr(audit_command, "declarations", lambda _penstock: declared)
    result = CliRunner().invoke(audit_command.command, ["shop.orders", "-o", "json"])
    assert json.loads(result.output)["windows"][0]["state"] == "UNAUDITED"
    assert result.exit_code == code


def test_a_rerun_lands_again_and_says_how_it_ended(
    ready: Any, run: Run, api: type[FakeApi]
) -> None:
    window = ready.landed(20)
    ready.twin.lake.put(bronze_table("shop.orders"), window.window_id, {0: range(5, 20)})
    ready.run("reverify")
    result = run(window_command, "rerun", "shop.orders", window.window)
    assert result.exit_code == 0
    assert f"shop.orders {window.window}: BALANCED" in result.output
    ((job, tags),) = api.launched
    assert job == "land_shop_orders"
    assert tags["dagster/partition"] == window.window
    assert tags["penstock/window_id"] == window.window_id


def test_a_rerun_that_does_not_mend_ends_with_3(ready: Any, run: Run, api: type[FakeApi]) -> None:
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
    ready.twin.lake.put(bronze_table("shop.orders"), window.window_id, {0: range(5, 20)})
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
    ready.twin.kafka.create("stray", 1)
    rows = json.loads(run(topic_command, "list", "-o", "json").output)
    assert [(r["topic"], r["declared"], r["records"], r["windows"]) for r in rows] == [
        ("shop.orders", True, 20, 1),
        ("stray", False, 0, 0),
    ]
    ready.twin.kafka.configs[ready.topic]["retention.ms"] = "60000"
    ready.twin.kafka.groups["penstock.bronze.shop_orders"] = {0: 15}
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


def test_topics_are_told_of_while_dagster_is_away(
    ready: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_command, "declarations", lambda _penstock: None)
    ready.landed(20)
    result = run(topic_command, "list")
    assert "shop.orders" in result.output
    assert "Dagster does not answer" in result.output


def test_the_questions_to_dagster_fit_its_schema() -> None:
    schema = create_schema().graphql_schema
    texts = {
        name: text
        for module in (dagster_api, topic_command)
        for name, text in vars(module).items()
        if isinstance(text, str) and text.strip().startswith(("query", "mutation"))
    }
    assert len(texts) == 5
    for name, text in texts.items():
        assert not graphql.validate(schema, graphql.parse(text)), name


def test_a_dagster_that_is_away_is_told_with_its_remedy(ready: Any) -> None:
    settings = ready.twin.settings.model_copy(
        update={"dagster": ready.twin.settings.dagster.model_copy(update={"port": 9})}
    )
    api = dagster_api.DagsterApi(settings, ready.twin.clock)
    with pytest.raises(DagsterApiError, match="penstock up"):
        api.launch("land_shop_orders", {})
