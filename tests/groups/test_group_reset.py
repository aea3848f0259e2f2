"""`penstock group reset` on a real broker: plan, execute, undo, and everything that is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from desk import Desk
from penstock_platform.cli import group as group_command
from penstock_platform.groups import reset as reset_module
from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.groups import KafkaGroups
from penstock_platform.kafka.model import CommittedOffset
from penstock_platform.settings import Settings
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.connections import MemoryConnections

if TYPE_CHECKING:
    from group_cli import Cli, Topic

WIDTH = 100
DO = ("--execute", "--reason", "a test")


class World:
    """A topic of three partitions with 30, 20 and 0 records; partition 2 has no offset."""

    def __init__(self, cli: Cli, kafka: KafkaCluster, topic: str, group: str) -> None:
        self.cli, self.kafka, self.topic, self.group = cli, kafka, topic, group
        self.before = {0: CommittedOffset(12, 0, "kept"), 1: CommittedOffset(20)}
        kafka.groups.commit(group, topic, self.before)

    def reset(self, *more: str, topic: str = "", code: int = 0) -> str:
        return self.cli("reset", self.group, "--topic", topic or self.topic, *more, code=code)

    def json(self, *more: str, topic: str = "") -> dict[str, Any]:
        wanted = topic or self.topic
        found: dict[str, Any] = self.cli.json("reset", self.group, "--topic", wanted, *more)
        return found

    def committed(self) -> dict[int, CommittedOffset]:
        found = self.kafka.groups.committed([self.group])[self.group]
        return {p: o for (topic, p), o in found.items() if topic == self.topic}

    def offsets(self) -> dict[int, int]:
        return {p: o.offset for p, o in self.committed().items()}


@pytest.fixture
def world(cli: Cli, kafka: KafkaCluster, topic: Topic, group: str) -> World:
    return World(cli, kafka, topic(30, 20, 0), group)


def moves(document: dict[str, Any]) -> list[tuple[int | None, int | None, int | None]]:
    return [(row["now"], row["then"], row["difference"]) for row in document["partitions"]]


def test_a_plan_changes_nothing(world: World) -> None:
    document = world.json("--to-earliest")
    assert moves(document) == [(12, 0, -12), (20, 0, -20), (None, 0, None)]
    assert (document["executed"], document["undo"]) == (False, "")
    assert world.committed() == world.before
    shown = world.reset("--to-earliest")
    assert "32 messages are read again" in shown
    assert 'nothing was changed; to do it, add: --execute --reason "…"' in shown
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert world.committed() == world.before
    assert [p.name for p in Path.cwd().glob("*.json")] == []


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (["--to-earliest"], {0: 0, 1: 0, 2: 0}),
        (["--to-latest"], {0: 30, 1: 20, 2: 0}),
        (["--to-offset", "15"], {0: 15, 1: 15, 2: 0}),
        (["--to-offset", "0"], {0: 0, 1: 0, 2: 0}),
        (["--to-time", "1970-01-12T13:46:50Z"], {0: 10, 1: 10, 2: 0}),  # 1,000,010 s
        (["--to-datetime", "1970-01-12T14:46:45+01:00"], {0: 5, 1: 5, 2: 0}),
        (["--to-time", "1970-01-12T13:47:05Z"], {0: 25, 1: 20, 2: 0}),  # 1: no record so late
        (["--to-time", "1969-12-31T23:59:59.999Z"], {0: 0, 1: 0, 2: 0}),  # -1 is Kafka's "latest"
        (["--by-duration", "PT1H"], {0: 30, 1: 20, 2: 0}),
    ],
)
def test_every_target(world: World, target: list[str], found: dict[int, int]) -> None:
    document = world.json(*target, *DO)
    assert document["executed"]
    assert world.offsets() == found


def test_a_shift(world: World) -> None:
    some = f"{world.topic}:0,1"
    assert moves(world.json("--shift-by", "-5", *DO, topic=some)) == [(12, 7, -5), (20, 15, -5)]
    assert moves(world.json("--shift-by", "+3", *DO, topic=some)) == [(7, 10, 3), (15, 18, 3)]
    assert world.offsets() == {0: 10, 1: 18}
    error = world.reset("--shift-by", "1", code=1)
    assert "nothing is committed for partition 2" in error


def test_a_duration_counts_back_from_now(world: World) -> None:
    hours = (datetime.now(UTC) - datetime.fromtimestamp(1_000_010, UTC)) / timedelta(hours=1)
    world.reset("--by-duration", f"PT{int(hours) + 2}H", *DO)
    assert world.offsets() == {0: 0, 1: 0, 2: 0}, "before the first record"


def test_offsets_beyond_the_log_are_clamped_and_said_so(world: World) -> None:
    world.kafka.delete_records(world.topic, {0: 10})
    document = world.json("--to-offset", "5")
    wanted = [(r["then"], r["wanted"]) for r in document["partitions"]]
    assert wanted == [(10, 5), (5, None), (0, 5)]
    shown = world.reset("--to-offset", "5")
    assert "5 was asked for, the log begins at 10" in shown
    assert "5 was asked for, the log ends at 0" in shown
    assert max(map(len, shown.splitlines())) <= WIDTH


def test_partitions_that_are_not_named_are_left_alone(world: World) -> None:
    assert moves(world.json("--to-earliest", *DO, topic=f"{world.topic}:1")) == [(20, 0, -20)]
    assert world.offsets() == {0: 12, 1: 0}


def test_a_saved_plan_is_executed(world: World) -> None:
    shown = world.reset("--to-latest", "--plan", "to end.json")
    assert "penstock group reset --execute-plan 'to end.json' --reason \"…\"" in shown
    assert world.committed() == world.before
    error = world.cli("reset", "--execute-plan", "to end.json", code=2)
    assert "--reason is required" in error
    world.cli("reset", "--execute-plan", "to end.json", "--reason", "a test")
    assert world.offsets() == {0: 30, 1: 20, 2: 0}
    shown = world.cli("reset", "--execute-plan", "to end.json", "--reason", "again")
    assert "every partition has its offset already; nothing was changed" in shown


def test_an_undo_restores_the_exact_offsets(world: World) -> None:
    """With the epochs and texts beside them, and no offset where there was none; and an undo can
    be undone."""
    world.reset("--to-latest", *DO, "--undo", "undo.json")
    assert world.offsets() == {0: 30, 1: 20, 2: 0}
    shown = world.cli("reset", "--execute-plan", "undo.json", "--undo", "redo.json")
    assert world.committed() == world.before
    assert "done by" in shown
    assert "undo: a test" in shown
    assert "the offset is deleted" in shown
    world.cli("reset", "--execute-plan", "redo.json")
    assert world.offsets() == {0: 30, 1: 20, 2: 0}


def test_an_undo_restores_what_was_committed_at_the_time_of_the_reset(world: World) -> None:
    """The same offset with another text, committed after the plan was made."""
    world.reset("--to-latest", "--plan", "plan.json", "--reason", "a test")
    later = {0: CommittedOffset(12, 0, "newer"), 1: CommittedOffset(20)}
    world.kafka.groups.commit(world.group, world.topic, later)
    world.cli("reset", "--execute-plan", "plan.json", "--undo", "undo.json")
    world.cli("reset", "--execute-plan", "undo.json")
    assert world.committed() == later


def test_the_printed_command_undoes_it(world: World) -> None:
    document = world.json("--to-earliest", *DO)
    command = document["undo"].split()
    assert command[:3] == ["penstock", "group", "reset"]
    world.cli(*command[2:])
    assert world.committed() == world.before


def test_an_undo_restores_offsets_that_the_log_no_longer_has(world: World) -> None:
    world.reset("--to-latest", *DO, "--undo", "undo.json")
    world.kafka.delete_records(world.topic, {0: 25})
    world.cli("reset", "--execute-plan", "undo.json")
    assert world.committed() == world.before


def test_a_group_with_members_is_not_reset(world: World, member: Callable[[str], Consumer]) -> None:
    member(world.topic)
    error = world.reset("--to-earliest", *DO, code=1)
    assert f"group {world.group} has 1 member: reader (" in error
    assert "stop them, then run it again" in error
    assert world.committed() == world.before
    assert list(Path.cwd().glob("undo*")) == []
    assert moves(world.json("--to-earliest"))[0] == (12, 0, -12), "a plan can be made"


def test_a_member_that_comes_meanwhile_is_named(
    world: World, member: Callable[[str], Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator refuses the commit, whatever was found before."""
    commit = KafkaGroups.commit

    def late(self: KafkaGroups, *arguments: Any) -> None:
        member(world.topic)
        commit(self, *arguments)

    monkeypatch.setattr(KafkaGroups, "commit", late)
    error = world.reset("--to-earliest", *DO, code=1)
    assert f"group {world.group} has 1 member: reader (" in error
    assert world.committed() == world.before


