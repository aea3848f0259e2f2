"""``flush.messages=1``: nothing is acknowledged, and nothing seen, before it is on the disk."""

from __future__ import annotations

import errno
from random import Random

import pytest
from log_bench import Bench
from storage_broker import Broker

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.flushing import FlushJob
from penstock_broker.log.group_flush import Done
from penstock_broker.testing import MemFiles


class Syncs:
    """Syncs that end when the test says so."""

    def __init__(self, broker: Broker) -> None:
        self.waiting: list[tuple[FlushJob, Done]] = []
        broker.logs.group_flush.submit = lambda job, done: self.waiting.append((job, done))

    def finish(self, error: OSError | None = None) -> None:
        job, done = self.waiting.pop(0)
        if error is None:
            job.run()
        done(error)


@pytest.fixture
def broker() -> Broker:
    broker = Broker(MemFiles())
    broker.replicas.create_topic("t", 1, {"flush.messages": "1"})
    return broker


def test_appends_share_a_sync(broker: Broker) -> None:
    """The first has one begun; those that come meanwhile share the next."""
    syncs = Syncs(broker)
    partition = broker.replicas.partition("t", 0)
    advanced: list[int] = []
    broker.replicas.advance_listeners.append(lambda _partition, size: advanced.append(size))
    for number in range(5):
        broker.append("t", 0, f"{number}")
    assert len(syncs.waiting) == 1
    assert partition.high_watermark == 0
    assert broker.values("t") == []
    assert partition.must_wait(-1, 0)
    assert partition.must_wait(1, 0)
    assert not partition.must_wait(0, 0)
    assert not partition.commits_at_once
    syncs.finish()
    assert partition.high_watermark == 1
    assert broker.values("t") == ["0"]
    assert not partition.must_wait(-1, 0)
    assert len(syncs.waiting) == 1
    syncs.finish()
    assert partition.high_watermark == 5
    assert not syncs.waiting
    assert sum(advanced) == partition.size_bytes, "the waiting fetches are notified of every byte"


def test_what_readers_saw_survives_a_power_cut(broker: Broker, seed: int) -> None:
    random = Random(seed)
    syncs = Syncs(broker)
    for number in range(30):
        broker.append("t", 0, f"{number}")
        if random.random() < 0.3 and syncs.waiting:
            syncs.finish()
    seen = broker.values("t")
    assert isinstance(broker.files, MemFiles)
    broker.files = broker.files.power_cut(random)
    broker.start()
    assert broker.values("t")[: len(seen)] == seen


def test_recovered_records_are_seen_at_once(broker: Broker) -> None:
    Syncs(broker)
    broker.append("t", 0, "a")
    broker.kill()
    assert broker.values("t") == ["a"]


def test_switched_on_nothing_disappears(broker: Broker) -> None:
    broker.replicas.create_topic("u", 1, {})
    syncs = Syncs(broker)
    broker.append("u", 0, "a")
    broker.replicas.set_configs("u", {"flush.messages": "1"})
    assert broker.values("u") == ["a"]
    broker.append("u", 0, "b")
    assert broker.values("u") == ["a"]
    syncs.finish()
    assert broker.values("u") == ["a", "b"]


def test_a_failed_sync_takes_the_partition_offline(broker: Broker) -> None:
    """No waiting append succeeds, and the kernel is not asked a second time."""
    syncs = Syncs(broker)
    failed: list[tuple[str, int]] = []
    broker.replicas.failure_listeners.append(lambda *key: failed.append(key))
    broker.append("t", 0, "a")
    syncs.finish(OSError(errno.EIO, "broken"))
    partition = broker.replicas.partition("t", 0)
    assert partition.high_watermark == 0
    assert not partition.is_online
    assert failed == [("t", 0)]
    with pytest.raises(KafkaError) as error:
        broker.append("t", 0, "b")
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.logs.metrics.logs_failed.value == 1


def test_every_so_many_records_without_waiting(broker: Broker) -> None:
    """flush.messages=3 syncs in the background: records are acknowledged before."""
    broker.replicas.create_topic("u", 1, {"flush.messages": "3"})
    syncs = Syncs(broker)
    for number in range(7):
        broker.append("u", 0, f"{number}")
    partition = broker.replicas.partition("u", 0)
    assert partition.high_watermark == 7
    assert partition.commits_at_once
    assert len(syncs.waiting) == 1
    syncs.finish()
    assert partition.log.recovery_point == 3
    syncs.finish()
    assert partition.log.recovery_point == 7


def test_names_are_synced_when_they_have_changed(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    first = log.flush_job()
    assert first is not None
    assert first.with_directory
    first.run()
    log.flushed(first)
    bench.append(log, "b")
    second = log.flush_job()
    assert second is not None
    assert not second.with_directory, "a sync for each append is one sync, not two"


def test_the_brokers_own_topics_are_synced_when_the_append_returns(broker: Broker) -> None:
    """Coordinators do not wait for a high watermark: they answer what they have written."""
    broker.replicas.create_topic("__consumer_offsets", 1, {"flush.messages": "1"})
    syncs = Syncs(broker)
    broker.append("__consumer_offsets", 0, "a")
    assert not syncs.waiting
    assert broker.replicas.partition("__consumer_offsets", 0).high_watermark == 1
