"""How fast windows land through Spark, and what the books cost of it.

Starts a broker, S3Proxy and a Spark Connect server of its own on free ports, in a temporary home,
and measures through the same functions as a landing run:

    land        Kafka to bronze: read, digest, write, commit, receipt, group offsets
    equation 1  offsets and digest of the window's rows, compared with the window object
    equation 2  producers' claims, which are published with the records, against the rows
    parse       bronze to silver and quarantine by a contract of 8 columns (JSON records only)

    python benchmarks/landing/bench_landing.py [--records 2000000] [--size 200] [--partitions 6]
        [--small 10000] [--repeat 3] [--bootstrap-servers HOST:PORT]

Equations are judged in a process of their own, as a landing run is one; its peak memory is given.

Each time comes with the CPU seconds that all processes took together: on a machine that does
other work too they are what compares. The books' share is (equation 1 + equation 2) of (land +
equation 1 + equation 2), of the time. Values are random hex: they neither compress as well as real
data nor as badly as noise.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import psutil
from confluent_kafka import Producer

from penstock_client.audit import AuditHeader, Claim, TopicAccount, record_digest
from penstock_platform.connections import Connections
from penstock_platform.landing.attempt import land_window, parse_window
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.model.books import Equation
from penstock_platform.settings import Settings
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.events import make_event
from penstock_platform.topics.model.contract import load_contract
from penstock_platform.topics.model.cron import CronWindow
from penstock_platform.topics.model.declaration import (
    AUDIT_TOPIC,
    TopicSpec,
    bronze_table,
    parse_topic,
)
from penstock_platform.windows.model.window import FreezePlan, Window, plan_freeze
from penstock_platform.windows.store import WindowStore
from penstock_services.testing.services import Services, settings_on_free_ports

T = TypeVar("T")
CLAIM_RECORDS = 500
CLAIMS_PER_EVENT = 200
SCHEMA = {
    "type": "object",
    "properties": {
        **{f"n{i}": {"type": "integer"} for i in range(4)},
        "carrier": {"type": "string"},
        "tail": {"type": "string"},
        "delay": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
    },
    "required": ["n0", "carrier"],
}


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        settings = settings_on_free_ports(home, args.bootstrap_servers)
        names = ["s3", "spark"] if args.bootstrap_servers else ["broker", "s3", "spark"]
        with Services(settings, names).running() as services:
            penstock = Connections(settings)
            try:
                meter = Meter([services[name].pid for name in names])
                large(penstock, meter, args)
                resident = psutil.Process(services["spark"].pid).memory_info().rss / 2**20
                print(f"Spark Connect server: {resident:.0f} MiB resident after it")
                small(penstock, meter, args)
                parse(penstock, meter, args)
            finally:
                penstock.spark.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--bootstrap-servers", default="")
    return parser.parse_args()


class Meter:
    """Wall and CPU seconds of a piece of work, all services and this process together."""

    def __init__(self, pids: list[int]) -> None:
        self._processes = [psutil.Process(), *(psutil.Process(pid) for pid in pids)]

    def run(self, work: Callable[[], T]) -> tuple[Spent, T]:
        wall, cpu = time.perf_counter(), self._cpu()
        result = work()
        return Spent(time.perf_counter() - wall, self._cpu() - cpu), result

    def watch(self, pid: int) -> None:
        """Count another process, and its children, from now on."""
        self._processes.append(psutil.Process(pid))

    def leave(self, pid: int) -> None:
        self._processes = [p for p in self._processes if p.pid != pid]

    def _cpu(self) -> float:
        family = [p for each in self._processes[1:] for p in (each, *each.children(recursive=True))]
        times = [p.cpu_times() for p in (self._processes[0], *family)]
        return sum(t.user + t.system for t in times)


@dataclass(frozen=True, order=True)
class Spent:
    """Seconds by the clock, and CPU seconds."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s (CPU {self.cpu:.1f} s)"


Run = dict[str, Spent]