def test_a_stale_plan_is_refused(world: World) -> None:
    world.reset("--to-earliest", "--plan", "plan.json", "--reason", "a test")
    world.kafka.groups.commit(world.group, world.topic, {1: CommittedOffset(19)})
    error = world.cli("reset", "--execute-plan", "plan.json", code=1)
    assert "partition 1 has 19, not 20; make a new plan" in error
    assert world.offsets() == {0: 12, 1: 19}
    assert list(Path.cwd().glob("undo*")) == []


def test_a_plan_whose_offsets_retention_deleted_is_refused(world: World) -> None:
    world.reset("--to-earliest", "--plan", "plan.json", "--reason", "a test")
    world.kafka.delete_records(world.topic, {0: 10})
    error = world.cli("reset", "--execute-plan", "plan.json", code=1)
    assert "partition 0 will have 0, its log is 10 to 30; make a new plan" in error
    assert world.committed() == world.before


def test_a_plan_of_a_recreated_topic_or_another_cluster_is_refused(world: World) -> None:
    world.reset("--to-earliest", "--plan", "plan.json", "--reason", "a test")
    document = json.loads(Path("plan.json").read_text())
    Path("elsewhere.json").write_text(json.dumps(document | {"cluster_id": "another"}))
    error = world.cli("reset", "--execute-plan", "elsewhere.json", code=1)
    assert "the plan is of cluster another, and " in error
    world.kafka.delete(world.topic)
    while not world.kafka.create(world.topic, 3):  # the deletion may still be under way
        continue
    error = world.cli("reset", "--execute-plan", "plan.json", code=1)
    assert f"topic {world.topic} was recreated since the plan" in error


