"""Thousands of partitions on one broker: memory, idle CPU, start, stop, and describing them.

An empty broker is measured beside it, so that what the partitions cost is the difference.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from bench_generators import Confluent, Generator
from confluent_kafka.admin import AdminClient, NewTopic
from size_files import Facts

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from penstock_broker.wire.messages.metadata import MetadataRequest

BYTES_OF_ONE = 40_000
"""On the disk, generously: a file system gives a block to each of its small files."""
PAGE_SIZES = (2_000, 200)
METADATA_VERSION = 12
WRITTEN = 20
"""Records in each partition, on average."""
REST_SECONDS = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--topics", type=int, default=5, help="that share them")
    parser.add_argument("--idle-seconds", type=float, default=120.0, help="of each idle look")


def bytes_needed(arguments: argparse.Namespace, generator: Generator) -> int:
    return int(arguments.partitions * BYTES_OF_ONE)


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def idle_cpu(process: psutil.Process, seconds: float) -> float:
    """CPU seconds a minute while no client asks for anything."""
    time.sleep(REST_SECONDS)
    before, began = cpu_of(process), time.monotonic()
    time.sleep(seconds)
    return (cpu_of(process) - before) / (time.monotonic() - began) * 60


@contextlib.contextmanager
def noted(facts: Facts, name: str, process: psutil.Process) -> Iterator[None]:
    """Seconds of what is done inside, and the broker's CPU seconds."""
    cpu, began = cpu_of(process), time.monotonic()
    yield
    facts[f"{name}, s"] = time.monotonic() - began
    facts[f"{name}: CPU of the broker, s"] = cpu_of(process) - cpu


def resident_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 2**20)


def started(broker: BrokerProcess, facts: Facts, name: str) -> psutil.Process:
    began = time.monotonic()
    broker.start()
    facts[f"{name}, s"] = time.monotonic() - began
    process = psutil.Process(broker.pid)
    facts[f"{name}: CPU, s"] = cpu_of(process)
    return process


def described(broker: BrokerProcess, page: int) -> tuple[float, int, int]:
    """All partitions by pages: seconds, pages, partitions."""
    cursor, pages, seen = None, 0, 0
    with RawClient(broker.host, broker.port) as client:
        began = time.monotonic()
        while True:
            request = DescribeTopicPartitionsRequest(
                topics=[], response_partition_limit=page, cursor=cursor
            )
            answer = client.ask(request, 0)
            pages += 1
            seen += sum(len(topic.partitions) for topic in answer.topics)
            following = answer.next_cursor
            if following is None:
                return time.monotonic() - began, pages, seen
            cursor = Cursor(
                topic_name=following.topic_name, partition_index=following.partition_index
            )


def metadata(broker: BrokerProcess) -> tuple[float, float]:
    """Metadata of all topics, as bytes: ms of the first answer, and of one more."""
    took = []
    with RawClient(broker.host, broker.port) as client:
        for _ in range(2):
            began = time.monotonic()
            client.send(MetadataRequest(topics=None), METADATA_VERSION)
            client.receive_frame()
            took.append((time.monotonic() - began) * 1e3)
    return took[0], took[1]


def look(broker: BrokerProcess, process: psutil.Process, facts: Facts) -> None:
    """What clients ask that lists everything."""
    for page in PAGE_SIZES:
        cpu = cpu_of(process)
        seconds, pages, seen = described(broker, page)
        name = f"DescribeTopicPartitions of all, by {page:,}"
        facts[f"{name}, s"], facts[f"{name}: pages"] = seconds, pages
        facts[f"{name}: partitions"] = seen
        facts[f"{name}: CPU of the broker, s"] = cpu_of(process) - cpu
    first, more = metadata(broker)
    facts["Metadata of all, first, ms"], facts["Metadata of all, again, ms"] = first, more
    with noted(facts, "Metadata of all by confluent-kafka", process):
        AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60)


def waiting_consumer(broker: BrokerProcess, names: list[str], each: int, seconds: float) -> float:
    """CPU seconds a minute while one consumer of all partitions waits at their ends."""
    code = (
        "import sys,confluent_kafka as c\n"
        "a=c.Consumer({'bootstrap.servers':sys.argv[1],'group.id':'size'})\n"
        "a.assign([c.TopicPartition(t,p,c.OFFSET_END) for t in sys.argv[3:] "
        "for p in range(int(sys.argv[2]))])\n"
        "a.poll(5);print('ready',flush=True)\n"
        "while True:a.poll(1)"
    )
    command = [sys.executable, "-c", code, broker.bootstrap, str(each), *names]
    consumer = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        if consumer.stdout is None or not consumer.stdout.readline():
            raise SystemExit("a consumer did not start")
        return idle_cpu(psutil.Process(broker.pid), seconds)
    finally:
        consumer.kill()
        consumer.wait()


def wait_for(futures: dict[str, object]) -> None:
    for future in futures.values():
        future.result(600)  # type: ignore[attr-defined]


def write(broker: BrokerProcess, names: list[str], each: int) -> None:
    for name in names:
        settings = {"partitioner": "random", "sticky.partitioning.linger.ms": 0, "acks": 1}
        Confluent().produce(broker.bootstrap, name, WRITTEN * each, dict(settings))


def measure(arguments: argparse.Namespace, directory: Path, generator: Generator) -> Facts:
    facts: Facts = {"partitions": arguments.partitions, "topics": arguments.topics}
    each = arguments.partitions // arguments.topics
    names = [f"size-{number:05}" for number in range(arguments.topics)]
    broker = BrokerProcess(directory / "data", {"max.broker.partitions": "100000"})
    try:
        process = started(broker, facts, "start, empty")
        facts["resident memory, empty, MB"] = resident_mb(process)
        facts["idle CPU, empty, s/min"] = idle_cpu(process, arguments.idle_seconds)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        with noted(facts, "creating them", process):
            wait_for(
                admin.create_topics([NewTopic(n, each, 1) for n in names], request_timeout=600)
            )
        facts["resident memory, made, MB"] = resident_mb(process)
        with noted(facts, f"{WRITTEN} records into each", process):
            write(broker, names, each)
        facts["resident memory, written to, MB"] = resident_mb(process)
        facts["open files, written to"] = process.num_fds()
        facts["idle CPU, written to, s/min"] = idle_cpu(process, arguments.idle_seconds)
        _stop(broker, facts, "clean stop after writing")
        process = started(broker, facts, "start after a clean stop")
        facts["resident memory, after a start, MB"] = resident_mb(process)
        facts["idle CPU, after a start, s/min"] = idle_cpu(process, arguments.idle_seconds)
        look(broker, process, facts)
        facts["CPU with a consumer that waits for all, s/min"] = waiting_consumer(
            broker, names, each, arguments.idle_seconds
        )
        _stop(broker, facts, "clean stop without writing")
        process = started(broker, facts, "start after that")
        broker.kill()
        process = started(broker, facts, "start after kill -9")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        with noted(facts, "deleting them", process):
            wait_for(admin.delete_topics(names, request_timeout=600))
        _stop(broker, facts, "clean stop of none")
    finally:
        broker.kill()
    return facts


def _stop(broker: BrokerProcess, facts: Facts, name: str) -> None:
    began = time.monotonic()
    status = broker.stop()
    facts[f"{name}, s"] = time.monotonic() - began
    if status:
        raise SystemExit(f"the broker stopped with {status}: {broker.log_path}")
