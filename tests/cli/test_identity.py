"""A project acts on its own cluster and archive alone: two projects on one machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.testing import MemFiles, ThreadBroker
from penstock_platform.archive.model import identity_key
from penstock_platform.cli import main as cli_main
from penstock_platform.connections import Connections
from penstock_platform.identity import (
    Identity,
    IdentityError,
    OwnConnections,
    adopt,
    archive_id,
    new_archive_id,
    record,
    record_at_up,
    recorded,
    require_archive,
    require_cluster,
)
from penstock_platform.settings import KafkaSettings, S3Settings, Settings
from penstock_platform.testing.archive import MemoryArchive

NAME = "s3://penstock/archive"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadBroker]:
    with ThreadBroker(tmp_path / "data", files=MemFiles()) as started:
        yield started


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose own services are down."""
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def on_port(project: Path, broker: ThreadBroker) -> Settings:
    """The project's own broker has the port that another's broker holds now."""
    (project / "penstock.toml").write_text(f"[kafka]\nport = {broker.port}\n")
    return Settings.load(project / ".penstock", {})


def cluster_of(broker: ThreadBroker) -> str:
    settings = Settings(home=broker.data_dir / "x", kafka=KafkaSettings(port=broker.port))
    return Connections(settings).kafka.cluster_id()


ACTING = [
    ["produce", "--topic", "orders", "--file", "rows.jsonl"],
    ["topic", "list"],
    ["topic", "describe", "orders"],
    ["window", "list", "orders"],
    ["window", "show", "orders", "x"],
    ["window", "accept", "orders", "x", "--reason", "r"],
    ["window", "begin", "orders"],
    ["window", "rerun", "orders", "x"],
    ["audit", "orders"],
]


@pytest.mark.parametrize("arguments", ACTING, ids=[" ".join(a[:2]) for a in ACTING])
@pytest.mark.parametrize("before", ["", "mine-cluster-id"])
def test_every_command_refuses_anothers_broker_and_names_both(
    broker: ThreadBroker,
    project: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    before: str,
) -> None:
    broker.create_topic("orders")
    (project / "rows.jsonl").write_text('{"id": 1}\n')
    here = on_port(project, broker)
    if before:
        record(here, Identity(before, "mine-archive-id"))
    assert cli_main.run(arguments) == 1
    said = capsys.readouterr().err
    assert cluster_of(broker) in said
    assert before in said
    assert str(here.home) in said
    assert "penstock cluster adopt" in said
    assert "Traceback" not in said
    offsets = Connections(here).kafka.offsets("orders")
    assert sum(o.high_watermark for o in offsets.values()) == 0
    assert Connections(here).kafka.topics() == ["orders"]


def test_a_refusal_still_holds_for_a_second_use(broker: ThreadBroker, project: Path) -> None:
    own = OwnConnections(on_port(project, broker))
    for _ in range(2):
        with pytest.raises(IdentityError):
            _ = own.kafka


def test_a_cluster_of_the_users_own_is_recorded_at_first_contact(
    broker: ThreadBroker, project: Path, tmp_path: Path
) -> None:
    kafka = KafkaSettings(bootstrap_servers=f"{broker.host}:{broker.port}")
    here = Settings(home=project / ".penstock", kafka=kafka)
    cluster = OwnConnections(here).kafka.cluster_id()
    assert recorded(here).cluster_id == cluster
    with ThreadBroker(tmp_path / "other", files=MemFiles()) as other:
        moved = here.model_copy(
            update={"kafka": KafkaSettings(bootstrap_servers=f"{other.host}:{other.port}")}
        )
        with pytest.raises(IdentityError, match=cluster):
            _ = OwnConnections(moved).kafka
    assert recorded(here).cluster_id == cluster


def test_the_archive_is_compared_as_the_cluster_is(project: Path) -> None:
    own, others = MemoryArchive(), MemoryArchive()
    here = Settings(home=project / ".penstock")
    with pytest.raises(IdentityError, match="an archive without an id"):
        require_archive(here, own, NAME)
    assert own.objects == {}
    record(here, Identity("c", new_archive_id(own)))
    require_archive(here, own, NAME)
    foreign = new_archive_id(others)
    with pytest.raises(IdentityError) as error:
        require_archive(here, others, NAME)
    assert foreign in str(error.value)
    assert archive_id(own) in str(error.value)
    with pytest.raises(IdentityError, match="bucket was emptied"):
        require_archive(here, MemoryArchive(), NAME)


def test_an_archive_of_the_users_own_gets_its_id_once(project: Path) -> None:
    store = MemoryArchive()
    s3 = S3Settings(endpoint="http://127.0.0.1:1")
    one = Settings(home=project / "one", s3=s3)
    two = Settings(home=project / "two", s3=s3)
    for here in (one, two, one):
        require_archive(here, store, NAME)
    assert recorded(one).archive_id == recorded(two).archive_id == archive_id(store)
    assert list(store.objects) == [identity_key()]
    assert new_archive_id(store) == archive_id(store)


def test_the_cluster_alone_does_not_make_the_record(project: Path) -> None:
    here = Settings(home=project / "h", kafka=KafkaSettings(bootstrap_servers="x:1"))
    record(here, Identity("", "a"))
    require_cluster(here, "found")
    assert recorded(here) == Identity("found", "a")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"cluster_id": "x"}'])
def test_a_record_that_cannot_be_read_is_named(project: Path, text: str) -> None:
    here = Settings(home=project)
    (project / "identity.json").write_text(text)
    with pytest.raises(IdentityError, match=r"identity\.json"):
        recorded(here)


def test_up_records_what_it_started_and_adopt_what_answers(
    broker: ThreadBroker, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryArchive()
    store.uri = NAME  # type: ignore[attr-defined]
    monkeypatch.setattr(Connections, "archive", store)
    here = on_port(project, broker)
    record(here, Identity("an older cluster", "an older archive"))
    assert record_at_up(here) == recorded(here) == Identity(cluster_of(broker), archive_id(store))
    record(here, Identity("another", "another"))
    assert adopt(here) == recorded(here) == Identity(cluster_of(broker), archive_id(store))
    _ = OwnConnections(here).kafka


def test_cluster_adopt_asks_and_show_names_both(
    broker: ThreadBroker,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = MemoryArchive()
    store.uri = NAME  # type: ignore[attr-defined]
    monkeypatch.setattr(Connections, "archive", store)
    here = on_port(project, broker)
    record(here, Identity("mine", "my-archive"))
    assert cli_main.run(["cluster", "adopt"]) == 2
    assert recorded(here) == Identity("mine", "my-archive")
    capsys.readouterr()
    assert cli_main.run(["cluster", "show", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recorded"]["cluster_id"] == "mine"
    assert document["found"]["cluster_id"] == cluster_of(broker)
    assert cli_main.run(["cluster", "adopt", "--yes"]) == 0
    assert recorded(here).cluster_id == cluster_of(broker)
    capsys.readouterr()
    assert cli_main.run(["topic", "list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
