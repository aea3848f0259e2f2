"""A broker for the client's tests (our own; PENSTOCK_TEST_BOOTSTRAP names another), and helpers."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_client import AuditedProducer, MonitoringEvent
from penstock_client.audit import TopicAccount, find_audit_header, record_digest

BOOTSTRAP_VARIABLE = "PENSTOCK_TEST_BOOTSTRAP"


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        yield given
        return
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as process:
        yield process.bootstrap
        assert "Traceback" not in process.log(), process.log()


@dataclass
class Cluster:
    """Topics of a test's own: one for records, one for the audit."""

    bootstrap: str
    topic: str
    audit_topic: str

    def config(self, **extra: Any) -> dict[str, Any]:
        settings = {name.replace("_", "."): value for name, value in extra.items()}
        return {
            "bootstrap.servers": self.bootstrap,
            "audit.topic": self.audit_topic,
            "audit.interval.ms": 60_000,
            **settings,
        }

    def producer(self, **extra: Any) -> AuditedProducer:
        return AuditedProducer(self.config(**extra))

    def create(self, topic: str, partitions: int = 1, **configs: str) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        named = {name.replace("_", "."): value for name, value in configs.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, config=named)])[topic].result(10)
        return topic

    def messages(self, topic: str) -> list[Message]:
        """Everything in a topic, by partition and offset."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": uuid.uuid4().hex,
                "fetch.wait.max.ms": 10,
            }
        )
        try:
            described = consumer.list_topics(topic, timeout=120).topics[topic]
            left = 0
            places = []
            for partition in described.partitions:
                place = TopicPartition(topic, partition)
                low, high = consumer.get_watermark_offsets(place, timeout=10)
                left += high - low
                places.append(TopicPartition(topic, partition, low))
            consumer.assign(places)
            found: list[Message] = []
            while len(found) < left:
                for message in consumer.consume(left - len(found), timeout=0.05):
                    assert message.error() is None, message.error()
                    found.append(message)
            return sorted(found, key=lambda m: (m.partition(), m.offset()))
        finally:
            consumer.close()

    def events(self, incarnation: int | None = None) -> list[MonitoringEvent]:
        """The audit topic's events, of one incarnation or all, by number, copies left out."""
        found = [
            MonitoringEvent.from_bytes(m.value() or b"") for m in self.messages(self.audit_topic)
        ]
        mine = {e.uuid: e for e in found if incarnation in {None, e.incarnation}}
        return sorted(mine.values(), key=lambda event: (event.incarnation, event.number))

    def accounts(self, incarnation: int, topic: str | None = None) -> list[TopicAccount]:
        name = topic or self.topic
        events = self.events(incarnation)
        return [account for event in events for account in event.topics if account.topic == name]

    def assert_balanced(self, incarnation: int, topic: str | None = None) -> int:
        """Claims are exactly the incarnation's stored records, digests and sequences included;
        returns how many they are."""
        stored: dict[tuple[int, int], int] = {}
        sequences: list[int] = []
        for message in self.messages(topic or self.topic):
            header = find_audit_header(message.headers())
            if header is not None and header.incarnation == incarnation:
                place = (message.partition() or 0, message.offset() or 0)
                stored[place] = record_digest(header.sequence, message.key(), message.value())
                sequences.append(header.sequence)
                assert header.timestamp_ms == message.timestamp()[1]
        claimed: list[tuple[int, int]] = []
        said: list[int] = []
        for account in self.accounts(incarnation, topic):
            for claim in account.claims:
                places = [(claim.partition, o) for o in range(claim.start, claim.end)]
                claimed += places
                digest = sum(stored[place] for place in places) % 2**64
                assert digest == claim.digest, claim
            said += [s for first, end in account.sequences for s in range(first, end)]
        assert sorted(claimed) == sorted(stored)
        assert len(set(claimed)) == len(claimed)
        assert sorted(said) == sorted(sequences)
        return len(stored)


@pytest.fixture
def cluster(bootstrap: str) -> Cluster:
    name = f"c-{uuid.uuid4().hex[:10]}"
    made = Cluster(bootstrap, name, f"{name}-audit")
    made.create(made.topic, 3)
    made.create(made.audit_topic)
    return made
