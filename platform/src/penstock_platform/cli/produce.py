"""``penstock produce``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from penstock_client.command_line import leave
from penstock_client.produce import produce_file
from penstock_client.rows import FORMATS
from penstock_client.stopping import stop_on_signals
from penstock_platform.cli.console import CommandError, output_option, print_json, settings
from penstock_platform.cli.project import Connections


@click.command()
@click.option("--topic", required=True, help="The topic; declared topics exist.")
@click.option("--file", required=True, help="A .csv or .jsonl file, or - for standard input.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: from the file's name.")
@click.option("--key", metavar="FIELD", help="The field with the record's key.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Records per second.")
@click.option("--as-text", is_flag=True, help="Send CSV fields as text.")
@click.option(
    "--skip-bad-lines", is_flag=True, help="Report lines that cannot be parsed, and continue."
)
@click.option("--bootstrap-server", help="A cluster other than this directory's.")
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    topic: str,
    file: str,
    form: str | None,
    key: str | None,
    rate: float | None,
    as_text: bool,
    skip_bad_lines: bool,
    bootstrap_server: str | None,
    output: str,
) -> None:
    """Send the rows of a file to a topic as audited records, so that the books account for each."""
    here = settings()
    if file != "-" and not Path(file).is_file():
        raise CommandError(
            f"there is no file {file}", fix="give a .csv or .jsonl file, or - for standard input"
        )
    if bootstrap_server is None:
        _ = Connections(here).kafka  # reachable, and this project's own
    config = {
        **here.kafka.properties,
        "bootstrap.servers": bootstrap_server or here.bootstrap_servers,
    }
    with stop_on_signals() as stop:
        report = produce_file(
            config,
            topic,
            file,
            form=form,
            key=key,
            rate=rate,
            as_text=as_text,
            skip_bad_lines=skip_bad_lines,
            stop=stop,
        )
    for problem in report.errors:
        click.echo(problem, err=True)
    if output == "json":
        print_json(asdict(report))
    else:
        click.echo(str(report))
    if report.interrupted:
        leave(stop.exit_code)
    if report.ok and output != "json":
        click.echo(f"watch it: penstock window list {topic} · penstock audit {topic}", err=True)
    sys.stdout.flush()
    ctx.exit(0 if report.ok else 1)
