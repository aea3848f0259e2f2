"""Starts: after clean stops, kills and power cuts, by checkpoints; and the recovery report."""

from __future__ import annotations

import errno
from random import Random

import pytest
from storage_broker import DATA_DIR, Broker, code

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.testing import MemFiles


def test_everything_is_there_after_a_clean_restart(broker: Broker) -> None:
    broker.replicas.create_topic("t", 3, {"segment.bytes": "1000"})
    topic = broker.metadata.topic("t")
    cluster_id = broker.metadata.cluster_id
    for partition in range(3):
        broker.append("t", partition, f"p{partition}")
    broker.restart()
    assert not broker.files.exists(DATA_DIR / "clean-shutdown"), "a kill from here on is seen"
    assert broker.metadata.cluster_id == cluster_id
    assert broker.metadata.topic("t") == topic
    assert [broker.values("t", partition) for partition in range(3)] == [["p0"], ["p1"], ["p2"]]
    assert broker.replicas.partition("t", 0).log.config.segment_bytes == 1000
    assert broker.replicas.partition("t", 0).leader_epoch == 0
    assert broker.report() == []


def test_a_kill_raises_the_leader_epoch(broker: Broker) -> None:
    """Pitfall 2: offsets served before the crash may get other records, under another epoch."""
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    broker.kill()
    assert broker.replicas.partition("t", 0).leader_epoch == 1
    assert broker.metadata.topics["t"].partitions[0].leader_epoch == 1
    broker.append("t", 0, "b")
    assert broker.replicas.partition("t", 0).end_of_epoch(0) == (0, 1)
    assert broker.values("t") == ["a", "b"]
    assert [line["event"] for line in broker.report()] == ["start"]


def test_a_cut_is_in_the_recovery_report(broker: Broker) -> None:
    broker.replicas.create_topic("t", 2, {})
    broker.append("t", 1, "a", "b")
    size = broker.replicas.partition("t", 1).size_bytes
    broker.append("t", 1, "c", "d", "e")
    path = DATA_DIR / "t-1" / "00000000000000000000.log"
    assert isinstance(broker.files, MemFiles)
    broker.files.put(path, broker.files.get(path)[:-2])
    broker.kill()
    cut, start = broker.report()
    assert cut == {
        "event": "cut",
        "at_ms": broker.clock.now_ms(),
        "topic": "t",
        "partition": 1,
        "first_offset": 2,
        "end_offset": 5,
        "reason": "torn batch: 2 of 85 bytes missing",
        "segment": "00000000000000000000.log",
        "position": size,
        "bytes": 83,
        "segments_removed": [],
    }
    assert (start["event"], start["logs"], start["cuts"]) == ("start", 2, 1)
    assert broker.logs.report.cuts == 1
    broker.kill()
    assert [line["event"] for line in broker.report()] == ["cut", "start", "start"]


def test_recovery_points_save_work(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"segment.bytes": "200"})
    for number in range(10):
        broker.append("t", 0, f"value {number}")
    jobs = broker.logs.flush_jobs()
    assert len(jobs) == 1
    for job in jobs:
        job.run()
    broker.logs.flushed(jobs)
    broker.logs.checkpoint_recovery_points()
    broker.append("t", 0, "last")
    broker.kill()
    log = broker.replicas.partition("t", 0).log
    assert 0 < log.recovered.bytes_checked <= 200
    assert len(broker.values("t")) == 11


def test_a_damaged_checkpoint_means_that_all_is_checked(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    broker.replicas.close()
    assert isinstance(broker.files, MemFiles)
    broker.files.put(DATA_DIR / "recovery-point-offset-checkpoint", b"0\n7\nt 0 1\n")
    broker.files = broker.files.kill()
    broker.start()
    assert broker.values("t") == ["a"]
    assert not broker.replicas.partition("t", 0).log.recovered.clean


def test_the_log_start_survives_a_kill(broker: Broker) -> None:
    broker.replicas.create_topic("t", 2, {})
    for partition in (0, 1):
        broker.append("t", partition, "a", "b", "c")
    assert broker.replicas.delete_records({("t", 0): 2, ("t", 1): -1}) == {
        ("t", 0): 2,
        ("t", 1): 3,
    }
    broker.kill()
    assert broker.replicas.partition("t", 0).log_start_offset == 2
    assert broker.replicas.partition("t", 1).log_start_offset == 3


def test_an_interrupted_delete_records_is_finished_at_the_next_start(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"segment.bytes": "100"})
    for value in "abc":
        broker.append("t", 0, value)
    broker.replicas.partition("t", 0).log.advance_start(2)
    broker.logs.checkpoint_log_starts()
    broker.kill()
    log = broker.replicas.partition("t", 0).log
    assert (log.log_start_offset, len(log.segments)) == (2, 1)
    assert broker.values("t") == ["c"]


