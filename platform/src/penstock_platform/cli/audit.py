"""``penstock audit TOPIC``."""

from __future__ import annotations

import click

from penstock_platform.cli.console import console, output_option, print_json, settings
from penstock_platform.cli.window import details, find, print_details, print_windows, summary
from penstock_platform.domain.books import WindowState
from penstock_platform.resources.connections import Connections

NOT_BALANCED = 3
FINE = frozenset({WindowState.BALANCED, WindowState.ACCEPTED, WindowState.RETIRED})


@click.command()
@click.argument("topic")
@click.option("--window", default=None, help="One window alone, with all that was found.")
@click.option("--last", default=0, help="Only the newest so many windows; 0 for all.")
@output_option
@click.pass_context
def command(ctx: click.Context, topic: str, window: str | None, last: int, output: str) -> None:
    """Say of every window of TOPIC whether its books balance. Exit code 3 when one does not.

    A window whose evidence is still due, or that is not landed yet, does not balance yet.
    """
    penstock = Connections(settings())
    ref = penstock.kafka.ref(topic)
    if window is not None:
        document = details(penstock, find(penstock, ref, window))
        if output == "json":
            print_json(document)
        else:
            print_details(document)
        ctx.exit(0 if WindowState(document["state"]) in FINE else NOT_BALANCED)
    windows = penstock.windows.recent(ref, last) if last else list(penstock.windows.all(ref))
    rows = [summary(penstock, w) for w in windows]
    wrong = [row for row in rows if WindowState(row["state"]) not in FINE]
    if output == "json":
        print_json({"topic": topic, "balanced": not wrong, "windows": rows})
    else:
        print_windows(rows)
        said = "balanced" if not wrong else f"{len(wrong)} of {len(rows)} windows not balanced"
        console().print(f"{topic}: {said}")
    ctx.exit(NOT_BALANCED if wrong else 0)