def large(penstock: Connections, meter: Meter, args: argparse.Namespace) -> None:
    values = [os.urandom(args.size // 2).hex().encode() for _ in range(5000)]
    spent, window = meter.run(
        lambda: fill(penstock, "bench-large", args.partitions, args.records, values)
    )
    print(f"produced {args.records:,} x {args.size} B with audit header in {spent}")
    print(f"cold     {described(measure(penstock, meter, window), args.records)}")
    warm = median([measure(penstock, meter, window) for _ in range(args.repeat)])
    print(f"warm     {described(warm, args.records)}   (median of {args.repeat})")


def small(penstock: Connections, meter: Meter, args: argparse.Namespace) -> None:
    values = [os.urandom(args.size // 2).hex().encode() for _ in range(1000)]
    runs = []
    for _ in range(args.repeat + 1):
        window = fill(penstock, "bench-small", args.partitions, args.small, values)
        runs.append(measure(penstock, meter, window))
    print(f"small    {described(median(runs[1:]), args.small)}   ({args.small:,} records, warm)")


def parse(penstock: Connections, meter: Meter, args: argparse.Namespace) -> None:
    contract = load_contract(json.dumps(SCHEMA), "bench.schema.json")
    values = [json_value(number) for number in range(5000)]
    count = min(args.records, 300_000)
    window = fill(penstock, "bench-json", args.partitions, count, values)
    land_window(penstock, window)
    for name in ("cold", "warm"):
        spent, parsed = meter.run(lambda: parse_window(penstock, window, contract))
        print(
            f"parse    {name}: {count:,} JSON records, 8 columns, 1 % malformed: {spent}, "
            f"{count / spent.wall:,.0f} rows/s ({parsed.quarantine.rows:,} quarantined)"
        )


def json_value(number: int) -> bytes:
    """A record by the contract; every hundredth breaks it."""
    if number % 100 == 0:
        return b'{"carrier": %d}' % number
    integers = {f"n{i}": number * i for i in range(4)}
    texts = {"carrier": "UA", "tail": f"N{number}UA", "at": "2013-01-01T05:00:00Z"}
    return json.dumps({**integers, **texts, "delay": number / 7}).encode()


def measure(penstock: Connections, meter: Meter, window: Window) -> Run:
    land, _ = meter.run(lambda: land_window(penstock, window))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as judge:
        pid = judge.submit(warm_up, penstock.settings, window).result()
        meter.watch(pid)
        one, _ = meter.run(lambda: judge.submit(first_equation, window).result())
        two, peak = meter.run(lambda: judge.submit(second_equation, window).result())
        meter.leave(pid)
    return {"land": land, "one": one, "two": two, "peak": Spent(peak, 0.0)}


class Judge:
    """What the judging process keeps."""

    connections: Connections


def warm_up(settings: Settings, window: Window) -> int:
    """Open the connections, as a run has them when it has landed; the process's id."""
    Judge.connections = Connections(settings)
    Judge.connections.spark.session()
    Judge.connections.kafka.ref(window.topic)
    Judge.connections.lake.current_snapshot(bronze_table(window.topic))
    return os.getpid()


def first_equation(window: Window) -> None:
    judged = Bookkeeper(Judge.connections).judge_landed(window, spec_of(window.topic))
    assert judged.result.balanced, judged.result


def second_equation(window: Window) -> float:
    """Peak memory of the process, in MiB."""
    book = Bookkeeper(Judge.connections).prove_produced(window, spec_of(window.topic))
    result = book.result(Equation.PRODUCED_EQUALS_STORED)
    assert result is not None
    assert result.balanced, result
    assert result.expected == window.record_count
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def spec_of(topic: str) -> TopicSpec:
    return parse_topic({"metadata": {"name": topic}, "land": {"window": "minutely"}})


def median(runs: list[Run]) -> Run:
    return {name: statistics.median_low(run[name] for run in runs) for name in runs[0]}


def described(run: Run, records: int) -> str:
    books = run["one"].wall + run["two"].wall
    share = books / (run["land"].wall + books)
    return (
        f"land {run['land']}, {records / run['land'].wall:,.0f} rows/s; equation 1 {run['one']}; "
        f"equation 2 {run['two']}, {run['peak'].wall:.0f} MiB; books' share {share:.0%}"
    )


def fill(
    penstock: Connections, topic: str, partitions: int, count: int, values: list[bytes]
) -> Window:
    """Send ``count`` records with audit headers to the topic, freeze them as a window, and publish
    the claims on them."""
    penstock.kafka.create(topic, partitions)
    penstock.kafka.create(AUDIT_TOPIC, 1)
    base = {p: o.high_watermark for p, o in penstock.kafka.offsets(topic).items()}
    claims: list[Claim] = []
    open_claims = {p: [base[p], base[p], 0] for p in range(partitions)}
    started_ms = time.time_ns() // 1_000_000
    producer: Any = Producer(
        {
            "bootstrap.servers": penstock.settings.bootstrap_servers,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number in range(count):
        header = AuditHeader(started_ms, number, started_ms, "bench").encode()
        value, key, partition = values[number % len(values)], b"%d" % number, number % partitions
        claim = open_claims[partition]
        claim[1] += 1
        claim[2] += record_digest(number, key, value)
        if claim[1] - claim[0] == CLAIM_RECORDS:
            claims.append(Claim(partition, claim[0], claim[1], claim[2] % 2**64))
            open_claims[partition] = [claim[1], claim[1], 0]
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    partition=partition,
                    headers=[("penstock.audit", header)],
                )
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0
    ref = penstock.kafka.ref(topic)
    newest = WindowStore.of(penstock).newest(ref)
    opens = EPOCH + timedelta(minutes=newest.sequence + 1 if newest else 0)
    due = CronWindow(opens, opens + timedelta(minutes=1))
    plan = FreezePlan(
        ref,
        penstock.kafka.offsets(topic),
        max_records=10 * count,
        frozen_at=due.closes,
        code_version="bench",
    )
    (window,) = plan_freeze(plan, newest, [due])
    assert WindowStore.of(penstock).publish(window)
    claims += [Claim(p, s, e, d % 2**64) for p, (s, e, d) in open_claims.items() if e > s]
    publish(producer, topic, started_ms, claims)
    return window


def publish(producer: Any, topic: str, incarnation: int, claims: list[Claim]) -> None:
    """The claims as monitoring events, each with as many sequences as its claims have records."""
    first = 0
    for number, start in enumerate(range(0, len(claims), CLAIMS_PER_EVENT), 1):
        some = tuple(claims[start : start + CLAIMS_PER_EVENT])
        records = sum(len(claim) for claim in some)
        sequences = ((first, first + records),)
        account = TopicAccount(topic, claims=some, sequences=sequences, records=records)
        final = start + CLAIMS_PER_EVENT >= len(claims)
        event = make_event(incarnation, number, account, sent_at_ms=incarnation, final=final)
        producer.produce(AUDIT_TOPIC, event.to_bytes())
        first += records
    assert producer.flush(120) == 0


if __name__ == "__main__":
    main()
