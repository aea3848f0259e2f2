"""Throughput with much stored against an empty log's: produce, tail reads, tail reads beside
another reader.

Two brokers run, one with so much in one partition. Rows are measured on both in turn:

    produce …                           into that partition; on the other into a new topic
    tail reads                          a consumer at the end while a producer writes, until it has
                                        all of it
    tail reads beside another reader    the same while a second consumer reads so many MB/s: on the
                                        full broker the cold end, dropped from the page cache; on
                                        the empty one a small log that is in memory

So the last row compares two brokers that have the same to do; how fast the tail is without the
other reader is in the row before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench_generators import Confluent, Generator, Settings
from bench_restart import fill
from bench_targets import Target, penstock
from bench_workloads import WORKLOADS
from confluent_kafka import Consumer, TopicPartition
from size_files import Facts, cached_share, drop_files, files_of, read_of

STORED = "t"
"""The topic that :func:`bench_restart.fill` writes."""
DEFAULTS = "produce, librdkafka defaults"
SMALL_BATCHES = "produce, batch 50, acks 1"
TAIL, BESIDE = "tail reads", "tail reads beside another reader"
ROWS = 4
RECORD_BYTES = 220
WARM_RECORDS = 500_000
"""Of the log that the other reader reads on the empty broker."""
READER = Path(__file__).with_name("size_reader.py")
SETTINGS = {workload.name: workload.settings for workload in WORKLOADS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gigabytes", type=float, default=20.0, help="stored in one partition")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000_000, help="of a round and row")
    parser.add_argument("--batch", type=int, default=10_000, help="bytes of a stored batch")
    parser.add_argument(
        "--cold-megabytes", type=float, default=50.0, help="that the other reader reads a second"
    )
    parser.add_argument("--generator", help="path of rdkafka_performance")


def bytes_needed(arguments: argparse.Namespace, generator: Generator) -> int:
    written = arguments.records * RECORD_BYTES * ROWS * (arguments.rounds + 1)
    return int(arguments.gigabytes * 2**30) + 2 * written + WARM_RECORDS * RECORD_BYTES


@dataclass
class Side:
    """One broker, and where the rows find what they write to and read from."""

    target: Target
    data: Path
    topic: str | None
    """The partition with much in it; None: a new topic for each round."""
    beside: str
    """What the other reader reads."""

    @contextlib.contextmanager
    def place(self) -> Iterator[str]:
        if self.topic is not None:
            yield self.topic
            return
        topic = self.target.create_topic()
        yield topic
        self.target.delete_topic(topic)


def end_of(target: Target, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "size", "log_level": 0})
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    consumer.close()
    return int(end)


@contextlib.contextmanager
def reader(target: Target, topic: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A consumer in a process of its own, ready to read."""
    command = [sys.executable, str(READER), target.bootstrap, topic, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise SystemExit("a reader did not start")
        yield process
    finally:
        process.kill()
        process.wait()


def answer_of(process: subprocess.Popen[str], seconds: float = 600) -> dict[str, float]:
    """What it says at its end; standard input ends, which ends one that reads on and on."""
    out, _ = process.communicate(timeout=seconds)
    found: dict[str, float] = json.loads(out)
    return found


def produce_rate(side: Side, generator: Generator, records: int, settings: Settings) -> float:
    with side.place() as topic:
        began = time.monotonic()
        known = generator.produce(side.target.bootstrap, topic, records, dict(settings))
        return records / (sum(known) or time.monotonic() - began)


def tail_rate(side: Side, generator: Generator, records: int) -> float:
    """Records a second from the first that is produced to the last that is consumed."""
    with side.place() as topic:
        end = end_of(side.target, topic)
        with reader(side.target, topic, end, "--count", records) as consumer:
            began = time.monotonic()
            generator.produce(side.target.bootstrap, topic, records, {})
            return records / (answer_of(consumer)["ended"] - began)


def beside_rate(side: Side, generator: Generator, records: int, pace: float) -> dict[str, float]:
    """:func:`tail_rate` while another consumer reads; what that one read, and the disk for it."""
    if side.topic is not None:
        drop_files(files_of(side.data))
    cached = cached_share(side.data) if side.topic is not None else 1.0
    process = side.target.process
    before = read_of(process)[1] if process else 0
    with reader(side.target, side.beside, 0, "--megabytes", pace) as other:
        rate = tail_rate(side, generator, records)
        read = answer_of(other)
    fetched = (read_of(process)[1] if process else 0) - before
    return {
        "rate": rate,
        "other, MB/s": read["bytes"] / read["seconds"] / 1e6,
        "from disk, MB": fetched / 1e6,
        "cached at its begin": cached,
    }


def rows_of(
    arguments: argparse.Namespace, generator: Generator
) -> dict[str, Callable[[Side], dict[str, float]]]:
    records = arguments.records

    def produced(name: str) -> Callable[[Side], dict[str, float]]:
        return lambda side: {"rate": produce_rate(side, generator, records, SETTINGS[name])}

    return {
        DEFAULTS: produced(DEFAULTS),
        SMALL_BATCHES: produced(SMALL_BATCHES),
        TAIL: lambda side: {"rate": tail_rate(side, generator, records)},
        BESIDE: lambda side: beside_rate(side, generator, records, arguments.cold_megabytes),
    }


def measure(arguments: argparse.Namespace, directory: Path, generator: Generator) -> Facts:
    full, empty = directory / "full", directory / "empty"
    fill(full, int(arguments.gigabytes * 2**30), 1, arguments.batch)
    sys.stderr.write(f"{arguments.gigabytes:g} GB are stored\n")
    with penstock(full) as stored, penstock(empty) as fresh:
        small = fresh.create_topic()
        Confluent().produce(fresh.bootstrap, small, WARM_RECORDS, {})
        sides = [Side(fresh, empty, None, small), Side(stored, full, STORED, STORED)]
        rows = rows_of(arguments, generator)
        found: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {}
        for number in range(arguments.rounds + 1):
            for name, row in rows.items():
                pair = {}
                for which in (0, 1) if number % 2 else (1, 0):
                    os.sync()  # or the next run pays for the writes of the one before
                    pair[which] = row(sides[which])
                if number:  # the first round warms up
                    found.setdefault(name, []).append((pair[0], pair[1]))
            sys.stderr.write(f"round {number} of {arguments.rounds} is done\n")
        memory = {side.target.bootstrap: side.target.resident_mb() for side in sides}
    facts: Facts = {"generator": generator.name, "stored, GB": arguments.gigabytes}
    for name, pairs in found.items():
        facts |= _row(name, pairs)
    apart = [
        beside[1]["rate"] / alone[0]["rate"]
        for alone, beside in zip(found[TAIL], found[BESIDE], strict=True)
    ]
    facts[f"{BESIDE}, full: of tail reads, empty"] = statistics.median(apart)
    facts["resident memory, empty, MB"], facts["resident memory, full, MB"] = memory.values()
    return facts


def _row(name: str, pairs: list[tuple[dict[str, float], dict[str, float]]]) -> Facts:
    facts: Facts = {
        f"{name}: full / empty": statistics.median(f["rate"] / e["rate"] for e, f in pairs),
        f"{name}: least and largest": " to ".join(
            f"{pick(f['rate'] / e['rate'] for e, f in pairs):.2f}" for pick in (min, max)
        ),
        f"{name}: empty, records/s": statistics.median(e["rate"] for e, _ in pairs),
        f"{name}: full, records/s": statistics.median(f["rate"] for _, f in pairs),
    }
    for more in pairs[0][0].keys() - {"rate"}:
        for which, side in enumerate(("empty", "full")):
            facts[f"{name}: {side}: {more}"] = statistics.median(p[which][more] for p in pairs)
    return facts
