"""Thousands of partitions with few descriptors: files are closed and opened again."""

from __future__ import annotations

from pathlib import Path

from log_bench import values_of
from test_log_manager import Broker

from penstock_broker.log.files import OsFiles
from penstock_broker.wire.records import iter_batches

MOST = 40


def open_now(broker: Broker) -> int:
    files = broker.files
    assert isinstance(files, OsFiles)
    return files.open_files


def test_many_partitions_with_few_descriptors(tmp_path: Path) -> None:
    broker = Broker(OsFiles(), tmp_path / "data")
    broker.logs.open_files_max = MOST
    broker.logs.bound_open_files()
    broker.replicas.create_topic("t", 100, {"segment.bytes": "150"})
    highest = 0
    reader = None
    for number in range(300):
        broker.append("t", number % 100, f"{number}")
        if number == 150:
            reader = broker.replicas.partition("t", 0).fetch(0, 1000)
        highest = max(highest, open_now(broker))
        if number % 20 == 0:  # the job of every second
            for job in broker.logs.flush_jobs():
                job.run()
                job.log.flushed(job)
    assert highest < MOST + 3 * 20 + 10, "only what waits for its sync is held beyond the bound"
    for index in range(100):
        expected = [f"{index}", f"{100 + index}", f"{200 + index}"]
        assert broker.values("t", index) == expected
        assert open_now(broker) < MOST + 3 * 20 + 10
    assert reader is not None
    records = [r for b in iter_batches(memoryview(reader.read())) for r in b.records()]
    assert values_of(records) == ["0", "100"], "who holds a slice holds the file"
    broker.replicas.close()
    again = Broker(OsFiles(), tmp_path / "data")
    assert again.values("t", 99) == ["99", "199", "299"]
    again.replicas.close()


def test_what_is_not_on_the_disk_is_not_let_go(tmp_path: Path) -> None:
    """The kernel tells of a failed write those who have the file open: nobody else would hear."""
    broker = Broker(OsFiles(), tmp_path / "data")
    broker.replicas.create_topic("t", 30, {})
    for index in range(30):
        broker.append("t", index, "x")
    before = open_now(broker)
    broker.logs.open_files_max = 5
    broker.logs.bound_open_files()
    broker.append("t", 0, "y")
    broker.logs._release_files(0)
    assert open_now(broker) == before
    jobs = broker.logs.flush_jobs()
    assert len(jobs) == 30, "they are synced soon, to be let go of then"
    for job in jobs:
        job.run()
        job.log.flushed(job)
    jobs.clear()
    del job
    broker.logs._release_files(0)
    assert open_now(broker) == 0
    broker.replicas.close()
