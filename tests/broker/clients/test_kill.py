"""kill -9 under load: what was acknowledged is there, once, at the acknowledged offset."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.testing.broker_process import BrokerProcess
from polling import until

WAIT = 120.0
KILLS = 3
PARTITIONS = 3


def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker(log_segment_bytes="200000")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("audited", PARTITIONS, 1)])["audited"].result(WAIT)
    acknowledged: dict[int, tuple[int, int]] = {}
    failed: list[KafkaError] = []
    stop = threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "delivery.timeout.ms": 60_000,
        }
    )

    def load() -> None:
        number = 0
        while not stop.is_set():
            producer.produce(
                "audited",
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=_note(number, acknowledged, failed),
            )
            number += 1
            producer.poll(0.001 if number % 20 == 0 else 0)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        chance = random.Random(7)
        for _ in range(KILLS):
            _await_more(acknowledged, 500)
            stop.wait(chance.random() * 0.2)
            broker.kill()
            broker.start()
    finally:
        stop.set()
        thread.join(WAIT)
    assert producer.flush(WAIT) == 0
    assert not failed
    stored = _read_all(broker)
    for number, place in acknowledged.items():
        assert stored[place] == number, f"record {number} was acknowledged at {place}"
    assert len(set(stored.values())) == len(stored), "a record is there twice"
    for partition in range(PARTITIONS):
        numbers = [stored[place] for place in sorted(stored) if place[0] == partition]
        assert numbers == sorted(numbers), "the order of a partition was kept"


def _note(
    number: int, acknowledged: dict[int, tuple[int, int]], failed: list[KafkaError]
) -> Callable[[KafkaError | None, Message], None]:
    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            acknowledged[number] = (message.partition(), message.offset())

    return note


def _await_more(acknowledged: dict[int, tuple[int, int]], count: int) -> None:
    wanted = len(acknowledged) + count
    until(f"{wanted} records are acknowledged", lambda: len(acknowledged) >= wanted)


def _read_all(broker: BrokerProcess) -> dict[tuple[int, int], int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
    places = [TopicPartition("audited", p, 0) for p in range(PARTITIONS)]
    ends = {p.partition: consumer.get_watermark_offsets(p, WAIT)[1] for p in places}
    consumer.assign(places)
    stored: dict[tuple[int, int], int] = {}
    deadline = time.monotonic() + WAIT
    while len(stored) < sum(ends.values()):
        assert time.monotonic() < deadline
        for message in consumer.consume(1_000, 0.2):
            assert message.error() is None
            stored[message.partition(), message.offset()] = int(message.value())
    consumer.close()
    return stored
