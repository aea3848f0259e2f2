"""How long the event loop stalls while a log of a gigabyte is compacted.

Fills a compacted topic, waits until the cleaner has begun, and sends one record after the other to
another topic until it is done; prints the answer times before and during it, what the broker's own
loop saw, and how long the compaction took.

    python benchmarks/broker/bench_compaction.py [--gigabytes 1] [--keys 200000] [--batch 100]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock_broker.testing.broker_process import BrokerProcess

VALUE = random.Random(1).randbytes(180)


def fill(bootstrap: str, size: int, keys: int, batch: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.num.messages": batch,
            "queue.buffering.max.messages": 500_000,
            "acks": 1,
        }
    )
    pick = random.Random(2)
    for _ in range(size // 200):
        key = b"key-%09d" % pick.randrange(keys)
        while True:
            try:
                producer.produce("compacted", VALUE, key)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(600)


def answer_times(producer: Producer, seconds: float, until: object = None) -> list[float]:
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (callable(until) and until()):
        began = time.perf_counter()
        producer.produce("ping", b"x")
        producer.flush(30)
        times.append((time.perf_counter() - began) * 1000)
    return times


def show(name: str, times: list[float]) -> None:
    ordered = sorted(times)
    print(
        f"{name}: {len(times)} answers, p50 {statistics.median(times):.2f} ms, "
        f"p99 {ordered[int(len(ordered) * 0.99)]:.2f} ms, longest {ordered[-1]:.2f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        settings = {"log.cleaner.backoff.ms": "3000"}
        with BrokerProcess(data, settings) as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            topics = [
                NewTopic(
                    "compacted",
                    1,
                    1,
                    config={
                        "cleanup.policy": "compact",
                        "segment.bytes": str(128 << 20),
                        "min.cleanable.dirty.ratio": "1.0",
                    },
                ),
                NewTopic("ping", 1, 1),
            ]
            for done in admin.create_topics(topics).values():
                done.result(30)
            fill(
                broker.bootstrap,
                int(arguments.gigabytes * (1 << 30)),
                arguments.keys,
                arguments.batch,
            )
            directory = data / "compacted-0"
            before = sum(path.stat().st_size for path in directory.glob("*.log"))
            ping = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
            show("at rest", answer_times(ping, 5))
            allow = ConfigEntry(
                "min.cleanable.dirty.ratio",
                "0.5",
                incremental_operation=AlterConfigOpType.SET,
            )
            resource = ConfigResource(ResourceType.TOPIC, "compacted", incremental_configs=[allow])
            admin.incremental_alter_configs([resource])[resource].result(30)
            answer_times(ping, 60, lambda: any(directory.glob("*.cleaned")))
            began = time.monotonic()
            times = answer_times(ping, 900, lambda: not any(directory.glob("*.cleaned")))
            took = time.monotonic() - began
            show("compacting", times)
            after = sum(path.stat().st_size for path in directory.glob("*.log"))
            print(f"compaction of {before >> 20} MB to {after >> 20} MB took {took:.1f} s")


if __name__ == "__main__":
    main()
