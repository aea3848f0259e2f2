"""AuditedProducer against a bare confluent-kafka producer that has a delivery callback too.

Same records, same configuration, same process; the two take turns, so that what else the machine
does hits both. Reported: the ratio of the medians of records a second (the goal is 0.55), and of
the process's CPU seconds, which are steadier on a busy machine.

    python benchmarks/client/bench_audited_producer.py --bootstrap-servers HOST:PORT
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_client import AuditedProducer


def measure(
    make: Callable[[dict[str, Any]], Any],
    config: dict[str, Any],
    topic: str,
    keys: list[bytes],
    value: bytes,
    poll_every: int,
) -> tuple[float, float]:
    """Records a second to the end of flush, and the process's CPU in microseconds a record."""
    producer = make(config)
    acknowledged = 0

    def on_delivery(error: Any, message: Any) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1

    producer.produce(topic, b"warm")
    producer.flush()
    callbacks = {"on_delivery": on_delivery} if make is Producer else {}
    started, cpu = time.perf_counter(), time.process_time()
    produce, poll = producer.produce, producer.poll
    for position, key in enumerate(keys):
        while True:
            try:
                produce(topic, value, key, **callbacks)
                break
            except BufferError:
                poll(0.05)
        if position % poll_every == 0:
            poll(0)
    producer.flush()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    if make is Producer and acknowledged != len(keys):
        raise SystemExit(f"{acknowledged} of {len(keys)} records acknowledged")
    if make is AuditedProducer:
        producer.close()
    return len(keys) / seconds, cpu / len(keys) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--poll-every", type=int, default=100, help="records; 1 is the loop of Confluent's examples"
    )
    options = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": options.bootstrap_servers})
    name = f"bench-audited-{uuid.uuid4().hex[:8]}"
    topics = [name, f"{name}-audit"]
    for future in admin.create_topics([NewTopic(topic, 6, 1) for topic in topics]).values():
        future.result()
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 1_000_000,
    }
    keys = [b"key-%d" % (number % 1000) for number in range(options.records)]
    value = b"x" * options.bytes
    rates: dict[str, list[float]] = {"bare": [], "audited": []}
    costs: dict[str, list[float]] = {"bare": [], "audited": []}
    try:
        for number in range(options.rounds):
            for kind, make, extra in (
                ("bare", Producer, {}),
                ("audited", AuditedProducer, {"audit.topic": topics[1]}),
            ):
                rate, cpu = measure(
                    make, {**config, **extra}, name, keys, value, options.poll_every
                )
                rates[kind].append(rate)
                costs[kind].append(cpu)
                print(f"round {number + 1}  {kind:8} {rate:10,.0f} records/s  {cpu:5.2f} us CPU")
    finally:
        for future in admin.delete_topics(topics).values():
            future.result()
    bare, audited = (statistics.median(rates[kind]) for kind in ("bare", "audited"))
    cost = statistics.median(costs["bare"]) / statistics.median(costs["audited"])
    pairs = [b / a for a, b in zip(rates["bare"], rates["audited"], strict=True)]
    print(
        f"median  bare {bare:,.0f}  audited {audited:,.0f} records/s  "
        f"ratio {audited / bare:.2f} (goal 0.55)  by pairs {statistics.median(pairs):.2f}  "
        f"by CPU {cost:.2f}"
    )


if __name__ == "__main__":
    main()
