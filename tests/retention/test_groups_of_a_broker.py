"""The groups that retention waits for, asked of a real broker."""

from __future__ import annotations

from typing import Any

from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.kafka.model import CommittedOffset
from penstock_platform.retention.look import group_progress
from penstock_platform.testing.connections import MemoryConnections
from penstock_platform.topics.model.declaration import parse_topic


def test_what_a_brokers_groups_have_read(kafka: KafkaCluster, topic: Any, group: str) -> None:
    name, other = topic(30, 20), topic(5)
    kafka.groups.commit(group, name, {0: CommittedOffset(12)})
    kafka.groups.commit(group, other, {0: CommittedOffset(5)})
    elsewhere = f"{group}-elsewhere"
    kafka.groups.commit(elsewhere, other, {0: CommittedOffset(5)})
    absent = f"{group}-absent"
    spec = parse_topic(
        {
            "metadata": {"name": name},
            "land": {},
            "retention": {"hold_for": [group, elsewhere, absent]},
        }
    )
    found = group_progress(MemoryConnections(kafka=kafka), spec, [])
    assert [(g.group, dict(g.read_to), g.problem) for g in found] == [
        (group, {0: 12}, ""),
        (elsewhere, {}, ""),
        (absent, {}, "does not exist"),
    ]
