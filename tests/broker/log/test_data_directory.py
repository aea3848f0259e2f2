"""The data directory: its lock, its format, and what is in it that is not ours."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from storage_broker import DATA_DIR, Broker

from penstock_broker.log.data_directory import DataDirectoryError, parse_log_directory_name
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


def test_names_of_directories() -> None:
    assert parse_log_directory_name("a-b.c_d-12") == ("a-b.c_d", 12)
    for name in ("x", "-1", "x-", "x-1a", f"x-1.{uuid.uuid4().hex}-delete", ".lock"):
        assert parse_log_directory_name(name) is None, name
