"""The data directory: its lock, its format, and what is in it that is not ours."""

from __future__ import annotations

import errno
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from storage_broker import DATA_DIR, Broker

from penstock_broker.log.data_directory import (
    DataDirectoryError,
    log_directory_name,
    parse_log_directory_name,
    read_topic_id,
    take_directory,
    write_topic_id,
)
from penstock_broker.log.files import OsFiles
from penstock_broker.log.manager import LogManager
from penstock_broker.testing import MemFiles, SimClock


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    logs = LogManager(tmp_path / "data", SimClock(), OsFiles())
    logs.open()
    script = (
        "import sys, pathlib\n"
        "from penstock_broker.log.files import OsFiles\n"
        "from penstock_broker.log.data_directory import DataDirectoryError\n"
        "from penstock_broker.log.manager import LogManager\n"
        "from penstock_broker.testing import SimClock\n"
        "try:\n"
        "    LogManager(pathlib.Path(sys.argv[1]), SimClock(), OsFiles()).open()\n"
        "except DataDirectoryError as error:\n"
        "    sys.exit(f'refused: {error}')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "refused" in second.stderr and "in use by another broker" in second.stderr
    logs.close()
    assert subprocess.run(command, check=False).returncode == 0


def test_the_lock_of_a_killed_process_is_free(broker: Broker) -> None:
    with pytest.raises(DataDirectoryError):
        LogManager(DATA_DIR, SimClock(), broker.files).open()
    broker.kill()


def test_a_newer_format_is_refused_with_both_versions(broker: Broker) -> None:
    broker.replicas.close()
    assert isinstance(broker.files, MemFiles)
    broker.files.put(DATA_DIR / "format", b"version: 2\n")
    with pytest.raises(DataDirectoryError, match=r"'version: 2'.*reads version 1"):
        broker.start()
    broker.files.put(DATA_DIR / "format", b"version: 1\n")
    broker.start()


def test_a_directory_of_something_else_is_left_alone() -> None:
    files = MemFiles()
    files.put(DATA_DIR / "thesis.tex", b"...")
    with pytest.raises(DataDirectoryError, match=r"thesis\.tex"):
        Broker(files)
    assert not files.exists(DATA_DIR / "format")


@pytest.mark.parametrize("name", ["thesis.tex", "meta.properties"])
def test_a_directory_of_something_else_gets_no_lock(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("...")
    with pytest.raises(DataDirectoryError, match=r"use another one"):
        LogManager(tmp_path, SimClock(), OsFiles()).open()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_first_start_that_was_killed_is_made_again(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / "format.tmp").write_text("vers")
    logs = LogManager(tmp_path, SimClock(), OsFiles())
    logs.open()
    assert (tmp_path / "format").read_text() == "version: 1\n"
    logs.close()


@pytest.mark.parametrize("operation", ["write", "rename"])
def test_a_directory_that_cannot_be_formatted_is_released(operation: str) -> None:
    files = MemFiles()
    files.fail(operation, errno.ENOSPC, path_part="format")
    with pytest.raises(OSError, match="No space left"):
        take_directory(files, DATA_DIR)
    take_directory(files, DATA_DIR).close()
    assert files.get(DATA_DIR / "format") == b"version: 1\n"


def test_a_directory_is_formatted_once() -> None:
    files = MemFiles()
    take_directory(files, DATA_DIR).close()
    files.fail("write", errno.ENOSPC, path_part="format", times=5)
    take_directory(files, DATA_DIR).close()


def test_a_format_that_is_no_text_is_refused() -> None:
    files = MemFiles()
    files.put(DATA_DIR / "format", b"version: \xff")
    with pytest.raises(DataDirectoryError, match="this broker reads version 1"):
        take_directory(files, DATA_DIR)


def test_what_is_there_instead_is_named() -> None:
    files = MemFiles()
    for name in ("a", "b", "c"):
        files.put(DATA_DIR / name, b"")
    with pytest.raises(DataDirectoryError, match=r"other files \(a, …\)"):
        take_directory(files, DATA_DIR)
    files.put(DATA_DIR / "meta.properties", b"")
    with pytest.raises(DataDirectoryError, match="belongs to Apache Kafka"):
        take_directory(files, DATA_DIR)


@pytest.mark.parametrize(("topic", "partition"), [("a-b.c_d", 12), ("x", 0), ("-", 10), ("1", 1)])
def test_names_of_directories(topic: str, partition: int) -> None:
    name = log_directory_name(topic, partition)
    assert name == f"{topic}-{partition}"
    assert parse_log_directory_name(name) == (topic, partition)


@pytest.mark.parametrize(
    "name",
    ["x", "1", "-1", "x-", "x-1a", "x-1.5", "x-01", "x-²", "x-٣", ".lock", "x--", "",
     f"x-1.{uuid.UUID(int=5).hex}-delete"],
)  # fmt: skip
def test_names_that_are_of_no_log(name: str) -> None:
    assert parse_log_directory_name(name) is None


def test_the_topic_that_a_log_was_made_for() -> None:
    files, path = MemFiles(), DATA_DIR / "partition.metadata"
    files.make_directory(DATA_DIR)
    assert read_topic_id(files, DATA_DIR) is None
    write_topic_id(files, DATA_DIR, uuid.UUID(int=4))
    assert read_topic_id(files, DATA_DIR) == uuid.UUID(int=4)
    files.put(path, b"x" * 100)
    topic_id = uuid.UUID(int=5)
    write_topic_id(files, DATA_DIR, topic_id)
    assert files.get(path) == b"version: 0\ntopic_id: 00000000-0000-0000-0000-000000000005\n"
    assert read_topic_id(files, DATA_DIR) == topic_id
    for data in (b"", b"version: 0\n", b"topic_id: none\n", b"topic_id: \xff\n"):
        files.put(path, data)
        assert read_topic_id(files, DATA_DIR) is None
    files.fail("read", errno.EIO)
    assert read_topic_id(files, DATA_DIR) is None
