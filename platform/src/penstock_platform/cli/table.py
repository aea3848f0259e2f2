"""``penstock table show | remake``."""

from __future__ import annotations

import click
from rich.markup import escape

from penstock_platform.cli.balance import unbalanced
from penstock_platform.cli.console import (
    CommandError,
    console,
    output_option,
    print_json,
    progress_console,
    settings,
)
from penstock_platform.cli.console import table as grid
from penstock_platform.cli.errors import ERROR, NOT_BALANCED
from penstock_platform.cli.project import Connections, DagsterApi, in_lake
from penstock_platform.cli.reruns import rerun_all, rerun_options
from penstock_platform.cli.topic import declarations
from penstock_platform.cli.window_documents import rerun_summary
from penstock_platform.cli.window_tables import print_reruns
from penstock_platform.kafka.model import TopicRef
from penstock_platform.lake.errors import MissingTableError
from penstock_platform.reconciliation.silver_versions import parsed_into
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import (
    TopicSpec,
    bronze_table,
    silver_key,
    silver_table,
)
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore

ROWS_SHOWN = 20
ROWS_SHOWN_MAX = 10_000


@click.group()
def command() -> None:
    """The tables of the lake."""


@command.command()
@click.argument("table")
@click.option(
    "--rows",
    default=ROWS_SHOWN,
    show_default=True,
    type=click.IntRange(1, ROWS_SHOWN_MAX),
    help="How many rows at most.",
)
@output_option
def show(table: str, rows: int, output: str) -> None:
    """Show rows of TABLE (lake.silver.orders, or silver.orders), in any order."""
    name = in_lake(table)
    try:
        found = Connections(settings()).lake.first_rows(name, rows)
    except MissingTableError as error:
        raise CommandError(str(error), fix="name one as lake.silver.orders") from error
    shown = [{name: _text(value) for name, value in row.items()} for row in found.to_pylist()]
    if output == "json":
        print_json(shown)
        return
    cells = [["–" if v is None else escape(str(v)) for v in row.values()] for row in shown]
    console().print(grid(found.column_names, cells))


def _text(value: object) -> object:
    """Bytes as the text that they mostly are."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


@command.command()
@click.argument("topic")
@click.option(
    "--all", "everything", is_flag=True, help="Also windows that are parsed into it already."
)
@rerun_options
@output_option
@click.pass_context
def remake(
    ctx: click.Context,
    topic: str,
    *,
    everything: bool,
    at_once: int,
    timeout: float,
    output: str,
) -> None:
    """Parse the landed windows of TOPIC from bronze into the declared silver table.

    For a new version of the table (`schema: {version: 2}`): parses the windows that it has no
    receipt for, one run each, oldest first. If interrupted, run it again to continue. The table of
    the older version does not change. Exit code 1 if a run failed, 3 if a window does not balance.
    """
    here = settings()
    penstock = Connections(here)
    spec = (declarations(penstock) or {}).get(topic)
    if spec is None or spec.contract is None:
        raise CommandError(
            f"topic {topic} is not declared with a schema, or Dagster does not answer",
            fix="see: penstock status; penstock topic list",
        )
    ref = penstock.kafka.ref(topic)
    ticks = due_ticks(penstock, ref, spec, everything=everything)
    out = progress_console(output)
    done = rerun_all(
        DagsterApi(here, penstock.clock),
        ticks,
        at_once=at_once,
        timeout=timeout,
        progress=lambda line: out.print(f"  {line}"),
        assets=[silver_key(topic, spec.silver_version)],
    )
    rows = [rerun_summary(penstock, outcome, w) for outcome in done for w in outcome.windows]
    failed = [row for row in rows if row["problem"]]
    wrong = unbalanced(penstock, topic, rows)
    table = silver_table(topic, spec.silver_version)
    if output == "json":
        print_json({"table": table, "windows": rows, "failed": len(failed), "wrong": len(wrong)})
    else:
        print_reruns(topic, rows, done)
        console().print(
            f"{table}: {len(rows):,} windows parsed; {len(failed):,} runs failed, "
            f"{len(wrong):,} windows do not balance"
        )
    ctx.exit(ERROR if failed else NOT_BALANCED if wrong else 0)


def due_ticks(
    penstock: Connections, ref: TopicRef, spec: TopicSpec, *, everything: bool
) -> list[list[Window]]:
    """The windows to parse, by tick: landed, and not yet parsed into the declared version."""
    ticks: dict[str, list[Window]] = {}
    for window in WindowStore.of(penstock).all(ref):
        ticks.setdefault(window.window, []).append(window)
    store, version = BookStore.of(penstock), spec.silver_version
    return [
        windows
        for windows in ticks.values()
        if all(store.receipts(ref, bronze_table(ref.topic), w.sequence) for w in windows)
        and (everything or not all(parsed_into(store, w, version) for w in windows))
    ]
