"""``penstock cluster show | adopt``."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from penstock_platform.cli.console import (
    CommandError,
    console,
    output_option,
    print_json,
    settings,
)
from penstock_platform.cli.errors import USAGE
from penstock_platform.connections import Connections
from penstock_platform.identity import adopt as record_found
from penstock_platform.identity import archive_id, recorded


@click.group()
def command() -> None:
    """The Kafka cluster and the archive of this project."""


@command.command()
@output_option
def show(output: str) -> None:
    """Show the recorded ids, and the ids found now at the addresses in the settings."""
    here = settings()
    plain, known = Connections(here), recorded(here)
    found: dict[str, str] = {}
    for name, ask in (
        ("cluster_id", plain.kafka.cluster_id),
        ("archive_id", lambda: archive_id(plain.archive)),
    ):
        try:
            found[name] = ask()
        except RuntimeError as error:
            found[name] = ""
            click.echo(str(error), err=True)
    if output == "json":
        print_json({"home": here.home, "recorded": asdict(known), "found": found})
        return
    out = console()
    out.print(f"project  {here.home}")
    for title, address, name in (
        ("cluster", here.bootstrap_servers, "cluster_id"),
        ("archive", f"{plain.archive.uri} at {here.s3_endpoint}", "archive_id"),
    ):
        was, now = getattr(known, name) or "none", found[name] or "none"
        out.print(f"{title}  {address}: recorded {was}, found {now}")


@command.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def adopt(yes: bool, output: str) -> None:
    """Record the ids of the cluster and the archive that answer now.

    Use it for a cluster that was recreated on purpose, or a changed address. Windows and books of
    the old cluster stay in their archive under its id; the new cluster gets chains of its own.
    """
    here = settings()
    before = recorded(here)
    if not yes:
        if not sys.stdin.isatty():
            raise CommandError(
                "there is no terminal to ask on; nothing was done",
                fix="check with `penstock cluster show`, then run: penstock cluster adopt --yes",
                code=USAGE,
            )
        click.confirm(
            f"Record what answers at {here.bootstrap_servers} and {here.s3_endpoint} as this "
            f"project's, instead of cluster {before.cluster_id or 'none'}?",
            abort=True,
            err=True,
        )
    now = record_found(here)
    if output == "json":
        print_json({"before": asdict(before), "now": asdict(now)})
        return
    console().print(f"cluster {before.cluster_id or 'none'} → {now.cluster_id}")
    console().print(f"archive {before.archive_id or 'none'} → {now.archive_id}")
