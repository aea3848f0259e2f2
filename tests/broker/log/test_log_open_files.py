"""Thousands of partitions with few descriptors: files are closed and opened again."""

from __future__ import annotations

from pathlib import Path

from log_bench import values_of
from storage_broker import Broker

from penstock_broker.log.files import OsFiles
from penstock_broker.wire.records import iter_batches

MOST = 40


def open_now(broker: Broker) -> int:
    files = broker.files
    assert isinstance(files, OsFiles)
    return files.open_files


def test_many_partitions_with_few_descriptors(tmp_path: Path) -> None:
    broker = Broker(OsFiles(), tmp_path / "data")
    broker.logs.open_files.most = MOST
    broker.logs.own_files()
    broker.replicas.create_topic("t", 100, {"segment.bytes": "150"})
    highest = 0
    reader = None
    for number in range(300):
        broker.append("t", number % 100, f"{number}")
        if number == 150:
            reader = broker.replicas.partition("t", 0).fetch(0, 1000)
        highest = max(highest, open_now(broker))
    assert highest <= MOST + 2, "what is being written while a segment is begun"
    for index in range(100):
        expected = [f"{index}", f"{100 + index}", f"{200 + index}"]
        assert broker.values("t", index) == expected
        assert open_now(broker) <= MOST + 2
    assert reader is not None
    records = [r for b in iter_batches(memoryview(reader.read())) for r in b.records()]
    assert values_of(records) == ["0", "100"], "who holds a slice holds the file"
    broker.replicas.close()
    again = Broker(OsFiles(), tmp_path / "data")
    assert again.values("t", 99) == ["99", "199", "299"]
    again.replicas.close()


def test_files_that_are_on_the_disk_are_closed_first(tmp_path: Path) -> None:
    """The kernel reports a failed write to those who have the file open."""
    broker = Broker(OsFiles(), tmp_path / "data")
    broker.replicas.create_topic("t", 30, {})
    logs = [broker.replicas.partition("t", index).log for index in range(30)]
    for index in range(30):
        broker.append("t", index, "x")
        if index >= 20:
            logs[index].flush()
    broker.logs.open_files.release(logs, 20)
    assert open_now(broker) == 20
    assert [log.segments[0]._file is None for log in logs] == [False] * 20 + [True] * 10
    broker.logs.open_files.release(logs, 5)
    assert open_now(broker) <= 5, "being short of descriptors is worse"
    for index in range(30):
        assert broker.append("t", index, "y") == 1
    broker.replicas.close()
