"""Transactions as real clients use them: all or nothing, fencing, and consume-transform-produce."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from penstock_broker.testing.broker_process import BrokerProcess

WAIT = 120.0
PARTITIONS = 3


@pytest.fixture
def name(broker: BrokerProcess, topic: str) -> str:
    """A topic of some partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT)
    return topic


@pytest.fixture
def transactional_id() -> str:
    return f"x-{uuid.uuid4().hex[:12]}"


def transactional(broker: BrokerProcess, transactional_id: str, **settings: object) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "retry.backoff.ms": 20,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    producer.init_transactions(WAIT)
    return producer


def write(producer: Producer, topic: str, values: list[str]) -> None:
    """Each value to the next partition; all of them are in the log when this returns."""
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)
    assert producer.flush(WAIT) == 0


def read_all(broker: BrokerProcess, topic: str, isolation: str) -> list[str]:
    """Everything that a consumer of this isolation level gets to see, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[str] = []
    ended = 0
    deadline = time.monotonic() + WAIT
    while ended < PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            ended += 1
            continue
        value = message.value()
        found.append(value.decode() if value else "")
    consumer.close()
    assert ended == PARTITIONS
    return sorted(found)


def test_committed_transactions_are_read_and_aborted_ones_are_not(
    broker: BrokerProcess, name: str, transactional_id: str
) -> None:
    producer = transactional(broker, transactional_id)
    for number in range(6):
        producer.begin_transaction()
        write(producer, name, [f"{number}-{each}" for each in range(7)])
        if number % 2:
            producer.abort_transaction(WAIT)
        else:
            producer.commit_transaction(WAIT)
    committed = sorted(f"{number}-{each}" for number in (0, 2, 4) for each in range(7))
    assert read_all(broker, name, "read_committed") == committed
    assert len(read_all(broker, name, "read_uncommitted")) == 42


def test_what_is_not_decided_holds_back_what_comes_behind_it(
    broker: BrokerProcess, name: str, transactional_id: str
) -> None:
    slow = transactional(broker, transactional_id)
    slow.begin_transaction()
    write(slow, name, ["slow-0", "slow-1", "slow-2"])
    quick = transactional(broker, transactional_id + "-other")
    quick.begin_transaction()
    write(quick, name, ["quick-0", "quick-1", "quick-2"])
    quick.commit_transaction(WAIT)
    assert read_all(broker, name, "read_committed") == []
    assert len(read_all(broker, name, "read_uncommitted")) == 6
    slow.abort_transaction(WAIT)
    assert read_all(broker, name, "read_committed") == ["quick-0", "quick-1", "quick-2"]


def test_a_consumer_that_waits_sees_a_commit_at_once(
    broker: BrokerProcess, name: str, transactional_id: str
) -> None:
    """The marker itself is smaller than what the consumer waits for."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": transactional_id,
            "isolation.level": "read_committed",
            "fetch.min.bytes": 500,
            "fetch.wait.max.ms": 290_000,
            "socket.timeout.ms": 300_000,
        }
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    assert consumer.poll(0.5) is None
    producer = transactional(broker, transactional_id)
    producer.begin_transaction()
    producer.produce(name, b"v" * 1_000, partition=0)
    producer.flush(WAIT)
    assert consumer.poll(0.3) is None
    producer.commit_transaction(WAIT)
    message = consumer.poll(WAIT)
    consumer.close()
    assert message is not None
    assert message.value() == b"v" * 1_000


def test_a_newer_instance_fences_the_older_one(
    broker: BrokerProcess, name: str, transactional_id: str
) -> None:
    """Pitfall 28: the older one learns on its next request that it is over."""
    zombie = transactional(broker, transactional_id)
    zombie.begin_transaction()
    write(zombie, name, ["zombie-0", "zombie-1", "zombie-2"])
    newer = transactional(broker, transactional_id)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(WAIT)
    assert raised.value.args[0].fatal()
    newer.begin_transaction()
    write(newer, name, ["new"])
    newer.commit_transaction(WAIT)
    assert read_all(broker, name, "read_committed") == ["new"]


