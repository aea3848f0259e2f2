"""An executed reset is an observation of the topic's asset, in a real Dagster webserver."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
import uvicorn
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster_webserver.webserver import DagsterWebserver

from penstock_platform.cli import group_events
from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.kafka.model import CommittedOffset
from polling import until

if TYPE_CHECKING:
    from group_cli import Cli, Topic

DO = ("--execute", "--reason", "prices were wrong", "--by", "ann", "--undo", "undo.json")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as made:
        yield made


@pytest.fixture
def dagster_url(instance: dg.DagsterInstance) -> Iterator[str]:
    """A webserver without a code location."""
    with WorkspaceProcessContext(instance, EmptyWorkspaceTarget()) as context:
        app = DagsterWebserver(context).create_asgi_app()
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        thread = threading.Thread(target=server.run, name="webserver")
        thread.start()
        try:
            until("the webserver serves", lambda: server.started)
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def shop(
    cli: Cli, kafka: KafkaCluster, topic: Topic, group: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A declared topic of two partitions, and a group that has an offset of the first."""
    name = topic(30, 20)
    kafka.groups.commit(group, name, {0: CommittedOffset(12)})
    declared: dict[str, Any] = {name: None}
    monkeypatch.setattr(group_events, "declarations", lambda _penstock: declared)
    return name


def answers_at(url: str) -> None:
    toml = Path("penstock.toml")
    toml.write_text(toml.read_text().replace("port = 1", f'url = "{url}"'))


def observations(instance: dg.DagsterInstance, topic: str) -> list[dg.AssetObservation]:
    key = dg.AssetKey(["local", "topic", topic])
    found = [r.asset_observation for r in instance.fetch_observations(key, limit=10).records]
    return [observation for observation in found if observation is not None]


def test_an_event_says_who_and_why(
    cli: Cli, instance: dg.DagsterInstance, dagster_url: str, shop: str, group: str
) -> None:
    answers_at(dagster_url)
    cli("reset", group, "--topic", shop, "--to-latest")
    assert observations(instance, shop) == [], "a plan is no event"
    document = cli.json("reset", group, "--topic", shop, "--to-latest", *DO)
    assert document["event_problem"] == ""
    (event,) = observations(instance, shop)
    assert event.description == f"Group {group} was reset by ann (--to-latest): prices were wrong"
    values = {name: value.value for name, value in event.metadata.items()}
    assert values == {
        "kafka/group": group,
        "by": "ann",
        "reason": "prices were wrong",
        "target": "--to-latest",
        "offsets_before": {"0": 12, "1": None},
        "offsets_after": {"0": 30, "1": 20},
        "undo": "penstock group reset --execute-plan undo.json",
    }
    cli("reset", "--execute-plan", "undo.json", "--by", "ben")
    assert "asset event" not in cli.out
    newest = observations(instance, shop)[0]
    assert newest.metadata["by"].value == "ben"
    assert newest.metadata["reason"].value == "undo: prices were wrong"
    assert newest.metadata["offsets_after"].value == {"0": 12, "1": None}


def test_nothing_to_do_is_no_event(
    cli: Cli, instance: dg.DagsterInstance, dagster_url: str, shop: str, group: str
) -> None:
    answers_at(dagster_url)
    cli("reset", group, "--topic", f"{shop}:0", "--to-offset", "12", *DO)
    assert "nothing was changed" in cli.out
    assert observations(instance, shop) == []


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (None, "no asset event was recorded: this project's Dagster does not answer"),
        ({}, "is not declared in this project, so it has no asset"),
    ],
)
def test_without_an_asset_one_line_says_so(
    cli: Cli,
    kafka: KafkaCluster,
    shop: str,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    declared: Any,
    said: str,
) -> None:
    monkeypatch.setattr(group_events, "declarations", lambda _penstock: declared)
    cli("reset", group, "--topic", shop, "--to-latest", *DO)
    assert [said in line for line in cli.out.splitlines()].count(True) == 1
    assert kafka.group_offsets(group, shop) == {0: 30, 1: 20}, "the reset is done all the same"


def test_a_webserver_that_refuses_is_reported(cli: Cli, shop: str, group: str) -> None:
    document = cli.json("reset", group, "--topic", shop, "--to-latest", *DO)
    assert "does not" in document["event_problem"]
    assert document["executed"]
