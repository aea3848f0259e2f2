"""What is measured: throughputs, and the figures that are taken once."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bench_generators import Confluent, Generator, Settings, await_end
from bench_targets import Target
from confluent_kafka import Consumer, Producer, TopicPartition

CONSUMED = 1_000_000
"""Records that a consumer reads at least, in passes: one would be over before it is at speed."""


@dataclass(frozen=True)
class Workload:
    """One row of the table. ``share`` of the records of a round are produced."""

    name: str
    settings: Settings = field(default_factory=dict)
    share: float = 1.0
    partitions: int = 1
    consumed_as: str = ""


def _batch(size: int, acks: int) -> Settings:
    return {"batch.num.messages": size, "linger.ms": 0 if size == 1 else 5, "acks": acks}


WORKLOADS = [
    Workload("produce, batch 1, acks 0", _batch(1, 0), 0.25),
    Workload("produce, batch 1, acks 1", _batch(1, 1), 0.25, 1, "consume, batch-1 log"),
    Workload("produce, batch 50, acks 1", _batch(50, 1), 1.0, 1, "consume, batch-50 log"),
    Workload("produce, batch 50, acks all", _batch(50, -1)),
    Workload("produce, librdkafka defaults", {}, 2.0, 1, "consume, default log"),
    *(
        Workload(f"produce, defaults, {codec}", {"compression.codec": codec}, 1.0)
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
    Workload("produce, defaults, 1,000 partitions", {"partitioner": "random"}, 0.5, 1_000),
]


def run(target: Target, workload: Workload, generator: Generator, records: int) -> None:
    """One round of one row."""
    count = int(records * workload.share)
    if workload.partitions == 1:
        count *= generator.scale
    topic = target.create_topic(workload.partitions)
    if workload.partitions > 1:
        generator = Confluent()  # the other one names its partition
        generator.produce(target.bootstrap, topic, 20 * workload.partitions, workload.settings)
    with target.measured(workload.name, count) as seconds:
        seconds.extend(generator.produce(target.bootstrap, topic, count, workload.settings))
        if workload.settings.get("acks") == 0:
            await_end(target.bootstrap, topic, count)
    if workload.consumed_as:
        passes = max(1, CONSUMED // count)
        with target.measured(workload.consumed_as, count * passes) as seconds:
            for _ in range(passes):
                seconds.extend(generator.consume(target.bootstrap, topic, count))
    target.delete_topic(topic)


def warm_up(target: Target, generator: Generator, records: int) -> None:
    """A cold JVM is 40 % slower."""
    for workload in WORKLOADS[:6]:
        topic = target.create_topic()
        generator.produce(target.bootstrap, topic, records // 4, workload.settings)
        generator.consume(target.bootstrap, topic, records // 4)
        target.delete_topic(topic)


# -- taken once ---------------------------------------------------------------------------------


def latency(target: Target, seconds: float = 10.0, rate: int = 1_000) -> None:
    """End to end at a steady rate: from before ``produce`` to after ``poll`` of a consumer that
    waits. p50 and p99 in ms."""
    topic = target.create_topic()
    consumer = Consumer(
        {"bootstrap.servers": target.bootstrap, "group.id": "bench", "fetch.wait.max.ms": 100}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[float] = []
    total = int(seconds * rate)

    def read() -> None:
        while len(found) < total:
            message = consumer.poll(5)
            if message is None:
                return
            if message.error() is None:
                found.append(time.perf_counter() - float(message.value()))

    reader = threading.Thread(target=read)
    reader.start()
    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 0, "acks": 1})
    producer.produce(topic, repr(time.perf_counter()).encode(), partition=0)
    producer.flush(10)
    began = time.perf_counter()
    for number in range(total - 1):
        delay = began + number / rate - time.perf_counter()
        if delay > 0:
            time.sleep(delay)
        producer.produce(topic, repr(time.perf_counter()).encode().ljust(200), partition=0)
        producer.poll(0)
    producer.flush(10)
    reader.join()
    consumer.close()
    target.delete_topic(topic)
    steady = found[rate:]  # without the first second
    target.facts["end to end p50, ms"] = statistics.median(steady) * 1e3
    target.facts["end to end p99, ms"] = statistics.quantiles(steady, n=100)[98] * 1e3


def connections(target: Target, idle: int = 1_000, active: int = 100, each: int = 4_000) -> None:
    """Throughput of many clients, with and without as many more that are silent; and what the
    silent ones hold in memory."""
    topic = target.create_topic(active)
    before = target.resident_mb()
    host, port = target.bootstrap.rsplit(":", 1)
    silent = [socket.create_connection((host, int(port))) for _ in range(idle)]
    time.sleep(1)
    target.facts[f"{idle:,} idle connections, MB"] = target.resident_mb() - before
    value = Confluent().value
    settings = {"bootstrap.servers": target.bootstrap, "linger.ms": 5, "acks": 1}
    producers = [Producer(settings) for _ in range(active)]

    def client(number: int, count: int) -> None:
        producer = producers[number]
        for _ in range(count):
            producer.produce(topic, value, partition=number)
        producer.flush(120)

    with ThreadPoolExecutor(active) as pool:
        list(pool.map(client, range(active), [1] * active))  # connected
        name = f"produce, {active} active and {idle:,} idle connections"
        with target.measured(name, active * each):
            list(pool.map(client, range(active), [each] * active))
    for one in silent:
        one.close()
    target.delete_topic(topic)


def backlog(target: Target, gigabytes: float, generator: Generator, records: int) -> None:
    """Throughput with so much stored: with a log, nothing should change."""
    topic = target.create_topic()
    stored = int(gigabytes * 2**30 / 210)
    filler = Confluent(b"x" * 100_000)
    filler.produce(target.bootstrap, topic, int(stored * 210 / 100_000), {"batch.size": 1_000_000})
    name = f"produce, librdkafka defaults, {gigabytes:g} GB stored"
    with target.measured(name, records) as seconds:
        seconds.extend(generator.produce(target.bootstrap, topic, records, {}))
    target.delete_topic(topic)


def tcp_round_trip() -> float:
    """Median µs of one byte there and back on this machine, to know what kind of machine it is."""
    code = (
        "import socket\ns=socket.create_server(('127.0.0.1',0))\n"
        "print(s.getsockname()[1],flush=True)\nc,_=s.accept()\nwhile c.send(c.recv(1)):pass"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert other.stdout is not None
    times = []
    with socket.create_connection(("127.0.0.1", int(other.stdout.readline()))) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2_000):
            began = time.perf_counter()
            one.send(b"x")
            one.recv(1)
            times.append(time.perf_counter() - began)
    other.kill()
    other.wait()
    return statistics.median(times) * 1e6