def test_offsets_count_when_the_transaction_commits(
    broker: BrokerProcess, name: str, transactional_id: str
) -> None:
    group = f"g-{transactional_id}"
    place = TopicPartition(name, 0)
    source = transactional(broker, transactional_id + "-source")
    source.begin_transaction()
    write(source, name, [str(number) for number in range(9)])
    source.commit_transaction(WAIT)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([name])
    assert _poll(consumer) is not None
    producer = transactional(broker, transactional_id)
    producer.begin_transaction()
    offset = [TopicPartition(name, 0, 2)]
    producer.send_offsets_to_transaction(offset, consumer.consumer_group_metadata(), WAIT)
    producer.abort_transaction(WAIT)
    assert consumer.committed([place], WAIT)[0].offset < 0
    producer.begin_transaction()
    offset = [TopicPartition(name, 0, 3)]
    producer.send_offsets_to_transaction(offset, consumer.consumer_group_metadata(), WAIT)
    producer.commit_transaction(WAIT)
    assert consumer.committed([place], WAIT)[0].offset == 3
    consumer.close()


def _poll(consumer: Consumer) -> object:
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            return message
    return None


def test_kafka_python_commits_aborts_and_reads_committed(
    broker: BrokerProcess, name: str, transactional_id: str
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=transactional_id, retry_backoff_ms=20
    )
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for each in range(5):
            producer.send(name, f"{number}-{each}".encode(), partition=each % PARTITIONS)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    newer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id)
    newer.init_transactions()
    with pytest.raises(PythonKafkaError):
        producer.begin_transaction()
        producer.send(name, b"zombie", partition=0).get(WAIT)
        producer.commit_transaction()
    producer.close(timeout=5)
    newer.close(timeout=5)
    consumer = KafkaConsumer(
        name,
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=2_000,
    )
    found = sorted(message.value.decode() for message in consumer)
    consumer.close()
    assert found == sorted(f"{number}-{each}" for number in (0, 2) for each in range(5))


def test_aiokafka_commits_aborts_and_sends_offsets(
    broker: BrokerProcess, name: str, transactional_id: str
) -> None:
    group = f"g-{transactional_id}"

    async def run() -> tuple[list[str], int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=transactional_id
        )
        await producer.start()
        for number in range(4):
            await producer.begin_transaction()
            for each in range(5):
                value = f"{number}-{each}".encode()
                await producer.send_and_wait(name, value, partition=each % PARTITIONS)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        consumer = AIOKafkaConsumer(
            name,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        found: list[str] = []
        async with asyncio.timeout(WAIT):
            while len(found) < 10:
                for messages in (await consumer.getmany(timeout_ms=500)).values():
                    found += [message.value.decode() for message in messages]
        place = next(iter(p for p in consumer.assignment() if p.partition == 0))
        async with producer.transaction():
            await producer.send_offsets_to_transaction({place: 2}, group)
        committed = await consumer.committed(place)
        await consumer.stop()
        await producer.stop()
        return sorted(found), committed

    found, committed = asyncio.run(run())
    assert found == sorted(f"{number}-{each}" for number in (0, 2) for each in range(5))
    assert committed == 2


@pytest.fixture
def short_lived(new_broker: Callable[..., BrokerProcess]) -> Iterator[BrokerProcess]:
    """A broker that looks for transactions whose time is up all the time."""
    yield new_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms="100")


def test_a_transaction_whose_time_is_up_is_aborted_and_its_producer_fenced(
    short_lived: BrokerProcess, transactional_id: str
) -> None:
    """Pitfall 28: expiry fences, so that the old producer cannot continue where it was."""
    admin = AdminClient({"bootstrap.servers": short_lived.bootstrap})
    admin.create_topics([NewTopic("timed", PARTITIONS, 1)])["timed"].result(WAIT)
    producer = transactional(short_lived, transactional_id, transaction_timeout_ms=1_000)
    producer.begin_transaction()
    write(producer, "timed", ["late"])
    deadline = time.monotonic() + WAIT
    while read_all(short_lived, "timed", "read_uncommitted") and time.monotonic() < deadline:
        described = short_lived.log()
        if "has been open for" in described:
            break
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT)
    assert read_all(short_lived, "timed", "read_committed") == []
