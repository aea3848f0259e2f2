"""Short ways to fill a simulated topic and to look at its windows."""

from __future__ import annotations

from penstock_platform.domain.topics import load_topic

SPEC = load_topic("metadata: {name: t}\nland: {window: minutely, max_records: 40}")


def put(cluster, partition, count, ms=0):
    for _ in range(count):
        cluster.append("t", partition, ms=ms)


def spans(window):
    return {p.p: (p.start, p.end) for p in window.partitions}
