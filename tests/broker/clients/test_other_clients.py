"""kafka-python and aiokafka: two clients that share no code with librdkafka."""

from __future__ import annotations

import asyncio
import itertools
import threading
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from penstock_broker.testing.broker_process import BrokerProcess
from polling import until

WAIT = 120.0


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


# -- kafka-python -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [None, "gzip", "zstd"])
def test_kafka_python_produces_and_consumes(
    broker: BrokerProcess, topic: str, codec: str | None
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=codec, linger_ms=10
    )
    sent = [producer.send(topic, b"%d" % n, key=b"k", headers=[("h", b"1")]) for n in range(200)]
    assert [future.get(WAIT).offset for future in sent] == list(range(200))
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT * 1000),
    )
    consumer.assign([TopicPartition(topic, 0)])
    messages = list(itertools.islice(consumer, 200))
    assert [m.value for m in messages] == [b"%d" % n for n in range(200)]
    assert list(messages[0].headers) == [("h", b"1")]
    consumer.close()


def test_kafka_python_groups_rebalance_and_commit(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(topic, 4, 1)])
    stop = threading.Event()
    shares: dict[int, int] = {}

    def member(number: int) -> None:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=200,
        )
        while not stop.is_set():
            # A poll that is over before its join is leaves kafka-python 3.0.12 turning in circles
            # (against Apache Kafka, too), so it gets time.
            consumer.poll(1_500)
            shares[number] = len(consumer.assignment())
        consumer.close()

    members = [threading.Thread(target=member, args=(number,)) for number in range(2)]
    for thread in members:
        thread.start()
    try:
        until("both have two partitions", lambda: sorted(shares.values()) == [2, 2])
    finally:
        stop.set()
        for thread in members:
            thread.join(WAIT)
    admin.close()


def test_kafka_python_offsets(broker: BrokerProcess, topic: str, group: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for step in range(5):
        producer.send(topic, b"x", timestamp_ms=1_700_000_000_000 + step)
    producer.flush(WAIT)
    producer.close()
    place = TopicPartition(topic, 0)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=int(WAIT * 1000),
    )
    for message in itertools.islice(consumer, 3):
        assert message.offset < 3
    consumer.commit()
    assert consumer.committed(place) == 3
    assert consumer.beginning_offsets([place])[place] == 0
    assert consumer.end_offsets([place])[place] == 5
    assert consumer.offsets_for_times({place: 1_700_000_000_002})[place].offset == 2
    assert consumer.offsets_for_times({place: 1_800_000_000_000})[place] is None
    consumer.close()


def test_kafka_python_admin(broker: BrokerProcess, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(topic, 2, 1)])
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"]
    assert [b["port"] for b in cluster["brokers"]] == [broker.port]
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


# -- aiokafka -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_aiokafka_produces_and_consumes(
    broker: BrokerProcess, topic: str, codec: str | None
) -> None:
    """It asks for ApiVersions v0 and older versions of everything than the others."""
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=codec, enable_idempotence=True
    )
    await producer.start()
    sent = [await producer.send(topic, b"%d" % n, partition=0) for n in range(200)]
    results = await asyncio.wait_for(asyncio.gather(*sent), WAIT)
    assert [r.offset for r in results] == list(range(200))
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([_place(topic)])
    values = [(await asyncio.wait_for(consumer.getone(), WAIT)).value for _ in range(200)]
    assert values == [b"%d" % n for n in range(200)]
    await consumer.stop()


async def test_aiokafka_groups(broker: BrokerProcess, topic: str, group: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    await asyncio.wait_for(producer.send_and_wait(topic, b"first"), WAIT)
    for turn in range(2):
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        message = await asyncio.wait_for(consumer.getone(), WAIT)
        assert message.offset == turn, "the second consumer continues after the first"
        await consumer.commit()
        await consumer.stop()
        await asyncio.wait_for(producer.send_and_wait(topic, b"next"), WAIT)
    await producer.stop()


def _place(topic: str) -> object:
    from aiokafka import TopicPartition as Place  # noqa: PLC0415

    return Place(topic, 0)
