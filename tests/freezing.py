"""A simulated cluster whose topic is frozen window by window, and short ways to fill it."""

from __future__ import annotations

import pytest

from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster
from penstock_platform.topics.model.declaration import load_topic
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.store import WindowStore

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


@pytest.fixture
def world():
    """A simulated cluster with a topic of two partitions, its clock, the store, and a freezer."""
    cluster, clock = MemoryCluster(), ManualClock()
    cluster.add_topic("t", 2)
    store = WindowStore(MemoryArchive())

    def freeze(spec=SPEC, **options):
        return freeze_due(cluster, store, spec, clock, start=EPOCH, **options)

    return cluster, clock, store, freeze
