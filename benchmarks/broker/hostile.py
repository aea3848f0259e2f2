"""A normal client among hostile ones: what it keeps of its throughput, and that nothing else stays.

    python benchmarks/broker/hostile.py [--rounds 4] [--seconds 5] [--rate 1000] [--seed N]

One producer (idempotent, acks=all) and one consumer, confluent-kafka, run all the time. In every
second interval other processes send ``--rate`` hostile frames a second (``testing.hostile_frames``:
random bytes, real frames of every API with something wrong, sizes and batches that lie,
decompression bombs), on a new connection whenever the broker has ended the last one. At the end
the log must hold exactly what the producer sent, in order; the broker must answer and must not have
logged a traceback. The broker's memory is printed. Exit status 1 where that fails, or where less
than 80 % of the throughput is left.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.hostile_frames import hostile, seeds
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.messages.metadata import MetadataRequest

TOPIC = "normal"
MESSAGE_BYTES = 200
ATTACKERS = 2
FRAMES = 8_000
KEPT_MIN = 0.8
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "max.broker.partitions": "200",
    "offsets.topic.num.partitions": "3",
}
Shared = "Synchronized[int]"


def produce(bootstrap: str, stop: Shared, acked: Shared) -> None:
    """Send numbered messages as fast as the broker takes them."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
         "queue.buffering.max.messages": 50_000}
    )  # fmt: skip
    done = 0

    def delivered(error: object, message: object) -> None:
        nonlocal done
        if error is not None:
            raise SystemExit(f"not delivered: {error}")
        done += 1

    filler = b"x" * (MESSAGE_BYTES - 8)
    number = 0
    while not stop.value:
        try:
            producer.produce(TOPIC, struct.pack(">q", number) + filler, on_delivery=delivered)
            number += 1
        except BufferError:
            producer.poll(0.01)
        if number % 500 == 0:
            producer.poll(0)
            acked.value = done
    producer.flush(60)
    acked.value = done
    if done != number:
        raise SystemExit(f"{number - done} messages were not delivered")


