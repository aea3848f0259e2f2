"""Short ways to make records and windows on a real broker, S3 and Spark Connect server, which the
fixture ``penstock`` starts once: the files that use it share an xdist group."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from penstock_platform.connections import Connections
from penstock_platform.testing.clock import EPOCH
from penstock_platform.topics.model.cron import CronWindow
from penstock_platform.windows.model.window import FreezePlan, Window, plan_freeze
from penstock_platform.windows.store import WindowStore

# (partition, key, value, headers)
Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class Desk:
    """One topic under test: send records, freeze windows."""

    def __init__(self, connections: Connections, topic: str, partitions: int) -> None:
        self.penstock = connections
        self.topic = topic
        connections.kafka.create(topic, partitions)

    def send(self, records: Iterable[Record]) -> None:
        producer = Producer(
            {"bootstrap.servers": self.penstock.settings.bootstrap_servers, "linger.ms": 20}
        )
        for partition, key, value, headers in records:
            while True:
                try:
                    producer.produce(
                        self.topic, value, key, partition=partition, headers=headers or None
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0

    def send_values(self, values: Sequence[bytes | None], partition: int = 0) -> None:
        self.send((partition, None, value, []) for value in values)

    def freeze(self) -> Window:
        """The next window of the chain: everything that is there now."""
        store = WindowStore.of(self.penstock)
        ref = self.penstock.kafka.ref(self.topic)
        newest = store.newest(ref)
        opens = EPOCH + timedelta(minutes=newest.sequence + 1 if newest else 0)
        due = CronWindow(opens, opens + timedelta(minutes=1))
        plan = FreezePlan(
            ref,
            self.penstock.kafka.offsets(self.topic),
            max_records=10_000_000,
            frozen_at=due.closes,
            code_version="test",
        )
        (window,) = plan_freeze(plan, newest, [due])
        assert store.publish(window)
        return window


@pytest.fixture
def desk(penstock: Connections) -> Callable[..., Desk]:
    """Make a topic: ``desk("orders", partitions=2)``; its name gets a suffix of its own."""

    def make(name: str, partitions: int = 1) -> Desk:
        return Desk(penstock, f"{name}-{uuid.uuid4().hex[:6]}", partitions)

    return make
