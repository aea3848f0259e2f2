"""``penstock down``."""

from __future__ import annotations

import sys

import click

from penstock_platform.cli.console import (
    CommandError,
    output_option,
    print_json,
    progress_console,
    settings,
)
from penstock_platform.cli.errors import USAGE
from penstock_services.stack import Progress, down, purge, purged_paths


@click.command()
@click.option("--purge", "remove", is_flag=True, help="Remove the data too: topics, lake, runs.")
@click.option("--yes", is_flag=True, help="Do not ask before data is removed.")
@output_option
def command(remove: bool, yes: bool, output: str) -> None:
    """Stop the services of this directory. Their data stays, unless you give --purge.

    --purge lists everything that it removes and asks first; without a terminal it needs --yes.
    Your own services (kafka.bootstrap_servers, s3.endpoint) keep their data.
    """
    here = settings()
    out = progress_console(output)
    doomed = purged_paths(here) if remove else []
    if remove and not yes:
        _ask(doomed)

    def report(progress: Progress) -> None:
        out.print(f"  {progress.text}")

    down(here, report)
    out.print("stopped")
    removed = purge(here) if remove else []
    for path in removed:
        out.print(f"  removed {path}")
    if output == "json":
        print_json({"home": here.home, "stopped": True, "removed": removed})


def _ask(doomed: list[tuple[str, str]]) -> None:
    """Ask on a terminal; there is no answer elsewhere. Raises CommandError (usage) or Abort."""
    listed = "\n".join(f"  {path}  ({what})" for path, what in doomed) or "  nothing is there"
    if not sys.stdin.isatty():
        raise CommandError(
            f"--purge removes data, and there is no terminal to ask on. "
            f"It would remove\n{listed}\nNothing was stopped or removed",
            fix="add --yes to do it: penstock down --purge --yes",
            code=USAGE,
        )
    click.echo(f"This removes, and cannot be undone:\n{listed}", err=True)
    click.confirm("Remove all of it?", abort=True, err=True)