def test_another_client_that_commits_at_the_same_time_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = KafkaGroups.commit

    def and_another(self: KafkaGroups, group: str, topic: str, offsets: Any) -> None:
        commit(self, group, topic, offsets)
        commit(self, group, topic, {1: CommittedOffset(3)})

    monkeypatch.setattr(KafkaGroups, "commit", and_another)
    error = world.reset("--to-earliest", *DO, code=1)
    assert "another client changed partition 1" in error


def test_a_reset_that_ended_in_the_middle_is_continued_and_undone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.reset("--to-latest", *DO, "--undo", "undo.json")  # its undo commits, then deletes

    def ends(*_arguments: Any) -> None:
        raise ClusterError("the connection is gone")

    with monkeypatch.context() as broken:
        broken.setattr(KafkaGroups, "remove", ends)
        world.cli("reset", "--execute-plan", "undo.json", code=1)
    assert world.offsets() == {0: 12, 1: 20, 2: 0}
    world.cli("reset", "--execute-plan", "undo.json")
    assert world.committed() == world.before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["GROUP", "--topic", "TOPIC"], 2, "give one of --to-offset"),
        (["GROUP", "--topic", "TOPIC", "--to-earliest", "--to-latest"], 2, "give one of"),
        (["GROUP", "--topic", "TOPIC", "--to-offset", "0", "--shift-by", "0"], 2, "give one of"),
        (["GROUP", "--to-earliest"], 2, "give a GROUP and its --topic"),
        (["--topic", "TOPIC", "--to-earliest"], 2, "give a GROUP and its --topic"),
        (["GROUP", "--topic", "TOPIC:x", "--to-earliest"], 2, "write TOPIC, or TOPIC:0,2"),
        (["GROUP", "--topic", "TOPIC", "--to-offset", "-1"], 2, "-1 is not in the range x>=0"),
        (["GROUP", "--topic", "TOPIC", "--to-time", "2026-11-20"], 2, "has no time zone"),
        (["GROUP", "--topic", "TOPIC", "--to-time", "noon"], 2, "Invalid isoformat string"),
        (["GROUP", "--topic", "TOPIC", "--by-duration", "1"], 2, "write PT1H30M"),
        (["GROUP", "--topic", "TOPIC", "--by-duration", "P9999999D"], 2, "out of range"),
        (["GROUP", "--topic", "TOPIC", "--to-earliest", "--execute"], 2, "--reason is required"),
        (["GROUP", "--topic", "TOPIC", "--to-earliest", *DO, "--plan", "p"], 2, "leave out --exec"),
        (["GROUP", "--topic", "TOPIC", "--to-earliest", "--undo", "u"], 2, "--execute writes"),
        (["GROUP", "--execute-plan", "p"], 2, "from the file"),
        (["--shift-by", "0", "--execute-plan", "p"], 2, "from the file"),
        (["--execute-plan", "absent.json"], 1, "absent.json: No such file"),
        (["--execute-plan", "penstock.toml"], 1, "penstock.toml: not a plan"),
        (["never-there", "--topic", "TOPIC", "--to-earliest"], 1, "no consumer group never-there"),
        (["GROUP", "--topic", "never-there", "--to-earliest"], 1, "has no topic never-there"),
        (["GROUP", "--topic", "TOPIC:7,0", "--to-earliest"], 1, "no partition 7; it has 0 to 2"),
        (["GROUP", "--topic", "TOPIC", "--to-latest", "--plan", "penstock.toml"], 1, "exists"),
        (["GROUP", "--topic", "TOPIC", "--to-latest", *DO, "--undo", "penstock.toml"], 1, "exists"),
        (["GROUP", "--topic", "TOPIC", "--to-latest", *DO, "--undo", "no/u"], 1, "no/u: No such"),
    ],
)
def test_what_is_refused_changes_nothing(
    world: World, arguments: list[str], code: int, said: str
) -> None:
    names = {"GROUP": world.group, "TOPIC": world.topic}
    typed = [a.replace("TOPIC", world.topic) if a != "GROUP" else names[a] for a in arguments]
    assert said in world.cli("reset", *typed, code=code)
    assert world.committed() == world.before


