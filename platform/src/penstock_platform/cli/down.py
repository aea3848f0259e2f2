"""``penstock down``."""

from __future__ import annotations

import sys

import click

from penstock_platform.cli.console import console, settings
from penstock_platform.services.stack import Progress, down, purge


@click.command()
@click.option(
    "--purge", "remove", is_flag=True, help="Remove the data as well: topics, lake, runs."
)
@click.option("--yes", is_flag=True, help="Do not ask before data is removed.")
def command(remove: bool, yes: bool) -> None:
    """Stop the services of this directory; their data stays, unless --purge."""
    here = settings()
    out = console()
    if remove and not yes and sys.stdin.isatty():
        click.confirm(f"Remove topics, tables and runs under {here.home}?", abort=True)

    def tell(progress: Progress) -> None:
        out.print(f"  {progress.text}")

    down(here, tell)
    out.print("stopped")
    if remove:
        for path in purge(here):
            out.print(f"  removed {path}")
