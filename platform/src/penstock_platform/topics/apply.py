"""Making the cluster agree with a topic's declaration, and reporting where it does not.

Only ever additive: a topic is created, partitions are added, configs are set. Nothing is deleted,
partitions are never taken away (Kafka cannot), and undeclared configs are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock_platform.kafka.cluster import KafkaCluster, TopicDescription
from penstock_platform.kafka.errors import UnknownTopicError
from penstock_platform.topics.model.declaration import TopicSpec


@dataclass(frozen=True, slots=True)
class Drift:
    """One thing in which the cluster differs. ``remedy`` says how to fix it."""

    name: str
    declared: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name} is {self.found}, declared {self.declared}; {self.remedy}"


def drift(spec: TopicSpec, found: TopicDescription) -> list[Drift]:
    """Where the cluster's topic differs from its declaration, configs by their effective value."""
    return list(_drift(spec, found))


def apply_topic(kafka: KafkaCluster, spec: TopicSpec) -> list[str]:
    """Create or alter the topic; returns what was changed, in sentences.

    A second run finds nothing to do. Killed in between, the next run does the rest.
    """
    try:
        found = kafka.describe(spec.name)
    except UnknownTopicError:
        configs = spec.broker_configs
        if kafka.create(spec.name, spec.spec.partitions, spec.spec.replicas, configs):
            return [f"created with {spec.spec.partitions} partitions"]
        found = kafka.describe(spec.name)
    changes: list[str] = []
    if found.partitions < spec.spec.partitions:
        kafka.grow(spec.name, spec.spec.partitions)
        changes.append(f"partitions {found.partitions} → {spec.spec.partitions}")
    wanted = {
        name: value
        for name, value in spec.broker_configs.items()
        if found.configs.get(name) != value
    }
    kafka.alter(spec.name, wanted)
    changes += [f"{n} {found.configs.get(n, 'unset')} → {v}" for n, v in sorted(wanted.items())]
    return changes


def _drift(spec: TopicSpec, found: TopicDescription) -> Iterator[Drift]:
    declared = spec.spec.partitions
    if found.partitions < declared:
        remedy = "materialise the topic"
        yield Drift("partitions", str(declared), str(found.partitions), remedy)
    elif found.partitions > declared:
        remedy = "Kafka cannot take partitions away: declare as many"
        yield Drift("partitions", str(declared), str(found.partitions), remedy)
    for name, value in sorted(spec.broker_configs.items()):
        if found.configs.get(name) != value:
            yield Drift(name, value, found.configs.get(name, "unset"), "materialise the topic")