def test_errors_are_documents_for_programs(world: World) -> None:
    document = world.cli.json("reset", "never-there", "--topic", "x", "--to-latest", code=1)
    assert document["error"] == "UnknownGroupError"
    document = world.cli.json("reset", world.group, code=2)
    assert document["exit_code"] == 2


def test_a_time_inside_an_open_transaction_is_found(world: World) -> None:
    """Its records are not skipped: they may be committed yet."""
    producer = Producer({"bootstrap.servers": world.kafka.servers, "transactional.id": world.group})
    producer.init_transactions(30)
    producer.begin_transaction()
    for n in range(5):
        producer.produce(world.topic, b"x", partition=2, timestamp=(2_000_000 + n) * 1000)
    producer.flush(30)
    document = world.json("--to-time", "1970-01-24T03:33:22Z", topic=f"{world.topic}:2")
    producer.abort_transaction(30)
    assert moves(document) == [(None, 2, None)]


def test_to_the_start_of_a_window(
    world: World, cluster_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock = MemoryConnections(cluster_settings, kafka=world.kafka, archive=MemoryArchive())
    monkeypatch.setattr(group_command, "Connections", lambda _settings: penstock)
    desk = Desk(penstock, world.topic, 3)
    first = desk.freeze()
    desk.send_values([b"x"] * 7)
    second = desk.freeze()
    desk.send_values([b"x"] * 4)
    world.kafka.delete_records(world.topic, {0: 3})
    assert moves(world.json("--to-window", second.window))[:2] == [(12, 30, 18), (20, 20, 0)]
    document = world.json("--to-window", first.window)
    assert [(r["then"], r["wanted"]) for r in document["partitions"][:2]] == [(3, 0), (0, None)]
    assert document["target"] == f"--to-window {first.window}"
    world.kafka.grow(world.topic, 4)
    document = world.json("--to-window", second.window, topic=f"{world.topic}:3")
    assert moves(document) == [(None, 0, None)], "a later partition is in no window: from its start"
    error = world.reset("--to-window", "2026-11-20-07:00", code=1)
    assert f"has no window 2026-11-20-07:00; its newest are: {first.window}" in error
    assert "--to-window: " in world.reset("--to-window", "yesterday", code=2)


def test_a_group_that_nothing_is_left_of_can_be_undone_and_redone(
    cli: Cli, kafka: KafkaCluster, topic: Topic, group: str
) -> None:
    """A reset that gave the group its first offsets of a topic; its undo removes them."""
    other, name = topic(1), topic(5)
    kafka.groups.commit(group, other, {0: CommittedOffset(1)})
    cli("reset", group, "--topic", name, "--to-latest", *DO, "--undo", "undo.json")
    cli("reset", "--execute-plan", "undo.json", "--undo", "redo.json")
    kafka.groups.remove(group, other, [0])  # the group itself may be gone now
    cli("reset", "--execute-plan", "redo.json")
    assert kafka.groups.committed([group])[group] == {(name, 0): CommittedOffset(5)}


def test_the_undo_is_written_before_anything_is_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_arguments: Any) -> None:
        assert Path("undo.json").exists()
        raise ClusterError("the connection is gone")

    monkeypatch.setattr(reset_module, "_commit", ends)
    assert "the connection is gone" in world.reset(
        "--to-latest", *DO, "--undo", "undo.json", code=1
    )
