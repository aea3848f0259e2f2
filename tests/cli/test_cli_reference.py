"""docs/CLI.md lists every command, flag and exit code of the three commands, as the code has them.

``PENSTOCK_REWRITE_GOLDENS=1 pytest tests/cli/test_cli_reference.py`` writes it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock_broker.__main__ import _parser as broker_parser
from penstock_client.__main__ import _parser as client_parser
from penstock_platform.cli import main as cli_main
from penstock_platform.cli.errors import EXIT_CODES

PAGE = Path(__file__).parents[2] / "docs" / "CLI.md"
HEAD = """\
# The command line

Generated from the code by `tests/cli/test_cli_reference.py`; do not edit.

All three commands share these conventions:

* `-o json` (`--output json`): standard output is JSON and nothing else. A failed command, also one
  with wrong usage, prints one document: `{"error", "what", "where", "fix", "exit_code"}`. `logs`,
  `tail` and `serve` print one document per line.
* `-n`: the number of lines or records. `-p`: a partition. `--set NAME=VALUE` and `--config FILE`:
  properties, named as in Kafka (`penstock-broker`) or librdkafka (`penstock-client`).
  `--bootstrap-server`: the cluster. `--yes`: do not ask.
* Errors have no Python traceback; `PENSTOCK_DEBUG=1` prints it.

For completion put `eval "$(penstock completion bash)"` (or `zsh`) in the shell's start file, for
fish `penstock completion fish | source`. `penstock-client` and `penstock-broker` have it too.

| exit code | meaning |
|---|---|
"""


def page() -> str:
    lines = [HEAD + "\n".join(f"| {code} | {text} |" for code, text in EXIT_CODES.items())]
    lines += ["", "## penstock", ""]
    for name, (module, _) in cli_main.cli.table.items():
        command = importlib.import_module(module).command
        lines += of_click(f"penstock {name}", command)
    for parser in (client_parser(), broker_parser()):
        lines += [f"## {parser.prog}", ""]
        (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        helps = {a.dest: a.help for a in commands._choices_actions}
        for name, below in commands.choices.items():
            lines += of_argparse(f"{parser.prog} {name}", helps[name] or "", below)
    return "\n".join(lines).rstrip() + "\n"


def of_click(name: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for part, below in command.commands.items():
            yield from of_click(f"{name} {part}", below)
        return
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    words = [
        f"[{p.human_readable_name}]" if not p.required else p.human_readable_name for p in arguments
    ]
    yield f"### {' '.join([name, *words])}"
    yield ""
    yield " ".join((command.help or "").split())
    yield ""
    options = [p for p in command.params if isinstance(p, click.Option)]
    for option in options:
        flags = ", ".join(f"`{flag}`" for flag in option.opts)
        choices = option.type.choices if isinstance(option.type, click.Choice) else ()
        values = f" ({', '.join(map(str, choices))})" if choices else ""
        needed = "; required" if option.required else ""
        yield f"* {flags}{values}: {option.help or ''}{needed}"
    if options:
        yield ""


def of_argparse(name: str, text: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    positional = [a for a in parser._actions if not a.option_strings]
    yield f"### {' '.join([name, *(a.dest.upper() for a in positional)])}"
    yield ""
    yield text
    yield ""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        flags = ", ".join(f"`{flag}`" for flag in action.option_strings)
        choices = f" ({', '.join(map(str, action.choices))})" if action.choices else ""
        needed = "; required" if action.option_strings and action.required else ""
        yield f"* {flags or action.dest.upper()}{choices}: {action.help or ''}{needed}"
    yield ""


def test_the_page_is_what_the_code_has() -> None:
    if os.environ.get("PENSTOCK_REWRITE_GOLDENS"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), "PENSTOCK_REWRITE_GOLDENS=1 makes it again"


def meanings() -> dict[str, set[str]]:
    """Short flag → the long flags that it abbreviates, over all commands of all three."""
    found: dict[str, set[str]] = {}

    def add(flags: list[str]) -> None:
        short = [f for f in flags if not f.startswith("--")]
        for flag in short:
            found.setdefault(flag, set()).add(next(f for f in flags if f.startswith("--")))

    def walk(command: click.Command) -> None:
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                add(parameter.opts)
        for below in getattr(command, "commands", {}).values():
            walk(below)

    for module, _ in cli_main.cli.table.values():
        walk(importlib.import_module(module).command)
    for parser in (client_parser(), broker_parser()):
        (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        for below in commands.choices.values():
            for action in below._actions:
                add(list(action.option_strings))
    return found


def test_a_short_flag_has_one_meaning_in_all_three_commands() -> None:
    several = {flag: longs for flag, longs in meanings().items() if len(longs) > 1}
    assert several.pop("-n") == {"--lines", "--max-messages"}  # at most so many
    assert not several


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("module", "program", "words"),
    [
        ("penstock_platform.cli", "penstock", ["_PENSTOCK_COMPLETE"]),
        ("penstock_client", "penstock-client", ["produce", "skip-bad-lines"]),
        ("penstock_broker", "penstock-broker", ["check-log", "data-dir"]),
    ],
)
def test_every_command_completes_in_every_shell(
    shell: str, module: str, program: str, words: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "completion", shell],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for word in [program, *words]:
        assert word in done.stdout
