"""A start after kill -9 with much stored, on a machine that has just read nothing of it.

Each round: the broker runs, a producer writes, SIGKILL, the page cache is dropped, and a start is
timed until it accepts requests and until a real client has a record acknowledged. Steps are taken
from what the broker itself writes: its line ``started`` says how long the start took without the
interpreter's own, the recovery report when the last log had been loaded. A clean stop follows, and
a start after it, equally cold.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from pathlib import Path

import psutil
from bench_generators import Confluent, Generator
from bench_restart import fill
from confluent_kafka import Producer
from size_files import Facts, cached_share, drop_all, read_of

from penstock_broker.testing.broker_process import BrokerProcess

STORED = "t"
WRITTEN = 20_000
"""Records before each kill."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--partitions", type=int, default=1, help="that share them")
    parser.add_argument("--batch", type=int, default=10_000, help="bytes of a stored batch")
    parser.add_argument("--rounds", type=int, default=3)


def bytes_needed(arguments: argparse.Namespace, generator: Generator) -> int:
    return int(arguments.gigabytes * 2**30) + arguments.rounds * WRITTEN * 220


def acknowledged(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": -1, "log_level": 0})
    producer.produce(STORED, b"x" * 200, partition=0)
    if producer.flush(60):
        raise SystemExit("a record was not acknowledged")


def seconds_to_load(broker: BrokerProcess) -> float:
    """From the event loop's begin to the first request, as the broker says in its log."""
    found = re.findall(r" ([0-9.]+) s after its start", broker.log())
    if not found:
        raise SystemExit(f"the broker does not say that it started: {broker.log_path}")
    return float(found[-1])


def start(broker: BrokerProcess) -> dict[str, float]:
    """Start it on a cold machine; seconds by step, and bytes."""
    dropped = cached_share(broker.data_dir)
    began, began_ms = time.monotonic(), time.time() * 1e3
    broker.start()
    ready, ready_ms = time.monotonic(), time.time() * 1e3
    process = psutil.Process(broker.pid)
    asked, fetched = read_of(process)
    times = process.cpu_times()
    acknowledged(broker.bootstrap)
    inside = seconds_to_load(broker)
    facts = {
        "to ready, s": ready - began,
        "to first acknowledged record, s": time.monotonic() - began,
        "interpreter and imports, s": ready - began - inside,
        "CPU of it, s": times.user + times.system,
        "read, MB": asked / 1e6,
        "read from disk, MB": fetched / 1e6,
        "logs in memory before": dropped,
    }
    report = broker.data_dir / "recovery-report.jsonl"
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    summed = [each for each in lines if each["event"] == "start" and each["at_ms"] >= began_ms]
    if summed:  # not after a clean stop
        after = (ready_ms - summed[-1]["at_ms"]) / 1e3
        facts["logs loaded and checked, s"] = inside - after
        facts["the rest, to ready, s"] = after
        facts["checked, MB"] = summed[-1]["bytes_checked"] / 1e6
        facts["logs cut"] = summed[-1]["cuts"]
    return facts


def disk_rate(data: Path) -> float:
    """MB/s of reading the largest file, cold, in pieces of 1 MiB, and doing nothing with it: the
    least that reading costs here."""
    largest = max(
        data.rglob("*.log"), key=lambda path: path.stat().st_size if path.is_file() else 0
    )
    drop_all(data)
    began, size = time.monotonic(), 0
    with largest.open("rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            size += len(chunk)
    return size / (time.monotonic() - began) / 1e6


def measure(arguments: argparse.Namespace, directory: Path, generator: Generator) -> Facts:
    data = directory / "data"
    fill(data, int(arguments.gigabytes * 2**30), arguments.partitions, arguments.batch)
    sys.stderr.write(f"{arguments.gigabytes:g} GB are stored\n")
    broker = BrokerProcess(data)
    rounds = []
    try:
        for number in range(arguments.rounds):
            how = drop_all(data)
            rounds.append(start(broker))
            Confluent().produce(broker.bootstrap, STORED, WRITTEN, {})
            if number + 1 < arguments.rounds:
                broker.kill()
            sys.stderr.write(f"start {number + 1} of {arguments.rounds} is done\n")
        broker.stop()
        drop_all(data)
        clean = start(broker)
    finally:
        broker.kill()
    rate = disk_rate(data)
    facts: Facts = {
        "stored, GB": arguments.gigabytes,
        "partitions": arguments.partitions,
        "page cache dropped by": how,
        "disk reads one file, cold, MB/s": rate,
    }
    for name in rounds[0]:
        facts[f"after kill -9: {name}"] = statistics.median(each[name] for each in rounds)
    longest = max(each["to ready, s"] for each in rounds)
    facts["after kill -9: to ready, the longest, s"] = longest
    return facts | {f"after a clean stop: {name}": value for name, value in clean.items()}
