"""`penstock retention plan | explain | apply` on a stage: what a sweep would delete, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock_platform.cli import retention as command
from penstock_platform.cli.console import CommandError
from penstock_platform.cli.dagster_api import DagsterApiError
from penstock_platform.cli.retention_tables import forecast_lines
from penstock_platform.retention.model.forecast import Forecast
from penstock_platform.topics.model.declaration import bronze_table

Run = Callable[..., Result]


class FakeApi:
    """Dagster, as far as `retention apply` asks it."""

    node: Any = None

    def __init__(self, _settings: object, _clock: object) -> None:
        pass

    def query(self, _text: str, variables: dict[str, Any]) -> dict[str, Any]:
        assert variables == {"path": ["retention", "shop.orders"]}
        if isinstance(self.node, Exception):
            raise self.node
        return {"assetNodeOrError": self.node}


def applies(value: bool) -> dict[str, Any]:
    return {
        "metadataEntries": [{"label": "other"}, {"label": "penstock/apply", "boolValue": value}]
    }


@pytest.fixture
def run(ready: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the stage: ``run("plan", "shop.orders")``."""
    monkeypatch.setattr(command, "Connections", lambda _settings: ready.penstock)
    monkeypatch.setattr(command, "settings", lambda: ready.penstock.settings)
    monkeypatch.setattr(command, "declarations", lambda _p: {ready.topic: ready.plan.spec})
    monkeypatch.setattr(command, "DagsterApi", FakeApi)
    monkeypatch.setattr(FakeApi, "node", applies(True))
    return lambda *arguments: CliRunner().invoke(
        command.command, list(arguments), catch_exceptions=False, standalone_mode=False
    )


def log_start(stage: Any) -> int:
    return int(stage.penstock.kafka.offsets(stage.topic)[0].log_start)


@pytest.fixture
def hurt(ready: Any) -> list[Any]:
    """Three windows of 100, 50 and 10 records that are due; a record of the second is lost. Behind
    them two records are in no window."""
    windows = [ready.landed(100), ready.landed(50), ready.landed(10)]
    table = bronze_table(ready.topic)
    ready.penstock.lake.put(table, windows[1].window_id, {0: list(range(100, 149))})
    ready.pass_time(180)
    ready.produce(2)
    return windows


def test_the_plan_says_per_partition_what_goes_and_why_the_rest_stays(
    ready: Any, run: Run, hurt: list[Any]
) -> None:
    old, missing, young = (w.window for w in hurt)
    document = json.loads(run("plan", "shop.orders", "-o", "json").stdout)
    assert document["windows_deleted"] == [old]
    assert document["windows_held"] == [missing]
    assert document["records_deleted"] == 100
    first, second = document["partitions"]
    assert (first["log_start"], first["log_end"], first["delete_before"]) == (0, 162, 100)
    assert [(r["start"], r["end"], r["action"], r["cause"]) for r in first["ranges"]] == [
        (0, 100, "delete", "proven"),
        (100, 150, "hold", "unproven"),
        (150, 160, "keep", "behind_another"),
        (160, 162, "keep", "no_window"),
    ]
    assert first["ranges"][1]["windows"] == missing
    assert first["ranges"][1]["reason"].endswith("but stored = landed is MISSING")
    assert (second["partition"], second["ranges"], second["delete_before"]) == (1, [], None)
    assert document["retention"]["keep"] == "2m"
    assert len(document["risks"]) == 1

    shown = run("plan", "shop.orders").output
    assert "3 of 3 windows are due: proving them again" in shown
    assert "100–149" in shown
    assert "but stored = landed is MISSING" in shown
    assert f"behind window {missing}" in shown
    assert f"a sweep now would delete 100 records of 1 window ({old})" in shown
    assert young in shown
    assert log_start(ready) == 0, "a plan deletes nothing"


def test_the_plan_has_a_forecast(ready: Any, run: Run, hurt: list[Any]) -> None:
    forecast = json.loads(run("plan", "shop.orders", "-o", "json").stdout)["forecast"]
    assert forecast["log_bytes"] == 620, "1,620 bytes without the 100 records that go"
    assert forecast["overdue_seconds"] > 0
    assert forecast["until_max_bytes_seconds"] is None
    shown = run("plan", "shop.orders").output
    assert "the log then has 620 bytes, growing by " in shown
    assert "what is held is past its policy for " in shown
    assert "at this rate the disk is full in " in shown
    assert "max_bytes is reached" not in shown


@pytest.mark.parametrize(
    "seconds,text",
    [(0, "0s"), (59, "59s"), (3600, "1h"), (90_061, "1d 1h"), (8_640_000_000, "100,000d")],
)
def test_a_time_is_shown_in_its_two_largest_units(seconds: int, text: str) -> None:
    forecast = dict.fromkeys(Forecast.__dataclass_fields__) | {"until_due_seconds": seconds}
    assert forecast_lines(forecast) == [f"the next window is due in {text}"]


