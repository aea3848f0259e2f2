"""Offsets of groups, written, read and deleted through a real broker's protocol."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Consumer

from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.model import CommittedOffset, LogBounds
from polling import until


@pytest.fixture
def topic(kafka: KafkaCluster) -> str:
    name = f"groups-test-{uuid.uuid4().hex[:8]}"
    kafka.create(name, 2)
    return name


@pytest.fixture
def group() -> str:
    return f"groups-test-{uuid.uuid4().hex[:8]}"


def test_what_is_committed_is_read_back_exactly(
    kafka: KafkaCluster, topic: str, group: str
) -> None:
    offsets = {0: CommittedOffset(5, 0, "a note"), 1: CommittedOffset(0)}
    kafka.groups.commit(group, topic, offsets)
    found = kafka.groups.committed([group, "never-there"])
    assert found == {group: {(topic, p): o for p, o in offsets.items()}, "never-there": {}}
    assert kafka.group_offsets(group, topic) == {0: 5, 1: 0}
    kafka.groups.commit(group, topic, {})


def test_an_offset_is_deleted(kafka: KafkaCluster, topic: str, group: str) -> None:
    kafka.groups.commit(group, topic, {0: CommittedOffset(5), 1: CommittedOffset(6)})
    kafka.groups.remove(group, topic, [0])
    assert kafka.groups.committed([group])[group] == {(topic, 1): CommittedOffset(6)}
    kafka.groups.remove(group, topic, [])


def test_a_group_with_members_is_changed_by_them_alone(
    kafka: KafkaCluster, topic: str, group: str
) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": group})
    consumer.subscribe([topic])
    until("it has its partitions", lambda: consumer.poll(0.05) or consumer.assignment())
    described = kafka.groups.describe([group])[group]
    (member,) = described.members
    assert described.state == "Stable"
    assert member.assigned == ((topic, 0), (topic, 1))
    with pytest.raises(ClusterError, match=f"commit offsets of group {group}, topic {topic}"):
        kafka.groups.commit(group, topic, {0: CommittedOffset(1)})
    with pytest.raises(ClusterError, match=f"delete offsets of group {group}"):
        kafka.groups.remove(group, topic, [0])
    consumer.close()
    kafka.groups.commit(group, topic, {0: CommittedOffset(1)})


def test_a_group_that_does_not_exist_is_dead(kafka: KafkaCluster) -> None:
    found = kafka.groups.describe(["never-there"])["never-there"]
    assert (found.state, found.members) == ("Dead", ())
    assert kafka.groups.describe([]) == {}
    assert kafka.groups.committed([]) == {}


def test_bounds_of_many_partitions(kafka: KafkaCluster, topic: str) -> None:
    assert kafka.groups.bounds([(topic, 0), (topic, 1)]) == {
        (topic, 0): LogBounds(0, 0),
        (topic, 1): LogBounds(0, 0),
    }
    assert kafka.groups.bounds([]) == {}
    assert kafka.groups.partitions()[topic] == (0, 1)
