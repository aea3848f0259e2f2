"""Faults on order, for a broker in a thread and as a process alike."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from penstock_broker.errors import ErrorCode
from penstock_broker.testing import BrokerProcess, RawClient, ThreadBroker
from penstock_broker.testing.raw_client import ConnectionClosed
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock_broker.wire.messages.metadata import MetadataRequest
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

Broker = ThreadBroker | BrokerProcess


@pytest.fixture(params=["thread", "process"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    kind = ThreadBroker if request.param == "thread" else BrokerProcess
    with kind(tmp_path / "data") as started:
        yield started


def produce_one(client: RawClient, topic: str, value: bytes = b"value") -> int:
    """The error code of a produce request."""
    records = memoryview(build_batch([NewRecord(None, value, 1_700_000_000_000)]))
    data = PartitionProduceData(index=0, records=records)
    topic_data = TopicProduceData(name=topic, partition_data=[data])
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic_data]), 8)
    return answer.responses[0].partition_responses[0].error_code


def end_offset(broker: Broker, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
    with broker.client() as client:
        answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5)
    return answer.topics[0].partitions[0].offset


def client_of(broker: Broker, name: str = "under-test") -> RawClient:
    return RawClient(broker.host, broker.port, client_id=name)


def test_the_next_requests_of_an_api_fail_and_no_others(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    with client_of(broker) as client:
        client.ask(MetadataRequest(topics=None), 9)
        codes = [produce_one(client, topic) for _ in range(3)]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2 + [0]
    assert end_offset(broker, topic) == 1
    assert broker.faults.seen("Produce") == 3
    assert broker.faults.seen() == 4, "the kit's own requests do not count"


def test_a_fault_of_one_client_leaves_others_alone(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.faults.fail("Produce", ErrorCode.KAFKA_STORAGE_ERROR, client_id="victim", times=None)
    with client_of(broker, "victim") as victim, client_of(broker, "other") as other:
        assert produce_one(other, topic) == 0
        assert produce_one(victim, topic) == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce_one(victim, topic) == ErrorCode.KAFKA_STORAGE_ERROR
        broker.faults.clear()
        assert produce_one(victim, topic) == 0


def test_faults_meet_requests_that_go_the_short_way(broker: Broker) -> None:
    """Requests that repeat earlier ones are handled together; an order ends that."""
    topic = broker.create_topic()
    with client_of(broker) as client:
        for _ in range(20):
            assert produce_one(client, topic) == 0
        broker.faults.fail("Produce", "KAFKA_STORAGE_ERROR")
        assert produce_one(client, topic) == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce_one(client, topic) == 0
    assert broker.faults.seen("Produce") == 22


def test_a_connection_breaks_before_or_after_the_work_is_done(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.faults.drop("Produce")
    with client_of(broker) as client, pytest.raises(ConnectionClosed):
        produce_one(client, topic)
    assert end_offset(broker, topic) == 0
    broker.faults.drop("Produce", after=True)
    with client_of(broker) as client, pytest.raises(ConnectionClosed):
        produce_one(client, topic)
    assert end_offset(broker, topic) == 1


def test_a_delay_holds_back_what_follows_on_the_connection(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.faults.delay("Produce", seconds=0.3)
    begun = time.monotonic()
    with client_of(broker) as slow, client_of(broker) as quick:
        slow.send(MetadataRequest(topics=None), 9)
        slow.receive()
        records = memoryview(build_batch([NewRecord(None, b"v", 1_700_000_000_000)]))
        data = PartitionProduceData(index=0, records=records)
        topic_data = TopicProduceData(name=topic, partition_data=[data])
        first = slow.send(ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[topic_data]), 8)
        second = slow.send(MetadataRequest(topics=None), 9)
        assert produce_one(quick, topic) == 0
        assert [slow.receive()[0], slow.receive()[0]] == [first, second]
        assert time.monotonic() - begun >= 0.3


def test_what_is_held_continues_when_it_is_released(broker: Broker) -> None:
    topic = broker.create_topic()
    broker.faults.hold("Produce")
    codes: list[int] = []
    with client_of(broker) as client:
        thread = threading.Thread(target=lambda: codes.append(produce_one(client, topic)))
        thread.start()
        deadline = time.monotonic() + 120
        while broker.faults.seen("Produce") < 1:
            assert time.monotonic() < deadline
        assert end_offset(broker, topic) == 0
        broker.faults.release()
        thread.join(10)
    assert codes == [0]
    assert end_offset(broker, topic) == 1


def test_a_frozen_broker_answers_no_client_until_it_thaws(broker: Broker) -> None:
    with client_of(broker) as client:
        client.ask(MetadataRequest(topics=None), 9)
        broker.freeze()
        client.send(MetadataRequest(topics=None), 9)
        assert client.is_silent(0.2)
        broker.thaw()
        client.receive()


def test_mistakes_in_orders_are_said(broker: Broker) -> None:
    with pytest.raises(ValueError, match=r"no API 'Produces'; there are .*Produce"):
        broker.faults.fail("Produces", "NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(ValueError, match="no Kafka error 'OUCH'"):
        broker.faults.fail("Produce", "OUCH")


def test_what_was_acknowledged_is_there_after_a_kill(broker: Broker) -> None:
    topic = broker.create_topic()
    with client_of(broker) as client:
        for _ in range(10):
            assert produce_one(client, topic) == 0
    port = broker.port
    broker.kill()
    broker.start()
    assert broker.port == port
    assert broker.topics() == [topic]
    assert end_offset(broker, topic) == 10


def test_an_idempotent_producer_survives_lost_answers_without_a_duplicate(broker: Broker) -> None:
    """The example of docs/TESTING.md, with librdkafka."""
    topic = broker.create_topic()
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
        }
    )
    broker.faults.drop("Produce", after=True)
    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    for number in range(20):
        producer.produce(
            topic, str(number), on_delivery=lambda e, _: failed.append(str(e)) if e else None
        )
        producer.poll(0)
    assert producer.flush(20) == 0
    assert not failed
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([Place(topic, 0, 0)])
    values = [m.value() for m in consumer.consume(20, timeout=120)]
    assert values == [str(number).encode() for number in range(20)]
    assert not consumer.consume(1, timeout=0.2)
    consumer.close()
