"""``penstock``: the root of the command line.

Commands are looked up in tables and loaded when they are called, so ``penstock --help`` is
there in a tenth of a second. A command is the attribute ``command`` of its module.

Exit codes and errors: ``penstock_platform.cli.errors``.
"""

from __future__ import annotations

import importlib
import signal
import sys
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, NoReturn

import click

from penstock_platform.cli.errors import (
    EXIT_CODES,
    OK,
    Terminated,
    end,
    wants_json,
    wants_trace,
)

# command → (module under penstock_platform.cli, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "init": (
        "init",
        "Create a project: a topic, its contract, a mart, a test.",
    ),
    "validate": (
        "validate",
        "Check the declarations before anything runs.",
    ),
    "schema": (
        "schema",
        "Write the JSON schema of the declarations, for editors.",
    ),
    "cluster": (
        "cluster",
        "Show the cluster and archive of this project, or adopt others.",
    ),
    "produce": (
        "produce",
        "Send the rows of a file to a topic as audited records.",
    ),
    "topic": (
        "topic",
        "List and describe topics of the cluster and the declarations.",
    ),
    "group": (
        "group",
        "List and describe consumer groups with their lag, and reset them.",
    ),
    "window": (
        "window",
        "List, show, re-run and accept windows; begin a new chain.",
    ),
    "lineage": (
        "lineage",
        "Show where an offset is, and from which offsets rows come.",
    ),
    "retention": (
        "retention",
        "Show, explain and apply what retention deletes.",
    ),
    "table": (
        "table",
        "Show rows of the lake's tables; parse a topic into its silver table again.",
    ),
    "audit": (
        "audit",
        "Report for every window whether its books balance (exit code 3 if not).",
    ),
    "alert": ("alert", "List alerts, and test their delivery."),
    "completion": (
        "completion",
        "Print the completion script of bash, zsh or fish.",
    ),
}


# Entry points that give more such tables: `penstock-services` adds `up`, `down`, `status` …
COMMANDS_GROUP = "penstock.commands"


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called for."""

    @cached_property
    def table(self) -> dict[str, tuple[str, str]]:
        """All commands: those of other distributions first, for they run what ours work with."""
        others = entry_points(group=COMMANDS_GROUP)
        theirs = {name: row for point in others for name, row in point.load().items()}
        ours = {n: (f"penstock_platform.cli.{m}", text) for n, (m, text) in COMMANDS.items()}
        return theirs | ours

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module = importlib.import_module(self.table[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


EPILOG = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()) + "."


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="penstock-platform", prog_name="penstock")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Land Kafka topics in Iceberg tables, and prove that every record arrived exactly once."""
    ctx.ensure_object(dict)["debug"] = debug


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code, and lets no exception pass."""
    try:
        result: Any = cli.main(args=arguments, prog_name="penstock", standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 - the one place where errors become a sentence
        return end(error, as_json=wants_json(arguments), debug=wants_trace(arguments))
    return result if isinstance(result, int) else OK


def _terminate(_signal: int, _frame: object) -> NoReturn:
    raise Terminated
