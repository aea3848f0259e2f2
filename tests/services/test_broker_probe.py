"""The probe of our own broker repeats what the broker says of itself."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.testing import MemFiles, RawClient, ThreadBroker
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock_platform.settings import KafkaSettings, Settings
from penstock_services.probes import NotReady, probe_broker

HTTP = "penstock.http.listener"


def settings_of(broker: ThreadBroker, http: str) -> Settings:
    kafka = KafkaSettings(port=broker.port, broker={HTTP: http} if http else {})
    return Settings(home=broker.data_dir.parent, kafka=kafka)


def http_of(broker: ThreadBroker) -> str:
    found = broker.broker.observation.address
    assert found is not None
    return f"{found[0]}:{found[1]}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadBroker]:
    with ThreadBroker(tmp_path / "data", {HTTP: "127.0.0.1:0"}, files=MemFiles()) as started:
        yield started


def test_a_broker_that_is_ready(broker: ThreadBroker) -> None:
    broker.create_topic("orders")
    assert probe_broker(settings_of(broker, http_of(broker))) == "1 broker(s), 1 topic(s)"


def test_a_broker_without_http_is_asked_as_any_kafka(broker: ThreadBroker) -> None:
    assert probe_broker(settings_of(broker, "")) == "1 broker(s), 0 topic(s)"


def test_an_offline_partition_is_named(broker: ThreadBroker) -> None:
    assert broker.files is not None
    topic = broker.create_topic("orders")
    broker.files.fail("write", errno.EIO, path_part="orders-0")
    records = memoryview(build_batch([NewRecord(None, b"v", 1_700_000_000_000)]))
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
    )
    with RawClient(broker.host, broker.port) as client:
        client.ask(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data]), 8)
    with pytest.raises(NotReady, match="orders-0 is offline: "):
        probe_broker(settings_of(broker, http_of(broker)))


def test_a_broker_that_is_gone(broker: ThreadBroker) -> None:
    settings = settings_of(broker, http_of(broker))
    broker.stop()
    with pytest.raises(NotReady):
        probe_broker(settings)