def test_a_log_that_cannot_be_read_is_offline_and_the_others_serve(broker: Broker) -> None:
    broker.replicas.create_topic("t", 2, {})
    broker.append("t", 0, "a")
    broker.append("t", 1, "b")
    assert isinstance(broker.files, MemFiles)
    broker.files = broker.files.kill()
    broker.files.fail("open", errno.EIO, path_part="t-0/0000", times=50)
    broker.start()
    with pytest.raises(KafkaError) as error:
        broker.replicas.partition("t", 0)
    assert code(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.replicas.has_partition("t", 0)
    assert broker.values("t", 1) == ["b"]
    assert "offline" in [line["event"] for line in broker.report()]


def test_a_log_that_has_vanished_is_reported(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    broker.replicas.close()
    broker.files.remove_tree(DATA_DIR / "t-0")
    assert isinstance(broker.files, MemFiles)
    broker.files = broker.files.kill()
    broker.start()
    missing = [line for line in broker.report() if line["event"] == "missing"]
    assert missing[0]["topic"] == "t" and missing[0]["partition"] == 0
    assert broker.replicas.partition("t", 0).log_start_offset == 1, "no offset is given out again"


def test_any_moment_of_a_power_cut_leaves_a_directory_that_starts(seed: int) -> None:
    random = Random(seed)
    for _ in range(15):
        broker = Broker(MemFiles(), log_segment_bytes="400")
        alive: dict[str, None] = {}
        for step in range(30):
            action = random.random()
            name = f"t{random.randrange(4)}"
            if action < 0.25 and name not in alive:
                broker.replicas.create_topic(name, random.randint(1, 2), {})
                alive[name] = None
            elif action < 0.35 and name in alive:
                broker.replicas.delete_topic(name)
                del alive[name]
            elif name in alive:
                broker.append(name, 0, f"value {step}")
            if random.random() < 0.1:
                assert isinstance(broker.files, MemFiles)
                broker.files = broker.files.power_cut(random)
                broker.start()
                assert list(broker.metadata.topics) == sorted(alive)
        for name in alive:
            broker.append(name, 0, "still")
        broker.replicas.close()


@pytest.mark.parametrize("data", [None, b"", b"version: 0\ntopic"])
def test_a_log_whose_topic_id_was_lost_is_adopted(broker: Broker, data: bytes | None) -> None:
    """The note of the id is not synced when a topic is made; the log's name says enough."""
    topic = broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    assert isinstance(broker.files, MemFiles)
    path = DATA_DIR / "t-0" / "partition.metadata"
    broker.files.remove(path)
    if data is not None:
        broker.files.put(path, data)
    broker.kill()
    assert broker.values("t") == ["a"]
    assert str(topic.topic_id).encode() in broker.files.get(path)


def test_idle_checkpoints_write_nothing(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    assert isinstance(broker.files, MemFiles)
    broker.logs.checkpoint_recovery_points()
    broker.logs.checkpoint_log_starts()
    writes = broker.files.writes
    broker.logs.checkpoint_recovery_points()
    broker.logs.checkpoint_log_starts()
    assert broker.files.writes == writes


def test_a_log_with_data_that_no_topic_knows_is_kept_aside(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    broker.replicas.close()
    assert isinstance(broker.files, MemFiles)
    broker.files.remove(DATA_DIR / "metadata.json")
    broker.files = broker.files.kill()
    broker.start()
    (stray,) = broker.directories()
    assert stray.startswith("t-0.") and stray.endswith("-stray")
    assert broker.report()[-1]["event"] == "stray"
    broker.replicas.create_topic("t", 1, {})
    assert broker.values("t") == []
