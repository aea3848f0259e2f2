"""Short ways to fill a simulated topic and to look at its windows."""

from __future__ import annotations

from penstock_platform.domain.topics import load_topic

SPEC = load_topic("metadata: {name: t}\nland: {window: minutely, max_records: 40}")


def put(cluster, partition, count, ms=0):
    for _ in range(count):
        cluster.append("t", partition, ms=ms)


def freeze_window(world, count):
    """Put so many records into partition 0, and freeze the minute in which they came."""
    cluster, clock, _, freeze = world
    put(cluster, 0, count)
    clock.advance(60)
    return freeze()


def spans(window):
    return {p.p: (p.start, p.end) for p in window.partitions}
