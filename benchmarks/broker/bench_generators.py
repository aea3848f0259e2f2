"""What makes the load: confluent-kafka, or librdkafka's own ``rdkafka_performance``."""

from __future__ import annotations

import re
import subprocess
import time
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition

VALUE_BYTES = 200
CHUNK = 1_000
CONSUMER = {
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_000_000,
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 100,
    "enable.auto.commit": False,
}
Settings = dict[str, object]


class Generator(Protocol):
    """Produces and consumes; returns when all of it is done, with the seconds that it took where
    that is less than it looks from outside."""

    name: str
    scale: int
    """How many times the records it needs to be at speed."""

    def produce(
        self, bootstrap: str, topic: str, records: int, settings: Settings
    ) -> list[float]: ...

    def consume(self, bootstrap: str, topic: str, records: int) -> list[float]: ...


class Confluent:
    """confluent-kafka: librdkafka behind a Python loop, which is half of what is measured."""

    name = "confluent-kafka"
    scale = 1

    def __init__(self, value: bytes = b"x" * VALUE_BYTES) -> None:
        self.value = value

    def produce(self, bootstrap: str, topic: str, records: int, settings: Settings) -> list[float]:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 1_000_000,
                "log_level": 0,
                **settings,
            }
        )
        send, poll, value = producer.produce, producer.poll, self.value
        partition = 0 if settings.get("partitioner") is None else -1
        for number in range(records):
            try:
                send(topic, value, partition=partition)
            except BufferError:
                poll(0.1)
                send(topic, value, partition=partition)
            if number % CHUNK == 0:
                poll(0)
        left = producer.flush(180)
        if left:
            raise SystemExit(f"{left} records were not delivered")
        return []

    def consume(self, bootstrap: str, topic: str, records: int) -> list[float]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", **CONSUMER})
        consumer.assign([TopicPartition(topic, 0, 0)])
        count = 0
        while count < records:
            messages = consumer.consume(min(10_000, records - count), timeout=10)
            if not messages:
                raise SystemExit(f"only {count} of {records} records came")
            count += len(messages)
        consumer.close()
        return []


class Rdkafka:
    """librdkafka's C load generator: no Python in the way. Give its path."""

    name = "rdkafka_performance"
    scale = 3

    def __init__(self, path: str) -> None:
        self._path = path

    def produce(self, bootstrap: str, topic: str, records: int, settings: Settings) -> list[float]:
        settings = {"queue.buffering.max.messages": 500_000, **settings}
        acks = settings.pop("acks", -1)
        options = ["-P", "-s", str(VALUE_BYTES), "-a", str(acks), "-p", "0"]
        return self._run(bootstrap, topic, records, options, settings)

    def consume(self, bootstrap: str, topic: str, records: int) -> list[float]:
        options = ["-C", "-o", "beginning", "-p", "0"]
        return self._run(bootstrap, topic, records, options, dict(CONSUMER))

    def _run(
        self, bootstrap: str, topic: str, records: int, options: list[str], settings: Settings
    ) -> list[float]:
        command = [self._path, *options, "-q", "-t", topic, "-b", bootstrap, "-c", str(records)]
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["-X", f"{name}={text}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-500:]}{done.stderr[-500:]}")
        # It looks at the clock once a second before it ends; its own figure is exact.
        took = re.findall(r" in (\d+)ms: ", done.stdout + done.stderr)
        return [int(took[-1]) / 1_000] if took else []


def await_end(bootstrap: str, topic: str, records: int) -> None:
    """Return when the log has them: with acks=0 the producer does not know."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    deadline = time.monotonic() + 120
    while consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1] < records:
        if time.monotonic() > deadline:
            raise SystemExit("with acks=0 some records were lost")
        time.sleep(0.002)
    consumer.close()
