"""The admin clients of three families: topics, partitions, settings, groups, offsets, records."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as Place
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, Producer
from confluent_kafka import ConsumerGroupTopicPartitions as GroupOffsets
from confluent_kafka import TopicPartition as ConfluentPlace
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.structs import OffsetAndMetadata

from penstock_broker.testing.broker_process import BrokerProcess
from polling import until

WAIT = 120.0


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield admin
    admin.close()


@pytest.fixture
async def aio(broker: BrokerProcess) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    yield admin
    await admin.close()


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(WAIT) == 0


# -- kafka-python -------------------------------------------------------------------------------


def test_kafka_python_topics_and_settings(python: KafkaAdminClient, topic: str) -> None:
    python.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "120000"})])
    python.create_partitions({topic: 3})
    (described,) = python.describe_topics([topic])
    assert len(described["partitions"]) == 3
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"segment.bytes": "65536"})
    python.alter_configs([resource])
    asked = ConfigResource(ConfigResourceType.TOPIC, topic)
    found = python.describe_configs([asked], config_filter="all")["topic"][topic]
    assert found["segment.bytes"]["value"] == "65536"
    assert found["retention.ms"]["value"] == "120000"
    assert found["cleanup.policy"]["value"] == "delete"
    python.delete_topics([topic])
    assert topic not in python.list_topics()


def test_kafka_python_records_and_offsets(
    broker: BrokerProcess, python: KafkaAdminClient, topic: str, group: str
) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for _ in range(10):
        producer.send(topic, b"x", partition=0)
    producer.flush(WAIT)
    producer.close()
    place = TopicPartition(topic, 0)
    python.delete_records({place: 4})
    python.alter_group_offsets(group, {place: OffsetAndMetadata(7, "by hand", -1)})
    (found,) = python.list_group_offsets(group).values()
    assert (found[place].offset, found[place].metadata) == (7, "by hand")
    described = python.describe_groups([group])[group]
    assert described["group_state"] == "Empty"
    assert any(listed["group_id"] == group for listed in python.list_groups())
    python.delete_group_offsets(group, [place])
    python.delete_groups([group])
    assert all(listed["group_id"] != group for listed in python.list_groups())


# -- aiokafka -----------------------------------------------------------------------------------


async def test_aiokafka_topics_groups_and_records(
    broker: BrokerProcess, aio: AIOKafkaAdminClient, topic: str, group: str
) -> None:
    """It asks in old versions of everything."""
    await aio.create_topics([AioNewTopic(topic, 1, 1)])
    await aio.create_partitions({topic: AioNewPartitions(2)})
    (described,) = await aio.describe_topics([topic])
    assert len(described["partitions"]) == 2
    resource = AioResource(AioResourceType.TOPIC, topic, configs={"retention.ms": "60000"})
    await aio.alter_configs([resource])
    (answer,) = await aio.describe_configs([AioResource(AioResourceType.TOPIC, topic)])
    settings = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert settings["retention.ms"] == "60000"
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for _ in range(5):
        await producer.send_and_wait(topic, b"x", partition=0)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([Place(topic, 0)])
    await consumer.commit({Place(topic, 0): 3})
    await consumer.stop()
    assert (group, "") in {(name, kind) for name, kind, *_ in await aio.list_consumer_groups()}
    offsets = await aio.list_consumer_group_offsets(group)
    assert offsets[Place(topic, 0)].offset == 3
    deleted = await aio.delete_records({Place(topic, 0): _to_delete(3)})
    assert deleted[Place(topic, 0)] == 3
    await aio.delete_topics([topic])
    assert topic not in await aio.list_topics()


def _to_delete(offset: int) -> object:
    from aiokafka.admin import RecordsToDelete  # noqa: PLC0415

    return RecordsToDelete(before_offset=offset)


# -- librdkafka ---------------------------------------------------------------------------------


def a_member(broker: BrokerProcess, topic: str, group: str) -> Consumer:
    """A consumer that has its partitions."""
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    member.subscribe([topic])
    until("it has partitions", lambda: member.poll(0.05) or member.assignment())
    return member


def test_confluent_lists_groups_by_state_and_type(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    produce(broker, topic, 1)
    member = a_member(broker, topic, group)

    def listed(state: ConsumerGroupState) -> bool:
        result = admin.list_consumer_groups(states={state}).result(WAIT)
        return group in {found.group_id for found in result.valid}

    assert listed(ConsumerGroupState.STABLE)
    assert not listed(ConsumerGroupState.EMPTY)
    member.close()
    assert listed(ConsumerGroupState.EMPTY)


def test_confluent_moves_offsets_of_empty_groups_only(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    """Pitfall 39: an admin's commit is a simple consumer's."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    produce(broker, topic, 5)
    change = GroupOffsets(group, [ConfluentPlace(topic, 0, 2)])
    member = a_member(broker, topic, group)
    (refused,) = admin.alter_consumer_group_offsets([change])[group].result(WAIT).topic_partitions
    assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    member.close()
    admin.alter_consumer_group_offsets([change])[group].result(WAIT)
    found = admin.list_consumer_group_offsets([GroupOffsets(group)])[group].result(WAIT)
    assert [(p.topic, p.offset) for p in found.topic_partitions] == [(topic, 2)]
