"""Systems that lack what Linux has: everything works, with the fallbacks switched on here.

A process in which the calls are taken away before the broker is imported, as on macOS: sendfile,
MSG_MORE, fdatasync, pwritev, preadv with RWF_NOWAIT, epoll, and everything under /proc; and
fsync's stronger variant F_FULLFSYNC put in.
"""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from penstock_broker.log import files as files_module
from penstock_broker.log.files import OsFiles
from penstock_broker.server import holders, process, state_metrics

WITHOUT = """
import select
del select.epoll  # before socket imports selectors, which look for it
import os, socket, sys
from pathlib import Path

for name in ("sendfile", "fdatasync", "pwritev", "preadv", "RWF_NOWAIT", "posix_fallocate",
             "posix_fadvise", "memfd_create", "eventfd", "pidfd_open", "copy_file_range", "splice"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("MSG_MORE", "SO_REUSEPORT", "TCP_CORK"):
    if hasattr(socket, name):
        delattr(socket, name)

def no_proc(function):
    def checked(path=".", *arguments, **options):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(path, *arguments, **options)
    return checked

Path.read_text = no_proc(Path.read_text)
Path.read_bytes = no_proc(Path.read_bytes)
os.scandir = no_proc(os.scandir)
os.listdir = no_proc(os.listdir)
"""

SCENE = """
import selectors, tempfile, urllib.request
from confluent_kafka import Consumer, Producer
from penstock_broker.testing import ThreadBroker

assert selectors.DefaultSelector is not getattr(selectors, "EpollSelector", None)
with tempfile.TemporaryDirectory() as folder:
    settings = {"penstock.http.listener": "127.0.0.1:0", "log.flush.interval.messages": "100",
                "log.segment.bytes": "1000000", "group.initial.rebalance.delay.ms": "0"}
    broker = ThreadBroker(Path(folder) / "data", settings).start()
    topic = broker.create_topic(partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all",
                         "batch.size": 100_000})
    for number in range(5_000):
        producer.produce(topic, b"%06d" % number + os.urandom(1_000))
        producer.poll(0)
    assert producer.flush(30) == 0
    broker.kill()
    broker.start()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g",
                         "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen = set()
    while len(seen) < 5_000:
        found = consumer.consume(min(500, 5_000 - len(seen)), timeout=120)
        assert found, len(seen)
        seen |= {message.value()[:6] for message in found}
    consumer.close()
    host, port = broker.broker.observation.address
    text = urllib.request.urlopen(f"http://{host}:{port}/metrics").read().decode()
    assert "process_peak_resident_memory_bytes" in text
    assert "process_resident_memory_bytes" not in text
    broker.stop()
print("all of it works")
"""


def test_everything_works_without_what_only_linux_has(tmp_path: Path) -> None:
    script = tmp_path / "scene.py"
    script.write_text(WITHOUT + SCENE)
    run = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4_000:]
    assert "all of it works" in run.stdout


def test_a_full_sync_is_used_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(files_module, "_F_FULLFSYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, command: asked.append(command))
    monkeypatch.setattr(files_module, "_datasync", files_module._full_sync)
    OsFiles().open(tmp_path / "file", create=True).sync()
    assert asked == [51]


def test_a_file_system_without_full_sync_gets_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, command: int) -> None:
        raise OSError(45, "Operation not supported")

    synced: list[int] = []
    monkeypatch.setattr(files_module, "_F_FULLFSYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(files_module, "_datasync", files_module._full_sync)
    file = OsFiles().open(tmp_path / "file", create=True)
    file.sync()
    assert synced == [file.fd]


def test_parts_are_joined_where_there_is_no_pwritev(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "_IOV_MAX", 0)
    file = OsFiles().open(tmp_path / "file", create=True)
    file.write_parts([b"one", b"two"], 2)
    assert file.read(0, 100) == b"\0\0onetwo"


def test_unlimited_open_files_that_are_not_allowed_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """macOS names RLIM_INFINITY as the bound, and takes no more than a kernel setting."""
    set_to: list[int] = []

    def set_limit(_: int, limits: tuple[int, int]) -> None:
        if limits[0] == resource.RLIM_INFINITY or limits[0] > 100_000:
            raise ValueError("not allowed to raise maximum limit")
        set_to.append(limits[0])

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    process.allow_open_files()
    assert set_to == [65_536]


def test_without_proc_the_owner_of_the_port_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "_PROC", tmp_path)
    assert holders.port_holder(80) is None
    assert holders.lock_holder(tmp_path) is None


def test_what_the_process_says_of_itself() -> None:
    assert (state_metrics.resident_bytes() or 0) > 1_000_000
    assert (state_metrics.open_descriptors() or 0) > 2
