"""What commands share: the settings of this call, the console, and how tables look.

How a command is made, so that all of them behave alike:

* It takes ``@output_option``. With ``-o json`` standard output holds one JSON document and nothing
  else, also when the command fails; progress goes to ``progress_console(output)``.
* It raises ``CommandError(what, where=…, fix=…)`` (or any error of this project's layers, whose
  sentence says the same) and never prints an error itself.
* It ends with 0, or by ``ctx.exit(code)`` with a code of ``penstock_platform.cli.errors``;
  ``NotBalancedError`` ends with 3.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table

from penstock_platform.cli.errors import CommandError, NotBalancedError
from penstock_platform.settings import Settings

__all__ = [
    "CommandError",
    "NotBalancedError",
    "cell",
    "console",
    "output_option",
    "print_json",
    "progress_console",
    "settings",
    "table",
]

WIDTH_WITHOUT_TERMINAL = 220

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people, or one JSON document for programs (errors too).",
)


def settings() -> Settings:
    """The settings of the directory in which the command was typed.

    A ``PENSTOCK_…`` variable that sets nothing is named on standard error, by every command.
    """
    for sentence in Settings.unknown_variables(os.environ):
        click.echo(f"Warning: {sentence}", err=True)
    return Settings.load()


def console() -> Console:
    """Standard output. Without a terminal lines are not folded, so that they can be searched."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, soft_wrap=True, width=WIDTH_WITHOUT_TERMINAL)


def progress_console(output: str) -> Console:
    """Where progress goes: standard output, or standard error where that holds JSON."""
    if output != "json":
        return console()
    return Console(highlight=False, soft_wrap=True, width=WIDTH_WITHOUT_TERMINAL, stderr=True)


def print_json(document: object) -> None:
    click.echo(json.dumps(document, indent=2, default=str))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: str = "") -> Table:
    """A plain table; ``right`` names the columns (comma-separated) that are aligned right."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(
            column,
            justify="right" if column in right.split(",") else "left",
            overflow="fold",
        )
    for row in rows:
        grid.add_row(*("" if cell is None else str(cell) for cell in row))
    return grid


def cell(value: object) -> str:
    """A value in a table: digits in groups, yes and no, a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
