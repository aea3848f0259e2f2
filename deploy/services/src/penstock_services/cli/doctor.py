"""``penstock doctor``."""

from __future__ import annotations

from dataclasses import asdict

import click

from penstock_platform.cli.console import console, output_option, print_json, settings
from penstock_services.doctor import NOTE, OK, PROBLEM, examine

_MARKS = {OK: "[green]✓[/]", NOTE: "[yellow]•[/]", PROBLEM: "[red]✗[/]"}


@click.command()
@output_option
@click.pass_context
def command(ctx: click.Context, output: str) -> None:
    """Check Java, memory, ports, versions, jars and the object store; print how to fix problems."""
    here = settings()
    out = console()
    findings = []
    for finding in examine(here):
        findings.append(finding)
        if output == "table":
            out.print(f"{_MARKS[finding.status]} {finding.subject:<15} {finding.text}")
    problems = sum(finding.status == PROBLEM for finding in findings)
    if output == "json":
        print_json({"home": str(here.home), "findings": [asdict(f) for f in findings]})
    else:
        out.print(f"{problems} problem(s)" if problems else "no problem found")
    ctx.exit(1 if problems else 0)
