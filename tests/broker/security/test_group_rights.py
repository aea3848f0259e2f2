"""The rights that `penstock group` needs, as docs/how-to/CONSUMER_GROUPS.md has them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.model import CommittedOffset, LogBounds
from penstock_platform.ranges import OffsetRange
from penstock_platform.settings import KafkaSettings, Settings

ANY = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def properties(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


@pytest.fixture
def admin(guarded: Any) -> Iterator[AdminClient]:
    client = AdminClient({"bootstrap.servers": guarded.at("SASL"), **properties("admin")})
    yield client
    for future in client.delete_acls([ANY]).values():
        future.result(120)


@pytest.fixture
def cluster(guarded: Any, tmp_path: Path) -> Callable[[str], KafkaCluster]:
    """The cluster as a user sees it."""

    def of(user: str) -> KafkaCluster:
        kafka = KafkaSettings(bootstrap_servers=guarded.at("SASL"), properties=properties(user))
        return KafkaCluster(Settings(home=tmp_path, kafka=kafka))

    return of


@pytest.fixture
def topic(guarded: Any, admin: AdminClient) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(120)
    producer = Producer({"bootstrap.servers": guarded.at("SASL"), **properties("admin")})
    producer.produce(name, b"x", partition=0, timestamp=1_000)
    assert producer.flush(120) == 0
    return name


def allow(admin: AdminClient, kind: ResourceType, name: str, operation: AclOperation) -> None:
    literal, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    rule = AclBinding(kind, name, literal, "User:alice", "*", operation, allowed)
    for future in admin.create_acls([rule]).values():
        future.result(120)


def test_what_looking_and_resetting_need(
    admin: AdminClient, cluster: Callable[[str], KafkaCluster], topic: str
) -> None:
    group, place = f"g-{topic}", (topic, 0)
    cluster("admin").groups.commit(group, topic, {0: CommittedOffset(0)})
    alice = cluster("alice").groups
    assert alice.listings() == []
    with pytest.raises(ClusterError, match=f"cannot read the committed offsets of group {group}"):
        alice.committed([group])

    allow(admin, ResourceType.GROUP, group, AclOperation.DESCRIBE)
    allow(admin, ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    assert [listing.name for listing in alice.listings()] == [group]
    assert alice.describe([group])[group].state == "Empty"
    assert alice.committed([group]) == {group: {place: CommittedOffset(0)}}
    assert alice.bounds([place]) == {place: LogBounds(0, 1)}
    assert alice.first_stamps({place: 0}) == {}, "a figure less, and no error"
    with pytest.raises(ClusterError, match=f"cannot commit offsets of group {group}"):
        alice.commit(group, topic, {0: CommittedOffset(1)})

    allow(admin, ResourceType.TOPIC, topic, AclOperation.READ)
    allow(admin, ResourceType.GROUP, group, AclOperation.READ)
    assert alice.first_stamps({place: 0}) == {place: 1_000}
    alice.commit(group, topic, {0: CommittedOffset(1)})
    with pytest.raises(ClusterError, match=f"cannot delete offsets of group {group}"):
        alice.remove(group, topic, [0])

    allow(admin, ResourceType.GROUP, group, AclOperation.DELETE)
    alice.remove(group, topic, [0])
    assert alice.committed([group]) == {group: {}}


def test_reading_a_range_needs_no_right_on_a_group(
    admin: AdminClient, cluster: Callable[[str], KafkaCluster], topic: str
) -> None:
    """librdkafka asks for the coordinator of its group.id, also where it reads without a group."""
    allow(admin, ResourceType.TOPIC, topic, AclOperation.READ)
    ranges = [OffsetRange(0, 0, 1)]
    assert [m.value() for m in cluster("alice").read_range(topic, ranges)] == [b"x"]