def consume(bootstrap: str, stop: Shared, read: Shared) -> None:
    """Read along."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "normal-reader",
                         "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.subscribe([TOPIC])
    while not stop.value:
        read.value += sum(m.error() is None for m in consumer.consume(1_000, 0.1))
    consumer.close()


def attack(
    address: tuple[str, int], seed: int, rate: float, go: Shared, stop: Shared, report: object
) -> None:
    """Send hostile frames at a rate while ``go`` is set; count what became of them."""
    chance = random.Random(seed)
    corpus = seeds(chance)
    frames = [hostile(chance, corpus) for _ in range(FRAMES)]
    counts: Counter[str] = Counter()
    sock: socket.socket | None = None
    due = time.monotonic()
    while not stop.value:
        if not go.value:
            time.sleep(0.01)
            due = time.monotonic()
            continue
        due += 1 / rate
        if (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        kind, data = chance.choice(frames)
        counts[kind] += 1
        try:
            if sock is None:
                sock = socket.create_connection(address, 5)
                counts["connections"] += 1
            sock.settimeout(5)
            sock.sendall(data)
            sock.setblocking(False)
            while received := sock.recv(1 << 16):
                counts["bytes answered"] += len(received)
            sock.close()
            sock = None
        except BlockingIOError:
            if kind in {"random bytes", "wrong size"}:  # nothing would come after these
                sock.close()  # type: ignore[union-attr]
                sock = None
        except OSError:
            if sock is not None:
                sock.close()
                sock = None
    report.put(counts)  # type: ignore[attr-defined]


def rss_mib(pid: int) -> float:
    """Resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def check_log(bootstrap: str, sent: int) -> str | None:
    """What is wrong with the log of the normal client, if anything."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checker",
                         "enable.auto.commit": False, "enable.partition.eof": True,
                         "check.crcs": True})  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    expected = 0
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for message in consumer.consume(5_000, 1.0):
            if message.error() is not None:
                consumer.close()
                return None if expected == sent else f"{expected} records of {sent} are there"
            (number,) = struct.unpack_from(">q", message.value())
            if number != expected or message.offset() != expected:
                return f"record {number} at offset {message.offset()}, expected {expected}"
            expected += 1
    return f"{expected} records of {sent} could be read in time"


def measure(broker: BrokerProcess, options: argparse.Namespace) -> int:
    """Run all rounds and print what came of them; the exit status."""
    value = multiprocessing.Value
    stop, go = value("i", 0), value("i", 0)
    acked, read = value("q", 0), value("q", 0)
    report: object = multiprocessing.Queue()
    client = [
        multiprocessing.Process(target=produce, args=(broker.bootstrap, stop, acked)),
        multiprocessing.Process(target=consume, args=(broker.bootstrap, stop, read)),
    ]
    address = (broker.host, broker.port)
    attackers = [
        multiprocessing.Process(
            target=attack,
            args=(address, options.seed + n, options.rate / ATTACKERS, go, stop, report),
        )
        for n in range(ATTACKERS)
    ]
    for process in (*client, *attackers):
        process.start()
    time.sleep(8)  # until all clients are warm
    before = rss_mib(broker.pid)
    rates: dict[int, list[tuple[float, float]]] = {0: [], 1: []}
    for _ in range(options.rounds):
        for hostile_now in (0, 1):
            go.value = hostile_now
            time.sleep(0.5)
            began, a, r = time.monotonic(), acked.value, read.value
            time.sleep(options.seconds)
            took = time.monotonic() - began
            rates[hostile_now].append(((acked.value - a) / took, (read.value - r) / took))
    go.value = 0
    after = rss_mib(broker.pid)
    stop.value = 1
    counts: Counter[str] = Counter()
    for _ in attackers:
        counts += report.get(timeout=60)  # type: ignore[attr-defined]
    for process in (*client, *attackers):
        process.join(90)
    return report_results(broker, rates, counts, (before, after), acked.value, options)


def report_results(
    broker: BrokerProcess,
    rates: dict[int, list[tuple[float, float]]],
    counts: Counter[str],
    rss: tuple[float, float],
    sent: int,
    options: argparse.Namespace,
) -> int:
    """Print the figures; 1 where something is not as it must be."""
    names = ("produced", "consumed")
    failures = []
    for which, name in enumerate(names):
        alone = statistics.median(pair[which] for pair in rates[0])
        among = statistics.median(pair[which] for pair in rates[1])
        kept = among / alone if alone else 0.0
        print(f"{name}: {alone:9,.0f} msg/s alone, {among:9,.0f} among hostile clients: {kept:.0%}")
        if kept < KEPT_MIN:
            failures.append(f"{name}: only {kept:.0%} of the throughput is left")
    frames = {k: n for k, n in counts.items() if k not in {"connections", "bytes answered"}}
    seconds = options.rounds * (options.seconds + 0.5)
    print(
        f"hostile: {sum(frames.values()):,} frames ({sum(frames.values()) / seconds:,.0f}/s) on "
        f"{counts['connections']:,} connections, {counts['bytes answered'] >> 10:,} KiB answered: "
        + ", ".join(f"{n:,} {kind}" for kind, n in sorted(frames.items()))
    )
    print(f"memory of the broker: {rss[0]:.0f} MiB before, {rss[1]:.0f} MiB after")
    with RawClient(broker.host, broker.port) as client:
        topics = client.ask(MetadataRequest(topics=None), 9).topics
    print(f"it answers; {len(topics)} topics, {sent:,} records sent")
    problem = check_log(broker.bootstrap, sent)
    print(problem or f"the log holds exactly these {sent:,} records, in order")
    failures += [problem] if problem else []
    if "Traceback" in broker.log():
        failures.append("a traceback in its log: " + broker.log()[-3_000:])
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=1_000.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}: {options.rounds} rounds of {options.seconds:g} s, alone and among")
    with (
        tempfile.TemporaryDirectory(prefix="penstock-hostile-") as directory,
        BrokerProcess(Path(directory) / "data", SETTINGS) as broker,
    ):
        return measure(broker, options)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    sys.exit(main())