def test_an_offset_is_explained(ready: Any, run: Run, hurt: list[Any]) -> None:
    def explained(offset: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            run("explain", "shop.orders", "0", str(offset), "-o", "json").stdout
        )
        return found

    assert explained(99)["deletable"]
    held = explained(100)
    assert (held["deletable"], held["action"], held["window"]) == (False, "hold", hurt[1].window)
    assert "stored = landed is MISSING" in held["reason"]
    assert held["range"] == [100, 150]
    assert explained(161)["reason"] == "it is in no window yet"
    assert explained(161)["window"] is None
    assert explained(162)["reason"] == "nothing is stored there yet: the log ends at 162"

    shown = run("explain", "shop.orders", "0", "7").output
    assert "shop.orders, partition 0, offset 7: a sweep now would delete it" in shown
    assert f"in window {hurt[0].window}: closed" in shown
    assert "would not delete it" in run("explain", "shop.orders", "0", "100").output
    run("apply", "shop.orders", "--execute")
    shown = run("explain", "shop.orders", "0", "7").output
    assert "offset 7: deleted" in shown
    assert "which begins at 100" in shown


def test_a_partition_that_is_not_there_is_said_to_be_so(run: Run) -> None:
    with pytest.raises(CommandError, match="no partition 2; its partitions are 0 to 1"):
        run("explain", "shop.orders", "2", "0")


def test_apply_shows_the_plan_and_deletes_only_with_execute(
    ready: Any, run: Run, hurt: list[Any]
) -> None:
    shown = run("apply", "shop.orders").output
    assert "nothing was deleted; with --execute the command deletes 100 records" in shown
    assert "but stored = landed is MISSING" in shown
    assert log_start(ready) == 0
    assert not ready.penstock.books.retired(hurt[0].ref, 0)

    shown = run("apply", "shop.orders", "--execute").output
    assert f"deleted 100 records of 1 window ({hurt[0].window})" in shown
    assert "partition 0: offsets before 100" in shown
    assert log_start(ready) == 100
    assert ready.penstock.books.retired(hurt[0].ref, 0)
    assert not ready.penstock.books.retired(hurt[1].ref, 1)
    again = json.loads(run("apply", "shop.orders", "--execute", "-o", "json").stdout)
    assert (again["executed"], again["windows_deleted"], again["records_deleted"]) == (True, [], 0)


def test_the_command_leaves_the_record_that_a_run_of_the_sweep_leaves(ready: Any, run: Run) -> None:
    """The same request to the broker, and the same objects in the archive."""
    window = ready.landed(100)
    ready.pass_time(180)
    before = dict(ready.penstock.archive.objects)
    made = {}
    for how in ("command", "asset"):
        assert log_start(ready) == 0
        if how == "command":
            run("apply", "shop.orders", "--execute")
        else:
            assert ready.run("retention").success
        assert log_start(ready) == 100
        made[how] = {k: v for k, v in ready.penstock.archive.objects.items() if k not in before}
        for key in made[how]:
            del ready.penstock.archive.objects[key]
        ready.penstock.kafka.memory.topics[ready.topic].partitions[0].log_start = 0
    assert made["command"] == made["asset"]
    assert len(made["asset"]) == 1
    assert window.topic_id in next(iter(made["asset"]))


@pytest.mark.parametrize(
    "node,match",
    [
        (applies(False), r"retention: \{apply: false\}, so nothing is deleted; set apply: true"),
        ({"__typename": "AssetNotFoundError"}, "has no sweep in Dagster"),
        (DagsterApiError("it is away"), "does not say whether topic shop.orders may be swept"),
    ],
)
def test_nothing_is_deleted_where_dagster_does_not_sweep(
    ready: Any, run: Run, monkeypatch: pytest.MonkeyPatch, node: Any, match: str
) -> None:
    ready.landed(100)
    ready.pass_time(180)
    monkeypatch.setattr(FakeApi, "node", node)
    with pytest.raises(CommandError, match=match):
        run("apply", "shop.orders", "--execute")
    assert log_start(ready) == 0
    assert run("apply", "shop.orders").exit_code == 0, "the plan may be seen"


@pytest.mark.parametrize("value", [True, False])
def test_the_asset_says_whether_its_runs_delete(stage: Callable[..., Any], value: bool) -> None:
    from penstock_platform.components.platform_component import (  # noqa: PLC0415
        PlatformSpec,
        SweepSpec,
    )

    made = stage(platform=PlatformSpec(retention=SweepSpec(apply=value)))
    (asset,) = [a for a in made.defs.assets if made.plan.retention_key in a.keys]
    assert asset.metadata_by_key[made.plan.retention_key][command.APPLY_LABEL] is value


def test_a_topic_without_a_sweep_is_an_error_that_says_why(
    ready: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ready.plan.spec
    unlanded = spec.model_copy(update={"land": None, "contract": None})
    for declared, match in (
        (None, "Dagster does not answer.*penstock up"),
        ({"shop.order": spec}, "shop.orders is not declared.*did you mean shop.order"),
        ({spec.name: unlanded}, "is not landed, so its broker deletes"),
    ):
        found = SimpleNamespace(declared=declared)
        monkeypatch.setattr(command, "declarations", lambda _p, found=found: found.declared)
        for words in (("plan",), ("apply",), ("apply", "--execute")):
            with pytest.raises(CommandError, match=match):
                run(words[0], "shop.orders", *words[1:])
        with pytest.raises(CommandError, match=match):
            run("explain", "shop.orders", "0", "0")


def test_a_topic_without_a_policy_keeps_everything(
    ready: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ready.plan.spec.model_copy(update={"retention": type(ready.plan.spec.retention)()})
    monkeypatch.setattr(command, "declarations", lambda _p: {spec.name: spec})
    ready.landed(5)
    shown = run("plan", "shop.orders").output
    assert "no policy: nothing is deleted" in shown
    assert "nothing limits its keeping" in shown
    assert "a sweep now would delete nothing" in shown
