"""The root of the command line: quick, and never a trace."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from penstock_platform.cli import main as cli_main
from penstock_platform.services.errors import ServiceError


def test_every_command_of_the_table_is_there() -> None:
    for name, (module, text) in cli_main.COMMANDS.items():
        command = importlib.import_module(f"penstock_platform.cli.{module}").command
        assert isinstance(command, click.Command), name
        assert text.endswith("."), name


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from penstock_platform.cli.main import run; run(['--help']); "
        "heavy = {'dagster', 'pyspark', 'boto3', 'pandas', 'pydantic'} & set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "up " in done.stdout
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), (["--version"], 0), (["nonsense"], 2), (["up", "--nonsense"], 2)],
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    assert cli_main.run(arguments) == code


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch):
    def install(error: BaseException) -> None:
        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr(cli_main.LazyGroup, "get_command", lambda *_: command)

    return install


def test_an_error_of_ours_is_its_sentence(raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(ServiceError("Port 9092 is held by x: set kafka.port"))
    assert cli_main.run(["up"]) == 1
    assert capsys.readouterr().err == "Error: Port 9092 is held by x: set kafka.port\n"


def test_an_unexpected_error_says_where_and_how_to_see_more(
    raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(KeyError("thing"))
    assert cli_main.run(["up"]) == 1
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert "KeyError: 'thing'" in shown
    assert "--debug" in shown
    assert cli_main.run(["--debug", "up"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_interrupt_and_exit_codes_of_commands(raising) -> None:
    raising(KeyboardInterrupt())
    assert cli_main.run(["up"]) == 130
    raising(click.exceptions.Exit(3))
    assert cli_main.run(["up"]) == 3


def test_settings_that_cannot_be_read_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "penstock.toml").write_text("[kafka]\nprot = 1\n")
    monkeypatch.chdir(tmp_path)
    assert cli_main.run(["status"]) == 1
    assert "kafka.prot" in capsys.readouterr().err


def test_status_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli_main.run(["status", "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["running"] is False
    assert {s["health"] for s in document["services"]} == {"down"}
    assert cli_main.run(["logs"]) == 1
    assert "penstock up" in capsys.readouterr().err
