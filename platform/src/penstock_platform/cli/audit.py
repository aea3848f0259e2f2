"""``penstock audit TOPIC``."""

from __future__ import annotations

from typing import Any

import click

from penstock_platform.cli.console import console, output_option, print_json, settings
from penstock_platform.cli.project import Connections
from penstock_platform.cli.topic import declarations
from penstock_platform.cli.window import details, find, print_details, print_windows, summary
from penstock_platform.domain.books import WindowState
from penstock_platform.domain.topics import AUDIT_TOPIC

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
        ctx.exit(NOT_BALANCED if unbalanced(penstock, topic, [document]) else 0)
    windows = penstock.windows.recent(ref, last) if last else list(penstock.windows.all(ref))
    rows = [summary(penstock, w) for w in windows]
    wrong = unbalanced(penstock, topic, rows)
    if output == "json":
        print_json({"topic": topic, "balanced": not wrong, "windows": rows})
    else:
        print_windows(rows)
        said = "balanced" if not wrong else f"{len(wrong)} of {len(rows)} windows not balanced"
        console().print(f"{topic}: {said}")
    ctx.exit(NOT_BALANCED if wrong else 0)


def unbalanced(
    penstock: Connections, topic: str, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The windows that do not balance, as the topic's declaration has it (``accept_unaudited``)."""
    wrong = [row for row in rows if WindowState(row["state"]) not in FINE]
    if any(row["state"] == WindowState.UNAUDITED for row in wrong):
        spec = (declarations(penstock) or {}).get(topic)
        # Nobody audits the auditors: that topic's own windows never have evidence.
        if topic == AUDIT_TOPIC or (spec is not None and spec.audit.accept_unaudited):
            wrong = [row for row in wrong if row["state"] != WindowState.UNAUDITED]
    return wrong
