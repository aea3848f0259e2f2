"""The root of the command line: quick, and never a trace."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from penstock_platform.cli import main as cli_main
from penstock_platform.cli.console import output_option
from penstock_platform.cli.errors import CommandError, NotBalancedError
from penstock_services.errors import ServiceError


def test_every_command_of_the_table_is_there() -> None:
    for name, (module, text) in cli_main.cli.table.items():
        command = importlib.import_module(module).command
        assert isinstance(command, click.Command), name
        assert text.endswith("."), name


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from penstock_platform.cli.main import run; run(['--help']); "
        "heavy = {'dagster', 'pyspark', 'boto3', 'pandas', 'pydantic'} & set(sys.modules); "
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "up " in done.stdout


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
        @output_option
        def command(output: str) -> None:
            del output
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


def test_an_error_is_one_json_document_with_what_where_and_fix(
    raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(CommandError("spec.x is not a key", where="defs.yaml:5", fix="remove it"))
    assert cli_main.run(["up", "-o", "json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "error": "CommandError",
        "what": "spec.x is not a key",
        "where": "defs.yaml:5",
        "fix": "remove it",
        "exit_code": 1,
    }
    assert captured.err == ""
    assert cli_main.run(["up"]) == 1
    assert capsys.readouterr().err == "Error: defs.yaml:5: spec.x is not a key; remove it\n"


def test_the_sentences_of_other_layers_come_apart_in_json(
    raising, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ServiceError("a/penstock.toml:3: port 9092 is taken; set kafka.port"))
    assert cli_main.run(["up", "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["where"] == "a/penstock.toml:3"
    assert document["what"] == "port 9092 is taken"
    assert document["fix"] == "set kafka.port"
    assert document["error"] == "ServiceError"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nonsense", "-o", "json"], 2),
        (["up", "--nonsense", "-o", "json"], 2),
        (["window", "show", "--output=json"], 2),
        (["logs", "-ojson", "no-such-service"], 2),
    ],
)
def test_wrong_usage_is_json_too(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli_main.run(arguments) == code
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == code
    assert "--help" in document["fix"]


def test_not_balanced_ends_with_3(raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(NotBalancedError("orders: 1 of 2 windows not balanced"))
    assert cli_main.run(["audit", "-o", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["exit_code"] == 3


def test_the_variable_shows_the_trace_beside_the_document(
    raising, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(ServiceError("no"))
    assert cli_main.run(["up"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert cli_main.run(["up", "-o", "json"]) == 1
    captured = capsys.readouterr()
    assert "Traceback" in captured.err
    assert json.loads(captured.out)["what"] == "no"


def test_sigterm_ends_a_command_with_143(tmp_path: Path) -> None:
    (tmp_path / ".penstock" / "logs").mkdir(parents=True)
    (tmp_path / ".penstock" / "logs" / "broker.log").write_text("a line\n")
    command = [sys.executable, "-m", "penstock_platform.cli", "logs", "-f", "broker"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "a line\n"
        process.terminate()
        assert process.wait(60) == 143


def commands() -> list[tuple[str, click.Command]]:
    """Every command that does something, with its name."""
    found: list[tuple[str, click.Command]] = []

    def walk(name: str, command: click.Command) -> None:
        if isinstance(command, click.Group):
            for part, below in command.commands.items():
                walk(f"{name} {part}", below)
        else:
            found.append((name, command))

    for name, (module, _) in cli_main.cli.table.items():
        walk(name, importlib.import_module(module).command)
    return found


@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_every_command_answers_in_json(name: str, command: click.Command) -> None:
    options = {o: p for p in command.params for o in p.opts}
    assert isinstance(options.get("-o", click.Argument(["x"])).type, click.Choice), name


def test_purge_without_a_terminal_needs_yes_and_names_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / ".penstock"
    for name in ("broker", "s3", "lake", "dagster"):
        (home / name).mkdir(parents=True)
        (home / name / "data").write_text("x")
    (home / "alerts.jsonl").write_text("{}\n")
    assert cli_main.run(["down", "--purge"]) == 2
    said = capsys.readouterr().err
    for name in ("broker", "s3", "lake", "dagster", "alerts.jsonl"):
        assert str(home / name) in said
        assert (home / name).exists()
    assert "--yes" in said
    assert "every record" in said
    assert cli_main.run(["down", "--purge", "--yes", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert sorted(document["removed"]) == sorted(
        str(home / n) for n in ("broker", "s3", "lake", "dagster", "alerts.jsonl")
    )
    assert not home.exists()


def test_down_without_purge_leaves_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".penstock" / "broker").mkdir(parents=True)
    assert cli_main.run(["down"]) == 0
    assert (tmp_path / ".penstock" / "broker").is_dir()
    assert "removed" not in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["status"], ["logs"], ["topic", "list"], ["alert", "list"]])
def test_every_command_names_a_misspelt_variable(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_KAFKA_PROT", "1")
    monkeypatch.setenv("PENSTOCK_KAFKA_PORT", "1")
    cli_main.run(arguments)
    assert "did you mean PENSTOCK_KAFKA_PORT?" in capsys.readouterr().err
