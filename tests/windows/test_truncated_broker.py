"""A broker that lost the end of a log on its disk, and grew it again: the chain notices.

Own services, because the broker is killed and its files are cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.topics.model.declaration import load_topic
from penstock_platform.windows.freezer import freeze_due
from penstock_platform.windows.model.window import Truncation, Window
from penstock_platform.windows.store import WindowStore
from penstock_services.testing.services import Services, settings_on_free_ports

SPEC = load_topic("metadata: {name: t}\nland: {window: minutely}")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    found = Services(settings_on_free_ports(tmp_path / "home"), ["broker"])
    with found.running():
        yield found


def produce(services: Services, records: int) -> None:
    """Each record a batch of its own, so that a log can be cut between any two."""
    producer = Producer({"bootstrap.servers": services.settings.bootstrap_servers, "acks": "all"})
    for number in range(records):
        producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(30) == 0


def test_a_cut_and_regrown_log_is_windowed_from_the_cut(services: Services) -> None:
    cluster = KafkaCluster(services.settings)
    store, clock = WindowStore(MemoryArchive()), ManualClock()
    cluster.create("t", 2)

    def freeze() -> list[Window]:
        clock.advance(60)
        return freeze_due(cluster, store, SPEC, clock, start=EPOCH)

    produce(services, 20)
    [first] = freeze()
    assert (first.partitions[0].start, first.partitions[0].end) == (0, 20)
    epoch = first.partitions[0].leader_epoch

    # Without loss a restart is nothing but another window.
    services["broker"].kill()
    services["broker"].start()
    produce(services, 1)
    [second] = freeze()
    assert (second.partitions[0].start, second.partitions[0].end) == (20, 21)
    assert second.partitions[0].truncated is None

    services["broker"].kill()
    [log] = (services.settings.home / "broker").glob("**/t-0/*.log")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size * 6 // 10)
    services["broker"].start()
    left = cluster.offsets("t")[0]
    assert 0 < left.high_watermark < 20
    produce(services, 15)  # beyond what was frozen, before the next check
    assert cluster.offsets("t")[0].high_watermark > 21
    [third] = freeze()
    found = third.partitions[0]
    assert found.leader_epoch > epoch
    assert found.truncated == Truncation(second.partitions[0].leader_epoch, left.high_watermark, 21)
    assert (found.start, found.end) == (left.high_watermark, left.high_watermark + 15)
    assert third.partitions[1].truncated is None
    assert len(list(store.all(third.ref))) == 3


def test_epoch_ends_of_a_real_broker(services: Services) -> None:
    cluster = KafkaCluster(services.settings)
    cluster.create("t", 1)
    produce(services, 3)
    now = cluster.offsets("t")[0].leader_epoch
    assert cluster.epoch_ends("t", {0: now}, {0: now}) == {0: 3}
    assert cluster.epoch_ends("t", {0: now + 7}, {0: now}) == {0: -1}
    with pytest.raises(ClusterError, match=r"leader epoch .* of topic t partition 0 ends"):
        cluster.epoch_ends("t", {0: now}, {0: now + 1})
    with pytest.raises(ClusterError):
        cluster.epoch_ends("absent", {0: 0}, {0: 0})
    services["broker"].kill()
    with pytest.raises(ClusterError, match="cannot ask where leader epochs of topic t end"):
        cluster.epoch_ends("t", {0: now}, {0: now})
