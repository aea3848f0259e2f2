"""`penstock group list | describe` on a real broker, ours or the one in PENSTOCK_TEST_KAFKA."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.kafka.model import CommittedOffset

if TYPE_CHECKING:
    from group_cli import Cli, Topic

WIDTH = 100


def of(rows: list[dict], **wanted: object) -> dict:
    (found,) = (r for r in rows if all(r[key] == value for key, value in wanted.items()))
    return found


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset)


def test_groups_are_listed_with_their_lag(
    cli: Cli, kafka: KafkaCluster, topic: Topic, group: str, member: Callable[[str], Consumer]
) -> None:
    read, other = topic(30, 20), topic(5)
    kafka.groups.commit(group, read, {0: committed(12)})
    kafka.groups.commit(group, other, {0: committed(5)})
    found = of(cli.json("list"), group=group)
    assert found == {
        "group": group,
        "state": "Empty",
        "type": "classic",
        "protocol_type": "",
        "members": 0,
        "topics": sorted([read, other]),
        "lag": 18,
    }
    member(read)
    found = of(cli.json("list"), group=group)
    assert (found["state"], found["protocol_type"], found["members"]) == ("Stable", "consumer", 1)
    line = next(line for line in cli("list").splitlines() if line.startswith(group))
    assert line.split() == [group, "Stable", "consumer", "1", sorted([read, other])[0], "+1", "18"]
    assert max(map(len, cli.out.splitlines())) <= WIDTH


def test_a_group_without_an_offset_has_no_lag(
    cli: Cli, topic: Topic, group: str, member: Callable[[str], Consumer]
) -> None:
    name = topic(3)
    member(name)
    found = of(cli.json("list"), group=group)
    assert (found["topics"], found["lag"]) == ([name], None)
    found = cli.json("describe", group)["partitions"]
    assert (found[0]["committed"], found[0]["lag"], found[0]["lag_seconds"]) == (None, None, None)
    assert "nothing is committed" in cli("describe", group)


def test_a_group_is_described_by_partition(
    cli: Cli, kafka: KafkaCluster, topic: Topic, group: str, member: Callable[[str], Consumer]
) -> None:
    name = topic(30, 20, 0)
    kafka.groups.commit(group, name, {0: committed(12), 1: committed(20)})
    member(name)
    document = cli.json("describe", group)
    assert (document["group"], document["state"], document["lag"]) == (group, "Stable", 18)
    (who,) = document["members"]
    assert (who["client_id"], who["name"], who["partitions"]) == ("reader", "reader", 3)
    rows = {row["partition"]: row for row in document["partitions"]}
    assert {
        p: (r["committed"], r["log_start"], r["log_end"], r["lag"]) for p, r in rows.items()
    } == {0: (12, 0, 30, 18), 1: (20, 0, 20, 0), 2: (None, 0, 0, None)}
    assert {r["member"] for r in rows.values()} == {who["member_id"]}
    assert rows[1]["lag_seconds"] == 0.0
    assert rows[2]["lag_seconds"] is None
    shown = cli("describe", group)
    assert max(map(len, shown.splitlines())) <= WIDTH, shown
    assert "classic, range, 1 member, lag 18" in shown


def test_lag_in_seconds_is_the_age_of_the_first_unread_record(
    cli: Cli, kafka: KafkaCluster, topic: Topic, group: str
) -> None:
    """Not of the last one, and not an estimate: record n is stamped 1,000,000 + n seconds."""
    name = topic(30, 20)
    kafka.groups.commit(group, name, {0: committed(12), 1: committed(3)})
    before = time.time()
    rows = {r["partition"]: r["lag_seconds"] for r in cli.json("describe", group)["partitions"]}
    after = time.time()
    assert before - 1_000_012 - 0.1 <= rows[0] <= after - 1_000_012 + 0.1
    assert before - 1_000_003 - 0.1 <= rows[1] <= after - 1_000_003 + 0.1


def test_where_only_markers_are_left_nothing_waits(
    cli: Cli, kafka: KafkaCluster, topic: Topic, group: str
) -> None:
    name = topic(0)
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=0)
    producer.commit_transaction(30)
    kafka.groups.commit(group, name, {0: committed(1)})  # after the record, before the marker
    (row,) = cli.json("describe", group)["partitions"]
    assert (row["log_end"], row["lag"], row["lag_seconds"]) == (2, 1, 0.0)


def test_committed_offsets_outside_the_log_are_reported(
    cli: Cli, kafka: KafkaCluster, topic: Topic, group: str
) -> None:
    name = topic(30, 20)
    kafka.groups.commit(group, name, {0: committed(5), 1: committed(27)})
    kafka.delete_records(name, {0: 12})
    rows = {r["partition"]: r for r in cli.json("describe", group)["partitions"]}
    assert (rows[0]["lag"], rows[0]["outside"]) == (18, "7 unread offsets are deleted")
    assert (rows[1]["lag"], rows[1]["outside"]) == (0, "7 offsets beyond the log's end")
    assert rows[0]["lag_seconds"] > 0, "the log's first record is the first unread one"
    assert "partition 0, committed 5: 7 unread offsets are deleted" in cli("describe", group)


def test_one_topic_of_a_group(cli: Cli, kafka: KafkaCluster, topic: Topic, group: str) -> None:
    read, other, unread = topic(3), topic(4), topic(5)
    for name in (read, other):
        kafka.groups.commit(group, name, {0: committed(1)})
    document = cli.json("describe", group, "--topic", other)
    assert [(r["topic"], r["lag"]) for r in document["partitions"]] == [(other, 3)]
    assert document["lag"] == 3
    error = cli("describe", group, "--topic", unread, code=1)
    assert f"group {group} has no offsets of topic {unread}" in error
    error = cli("describe", group, "--topic", "never-there", code=1)
    assert "has no topic never-there" in error


def test_members_with_the_same_client_id_are_distinguished(
    cli: Cli, topic: Topic, group: str, member: Callable[[str], Consumer]
) -> None:
    name = topic(1, 1)
    member(name)
    member(name)
    names = {m["name"] for m in cli.json("describe", group)["members"]}
    assert len(names) == 2
    assert all(n.startswith("reader…") for n in names)


def test_a_group_that_does_not_exist_names_the_nearest(
    cli: Cli, kafka: KafkaCluster, topic: Topic, group: str
) -> None:
    kafka.groups.commit(group, topic(1), {0: committed(1)})
    error = cli("describe", f"{group}x", code=1)
    assert f"has no consumer group {group}x; did you mean {group}?" in error
    document = cli.json("describe", f"{group}x", code=1)
    assert (document["error"], document["fix"]) == ("UnknownGroupError", f"did you mean {group}?")


def test_a_cluster_that_does_not_answer_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert "no Kafka broker answers at 127.0.0.1:1" in cli("list", code=1)
