"""How fast is the broker? The experiment of the Kafka paper and more, in one command.

    .venv/bin/python benchmarks/broker/bench.py            ours, and Apache Kafka where Java and
                                                           Maven are there
    … bench.py --bootstrap-servers H:P                     ours, and one that runs already
    … bench.py --alone                                     ours
    … bench.py --generator PATH/rdkafka_performance        librdkafka's own load generator
    … bench.py --gigabytes 20 --rounds 5                   more of it
    … bench.py --only "batch 1"                            some rows

200-byte records, one producer, one partition, then one consumer over what was produced; rounds are
interleaved, every broker is warmed up, the table shows medians and goes to ``docs/benchmarks/``
with a plot. Also: CPU seconds of the broker for a million records, resident memory after the run,
time from the start of the process to the first acknowledged record, end-to-end latency at 1,000
records a second, 1,000 idle connections, throughput with much stored, restart.

Read with care: the generator shares the cores with the broker and is often what is measured; name
it. Ratios in one run mean more than numbers. A quiet machine, please.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

import bench_report
from bench_generators import Confluent, Generator, Rdkafka
from bench_targets import Target, kafka, kafka_jars, penstock, running, scratch
from bench_workloads import (
    WORKLOADS,
    backlog,
    connections,
    latency,
    run,
    tcp_round_trip,
    warm_up,
)
from confluent_kafka import Producer

DOCS = Path(__file__).parents[2] / "docs" / "benchmarks"


def first_record(target: Target, topic: str) -> None:
    producer = Producer({"bootstrap.servers": target.bootstrap, "acks": -1, "log_level": 0})
    producer.produce(topic, b"x" * 200)
    if producer.flush(60):
        raise SystemExit("the first record was not acknowledged")


def starts(directory: Path) -> dict[str, float]:
    """Seconds from the start of our process to the first acknowledged record: with an empty
    directory, and again with what that left and a million records."""
    facts = {}
    began = time.perf_counter()
    with penstock(directory) as target:
        topic = target.create_topic()
        first_record(target, topic)
        facts["start to first acknowledged record, s"] = time.perf_counter() - began
        Confluent().produce(target.bootstrap, topic, 1_000_000, {})
    began = time.perf_counter()
    with penstock(directory) as target:
        first_record(target, topic)
        facts["restart with 1 M records, s"] = time.perf_counter() - began
    return facts


def measure(arguments: argparse.Namespace, targets: list[Target], generator: Generator) -> None:
    chosen = [w for w in WORKLOADS if arguments.only in w.name]
    for target in targets:
        warm_up(target, generator, arguments.records)
    for number in range(arguments.rounds):
        for workload in chosen:
            for target in targets if number % 2 else targets[::-1]:
                run(target, workload, generator, arguments.records)
        print(f"round {number + 1} of {arguments.rounds} is done", flush=True)
    for target in targets:
        target.facts["resident memory after these, MB"] = target.resident_mb()
    if arguments.only:
        return
    for _ in range(arguments.rounds):
        for target in targets:
            connections(target)
            if arguments.gigabytes:
                backlog(target, arguments.gigabytes, generator, arguments.records)
    for target in targets:
        latency(target)
        target.facts["resident memory at the end, MB"] = target.resident_mb()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alone", action="store_true", help="no comparison")
    parser.add_argument("--bootstrap-servers", help="a running peer to compare with")
    parser.add_argument("--peer-name", default="peer")
    parser.add_argument("--generator", help="path of rdkafka_performance")
    parser.add_argument("--records", type=int, default=400_000, help="of a round and workload")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="stored before one workload")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--output", type=Path, default=DOCS)
    arguments = parser.parse_args()
    generator: Generator = Rdkafka(arguments.generator) if arguments.generator else Confluent()
    with scratch() as directory, contextlib.ExitStack() as stack:
        facts = {} if arguments.only else starts(Path(directory) / "starts")
        targets = [stack.enter_context(penstock(Path(directory) / "penstock"))]
        targets[0].facts.update(facts)
        if arguments.bootstrap_servers:
            targets.append(running(arguments.bootstrap_servers, arguments.peer_name))
        elif not arguments.alone and (jars := kafka_jars()) is not None:
            began = time.perf_counter()
            peer = stack.enter_context(kafka(jars, Path(directory) / "kafka"))
            first_record(peer, peer.create_topic())
            seconds = time.perf_counter() - began
            peer.facts["start to first acknowledged record, s"] = seconds
            targets.append(peer)
        measure(arguments, targets, generator)
        print(bench_report.table(targets))
        if not arguments.only:
            print(bench_report.write(arguments.output, generator.name, targets, tcp_round_trip()))


if __name__ == "__main__":
    main()
