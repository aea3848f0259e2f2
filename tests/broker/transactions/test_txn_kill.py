"""kill -9 in the middle of transactions: consumers read what real clients were acknowledged."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.testing.broker_process import BrokerProcess
from polling import until

WAIT = 120.0
KILLS = 4
PARTITIONS = 3
RECORDS = 6
TOPIC = "ledger"


class Writer(threading.Thread):
    """Writes transactions one after the other, half of them aborted, and records each outcome."""

    def __init__(self, bootstrap: str, number: int, stop: threading.Event) -> None:
        super().__init__()
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.unknown: list[str] = []
        self.failure: BaseException | None = None
        self._stop_asked = stop
        self._number = number
        self._settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"writer-{number}",
            "transaction.timeout.ms": 10_000,
            "linger.ms": 1,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
        }

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._life()
        except BaseException as error:
            self.failure = error

    def _life(self) -> None:
        """One instance of the producer, until an error ends it."""
        producer = Producer(self._settings)
        producer.init_transactions(WAIT)
        while not self._stop_asked.is_set():
            name = uuid.uuid4().hex
            commit = random.random() < 0.6
            outcome = self.unknown if commit else self.aborted
            try:
                producer.begin_transaction()
                for each in range(RECORDS):
                    producer.produce(TOPIC, f"{name}-{each}".encode(), partition=each % PARTITIONS)
                producer.flush(WAIT)
                if commit:
                    producer.commit_transaction(WAIT)
                    outcome = self.committed
                else:
                    producer.abort_transaction(WAIT)
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    outcome = self.aborted
                    producer.abort_transaction(WAIT)
                    continue
                return
            finally:
                outcome.append(name)


def test_every_transaction_is_all_there_or_not_at_all(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker(
        log_segment_bytes="100000",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="200",
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT)
    stop = threading.Event()
    writers = [Writer(broker.bootstrap, number, stop) for number in range(3)]
    for writer in writers:
        writer.start()

    def committed() -> int:
        return sum(len(writer.committed) for writer in writers)

    try:
        for _ in range(KILLS):
            wanted = committed() + 20
            until("20 more are committed", lambda wanted=wanted: committed() >= wanted)
            stop.wait(random.random() * 0.2)
            broker.kill()
            broker.start()
    finally:
        stop.set()
        for writer in writers:
            writer.join(2 * WAIT)
    assert [writer.failure for writer in writers] == [None] * len(writers)
    found = read_committed(broker, sum(len(t.committed) for t in writers) * RECORDS)
    assert all(len(parts) == len(set(parts)) for parts in found.values()), "twice"
    for writer in writers:
        for name in writer.committed:
            assert len(found.pop(name, ())) == RECORDS, "committed, and not all there"
        for name in writer.unknown:
            assert len(found.pop(name, ())) in {0, RECORDS}, "in part"
    assert not found, "neither committed nor perhaps committed, and there"


def read_committed(broker: BrokerProcess, at_least: int) -> dict[str, list[str]]:
    """The records of each transaction that a read_committed consumer gets to see."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: dict[str, list[str]] = defaultdict(list)
    ended: set[int] = set()
    count = 0
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline and (len(ended) < PARTITIONS or count < at_least):
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition() or 0)
            continue
        name, _, number = (message.value() or b"").decode().partition("-")
        found[name].append(number)
        count += 1
    consumer.close()
    return found
