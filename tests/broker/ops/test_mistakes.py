"""Mistakes in starting a broker: one sentence that says what, where and how to fix it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock_broker.testing import BrokerProcess


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock_broker", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def sentence(done: subprocess.CompletedProcess[str], status: int = 1) -> str:
    """The only line that was written."""
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("penstock-broker: ")
    return lines[0].removeprefix("penstock-broker: ")


def serve(tmp_path: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run("serve", "--data-dir", tmp_path / "data", "--port", "0", *arguments)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("num.partition=3", "Unknown configuration num.partition; did you mean num.partitions?"),
        ("num.partitions=many", "num.partitions: Not a number of type INT"),
        ("num.partitions=0", "num.partitions: Value must be at least 1"),
        ("log.cleanup.policy=shred", "log.cleanup.policy: String must be one of: compact, delete"),
        ("penstock.log.format=xml", "penstock.log.format: String must be one of: text, json"),
        ("penstock.http.listener=9404", "penstock.http.listener: expected host:port"),
        ("nothing", "expected name=value"),
    ],
)
def test_settings_that_are_not_right(tmp_path: Path, assignment: str, said: str) -> None:
    assert said in sentence(serve(tmp_path, "--set", assignment))
    assert not (tmp_path / "data").exists()


def test_a_file_of_settings_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("# fine\nnum.partitions=3\nand this is not\n")
    said = sentence(serve(tmp_path, "--config", tmp_path / "p"))
    assert said.startswith(f"{tmp_path}/p:3: expected name=value")


def test_a_file_of_settings_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    said = sentence(serve(tmp_path, "--config", tmp_path / "none"))
    assert said == f"cannot read the settings in {tmp_path}/none: No such file or directory"
    (tmp_path / "p").write_bytes(b"\xff\xfe\x00")
    assert "it is not UTF-8 text" in sentence(serve(tmp_path, "--config", tmp_path / "p"))


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--data-dir", tmp_path / "data", "--port", port)
    said = sentence(done)
    assert said.startswith(f"cannot listen on 127.0.0.1:{port}: Address already in use; ")
    if Path("/proc/net/tcp").exists():
        assert re.search(r"pid \d+ \(.*python.*\) has it", said)


def test_a_port_that_is_none(tmp_path: Path) -> None:
    done = run("serve", "--data-dir", tmp_path / "data", "--port", "70000")
    assert done.returncode == 2
    assert "'70000' is not a port (0 to 65535)" in done.stderr


def test_an_address_of_another_machine(tmp_path: Path) -> None:
    said = sentence(serve(tmp_path, "--host", "192.0.2.1"))
    assert said.startswith("cannot listen on 192.0.2.1:0: Cannot assign requested address")


def test_a_host_name_that_does_not_resolve(tmp_path: Path) -> None:
    said = sentence(serve(tmp_path, "--host", "no-such-host.invalid"))
    assert said.startswith("cannot listen on no-such-host.invalid:0: ")
    assert "Unknown error" not in said


def test_a_directory_that_another_broker_has(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        said = sentence(serve(tmp_path))
        assert said.startswith(f"cannot use data directory {tmp_path}/data: it is in use by")
        if Path("/proc/locks").exists():
            assert f"pid {broker.pid} (python" in said


def test_a_directory_of_an_apache_kafka(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\n")
    said = sentence(serve(tmp_path))
    assert "it belongs to Apache Kafka (meta.properties): use another one" in said


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "diary.txt").write_text("Monday\n")
    assert "it holds other files (diary.txt, …)" in sentence(serve(tmp_path))


def test_a_directory_of_a_later_format(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "format").write_text("version: 99\n")
    assert "says 'version: 99'; this broker reads version" in sentence(serve(tmp_path))


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert "File exists" in sentence(serve(tmp_path))


def test_tools_that_are_given_the_wrong_thing(tmp_path: Path) -> None:
    assert "are in it as .log files" in sentence(run("dump-log", tmp_path))
    assert "is not a file" in sentence(run("dump-log", tmp_path / "none"))
    assert "is not a directory" in sentence(run("check-log", tmp_path / "none"))


def test_help_has_examples_and_every_command_says_what_it_does() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout
    for command in ("serve", "api-table", "dump-log", "check-log"):
        assert command in done.stdout
        shown = run(command, "--help")
        assert shown.returncode == 0
        assert len(shown.stdout.splitlines()) > 5


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m penstock_broker api-table | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_the_version_is_printed() -> None:
    assert re.fullmatch(r"penstock-broker \d+\.\d+.*\n", run("--version").stdout)
