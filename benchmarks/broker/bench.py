"""How fast is the broker? The experiment of the Kafka paper, with confluent-kafka as generator.

    .venv/bin/python benchmarks/broker/bench.py                       our broker alone
    .venv/bin/python benchmarks/broker/bench.py --bootstrap-servers H:P  and a peer, with ratios

200-byte records, one producer, one partition, batches of 1 and of 50 with acks 1 (and librdkafka's
defaults), then one consumer over what was produced, in several passes. Rounds are interleaved;
the table shows medians. Also printed: CPU seconds of the broker process for a million records,
its resident memory after the run, and the time from its start to the first accepted record.

Read with care: the generator is Python and shares the cores with the broker, so ratios to a peer in
the same run mean more than the numbers. A peer's CPU and memory are shown when it listens on this
machine and its process may be looked at.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.testing.broker_process import BrokerProcess

VALUE = b"x" * 200
CHUNK = 1_000
CONSUMED = 1_000_000
"""Records that a consumer reads at least, in passes: one would be over before it is at speed."""

WORKLOADS: dict[str, dict[str, object]] = {
    "produce batch 1": {"batch.num.messages": 1, "linger.ms": 0, "acks": 1},
    "produce batch 50": {"batch.num.messages": 50, "linger.ms": 5, "acks": 1},
    "produce defaults, acks all": {},
}
CONSUMER = {
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_000_000,
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 100,
    "enable.auto.commit": False,
}


@dataclass
class Target:
    """A broker that is measured."""

    name: str
    bootstrap: str
    process: psutil.Process | None
    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def cpu_seconds(self) -> float:
        if self.process is None:
            return 0.0
        times = self.process.cpu_times()
        return float(times.user + times.system)

    @contextlib.contextmanager
    def measured(self, workload: str, records: int) -> Iterator[None]:
        cpu, began = self.cpu_seconds(), time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        self.rates.setdefault(workload, []).append(records / seconds)
        spent = (self.cpu_seconds() - cpu) / records * 1e6
        self.cpu.setdefault(workload, []).append(spent)


def create_topic(bootstrap: str) -> str:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(30)
    return name


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([name]).values():
        future.result(30)


def produce(bootstrap: str, topic: str, records: int, settings: dict[str, object]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "log_level": 0,
            **settings,
        }
    )
    send, poll = producer.produce, producer.poll
    for number in range(records):
        try:
            send(topic, VALUE, partition=0)
        except BufferError:
            poll(0.1)
            send(topic, VALUE, partition=0)
        if number % CHUNK == 0:
            poll(0)
    left = producer.flush(120)
    if left:
        raise SystemExit(f"{left} records were not delivered")


def consume(bootstrap: str, topic: str, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", **CONSUMER})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = 0
    while count < records:
        messages = consumer.consume(min(10_000, records - count), timeout=5)
        if not messages:
            raise SystemExit(f"only {count} of {records} records came")
        count += len(messages)
    consumer.close()


def listener_of(bootstrap: str) -> psutil.Process | None:
    """The process on this machine that listens on the port, if we may know."""
    port = int(bootstrap.rpartition(":")[2])
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                return psutil.Process(connection.pid) if connection.pid else None
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return None
    return None


def start_seconds(directory: Path) -> float:
    """From the start of the process to the first acknowledged record."""
    began = time.perf_counter()
    with BrokerProcess(directory / "data") as broker:
        topic_producer = Producer({"bootstrap.servers": broker.bootstrap})
        topic_producer.produce("first", VALUE)
        topic_producer.flush(30)
        return time.perf_counter() - began


def run(targets: list[Target], records: int, rounds: int) -> None:
    for number in range(rounds + 1):
        for workload, settings in WORKLOADS.items():
            share = records if "batch 1" not in workload else records // 4
            for target in targets:
                topic = create_topic(target.bootstrap)
                if number == 0:  # warm up: a cold JVM is 40 % slower
                    produce(target.bootstrap, topic, share // 4, settings)
                    delete_topic(target.bootstrap, topic)
                    continue
                with target.measured(workload, share):
                    produce(target.bootstrap, topic, share, settings)
                passes = max(1, CONSUMED // share)
                with target.measured(workload.replace("produce", "consume"), share * passes):
                    for _ in range(passes):
                        consume(target.bootstrap, topic, share)
                delete_topic(target.bootstrap, topic)


def report(targets: list[Target]) -> None:
    ours = targets[0]
    head = f"{'workload':<28}"
    for target in targets:
        head += f"{target.name + ' msg/s':>16}{'CPU s/M':>10}"
    print(head + (f"{'ratio':>8}" if len(targets) > 1 else ""))
    for workload in sorted(ours.rates):
        line = f"{workload:<28}"
        for target in targets:
            rate = statistics.median(target.rates[workload])
            line += f"{rate:>16,.0f}{statistics.median(target.cpu[workload]):>10.2f}"
        if len(targets) > 1:
            peer = statistics.median(targets[1].rates[workload])
            line += f"{statistics.median(ours.rates[workload]) / peer:>8.2f}"
        print(line)
    for target in targets:
        if target.process is not None:
            print(f"{target.name}: {target.process.memory_info().rss / 2**20:.0f} MB resident")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", help="a peer to compare with")
    parser.add_argument("--peer-name", default="peer")
    parser.add_argument("--records", type=int, default=400_000, help="of a round and workload")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(f"start to first record: {start_seconds(Path(directory) / 'start'):.2f} s")
        with BrokerProcess(Path(directory) / "run" / "data") as broker:
            targets = [Target("penstock", broker.bootstrap, psutil.Process(broker.pid))]
            peer = arguments.bootstrap_servers
            if peer:
                targets.append(Target(arguments.peer_name, peer, listener_of(peer)))
            run(targets, arguments.records, arguments.rounds)
            report(targets)


if __name__ == "__main__":
    main()
