"""``penstock validate``."""

from __future__ import annotations

import click

from penstock_platform.cli.console import console, output_option, print_json, settings
from penstock_platform.cli.errors import ERROR, OK
from penstock_platform.components.definitions import validate


@click.command()
@output_option
@click.pass_context
def command(ctx: click.Context, output: str) -> None:
    """Check the declarations and contracts of this project, and print all problems at once.

    No service needs to run; contracts are compared with their tables if the object store answers.
    Each problem is one line: file, line, key, and what is allowed. Exit code 1 if there is a
    problem.
    """
    found = validate(settings())
    if output == "json":
        print_json(
            {
                "valid": not found.problems,
                "problems": found.problems,
                "notes": found.notes,
                "topics": found.topics,
            }
        )
    else:
        for problem in found.problems:
            click.echo(problem, err=True)
        for note in found.notes:
            console().print(f"note: {note}", highlight=False)
        count = len(found.problems)
        console().print(
            f"{count} problem(s) in {found.module}"
            if count
            else f"{found.module} loads: {len(found.topics)} topic(s) declared"
        )
    ctx.exit(ERROR if found.problems else OK)
