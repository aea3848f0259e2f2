"""``penstock window list | show | rerun | accept | begin``."""

from __future__ import annotations

import getpass

import click

from penstock_platform.cli.console import (
    CommandError,
    console,
    output_option,
    print_json,
    progress_console,
    settings,
)
from penstock_platform.cli.errors import ERROR, NOT_BALANCED
from penstock_platform.cli.incarnation import EVERY, chains_of, incarnation_option
from penstock_platform.cli.project import Connections, DagsterApi
from penstock_platform.cli.reruns import quarantining, rerun_all, rerun_options, windows_between
from penstock_platform.cli.topic import declarations
from penstock_platform.cli.window_documents import (
    details,
    find,
    find_all,
    lost_document,
    rerun_summary,
    summary,
    windows_of,
)
from penstock_platform.cli.window_tables import print_details, print_reruns, print_windows
from penstock_platform.kafka.model import TopicRef
from penstock_platform.reconciliation.recreation import lost_with
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.apply import apply_topic
from penstock_platform.topics.model.declaration import table_part
from penstock_platform.windows.store import WindowStore


@click.group()
def command() -> None:
    """The frozen windows of a topic: exact offset ranges, and the state of their books."""


@command.command("list")
@click.argument("topic")
@click.option(
    "--last", default=20, show_default=True, help="Number of windows, newest last; 0 for all."
)
@incarnation_option
@output_option
def list_windows(topic: str, last: int, incarnation: str | None, output: str) -> None:
    """List the windows of TOPIC, each with its records in every tier and its state."""
    penstock = Connections(settings())
    rows = [
        summary(penstock, window)
        for ref in chains_of(penstock, topic, incarnation)
        for window in windows_of(penstock, ref, last)
    ]
    if output == "json":
        print_json(rows)
        return
    print_windows(rows)


@command.command()
@click.argument("topic")
@click.argument("window")
@incarnation_option
@output_option
def show(topic: str, window: str, incarnation: str | None, output: str) -> None:
    """Show one WINDOW: ranges, landings, books, findings."""
    penstock = Connections(settings())
    if incarnation == EVERY:
        raise CommandError("a window belongs to one topic id", fix="--incarnation <topic id>")
    found = find(penstock, chains_of(penstock, topic, incarnation)[0], window)
    document = details(penstock, found)
    if output == "json":
        print_json(document)
        return
    print_details(document)


@command.command()
@click.argument("topic")
@click.argument("window", required=False)
@click.option("--from", "first", default=None, metavar="WINDOW", help="The first of a range.")
@click.option("--to", "last", default=None, metavar="WINDOW", help="The last of a range.")
@click.option("--quarantined", is_flag=True, help="Only windows with records in quarantine.")
@rerun_options
@output_option
@click.pass_context
def rerun(
    ctx: click.Context,
    topic: str,
    *,
    window: str | None,
    first: str | None,
    last: str | None,
    quarantined: bool,
    at_once: int,
    timeout: float,
    output: str,
) -> None:
    """Land WINDOW again, or a range of windows, and check it again.

    The rows come from the log, or from a proven snapshot of the table if the log has deleted
    them, so the result is the same rows. Older attempts that still run are interrupted first.
    Exit code 1 if a run failed, 3 if a window does not balance afterwards.
    """
    ranged = bool(first or last or quarantined)
    if ranged == (window is not None):
        raise click.UsageError("give one WINDOW, or a range: --from, --to, --quarantined")
    here = settings()
    penstock = Connections(here)
    ref = penstock.kafka.ref(topic)
    if window is not None:
        windows = find_all(penstock, ref, window)
    else:
        windows = windows_between(penstock, ref, first, last)
        windows = quarantining(penstock, windows) if quarantined else windows
    out = progress_console(output)
    # One run lands all windows of a tick, whichever of them is named.
    ticks = {w.window: WindowStore.of(penstock).tick_of(w) for w in windows}
    done = rerun_all(
        DagsterApi(here, penstock.clock),
        list(ticks.values()),
        at_once=at_once,
        timeout=timeout,
        progress=lambda line: out.print(f"  {line}"),
    )
    rows = [rerun_summary(penstock, outcome, w) for outcome in done for w in outcome.windows]
    from penstock_platform.cli.balance import unbalanced  # noqa: PLC0415

    wrong = unbalanced(penstock, topic, rows)
    failed = [row for row in rows if row["problem"]]
    if output == "json":
        print_json({"topic": topic, "windows": rows, "failed": len(failed), "wrong": len(wrong)})
    else:
        print_reruns(topic, rows, done)
        if ranged:
            out.print(
                f"{topic}: {len(rows):,} windows landed again; {len(failed):,} runs failed, "
                f"{len(wrong):,} windows do not balance"
            )
    ctx.exit(ERROR if failed else NOT_BALANCED if wrong else 0)


@command.command()
@click.argument("topic")
@click.argument("window")
@click.option("--reason", required=True, help="Why the findings are accepted.")
@click.option("--by", default=None, help="Who accepts them; your user name by default.")
@output_option
def accept(topic: str, window: str, reason: str, by: str | None, output: str) -> None:
    """Accept the findings of WINDOW's newest book, so that retention may delete the window.

    The acceptance is recorded. It covers the findings so far, and none that come later.
    """
    penstock = Connections(settings())
    found = find(penstock, penstock.kafka.ref(topic), window)
    try:
        acceptance = BookStore.of(penstock).accept(
            found, by or getpass.getuser(), reason, penstock.clock.now()
        )
    except ValueError as error:
        raise CommandError(str(error)) from error
    from penstock_platform.reconciliation.books import Bookkeeper  # noqa: PLC0415 - pyiceberg

    book = Bookkeeper(penstock).archive(found, [])
    records = sum(f.count for f in acceptance.findings)
    if output == "json":
        print_json(
            {
                "topic": topic,
                "window": found.name,
                "state": str(book.state),
                "records": records,
                "findings": len(acceptance.findings),
                "by": acceptance.by,
                "reason": acceptance.reason,
            }
        )
        return
    console().print(
        f"{topic} {found.name}: {book.state}; {records:,} records in "
        f"{len(acceptance.findings)} findings accepted by {acceptance.by}"
    )


@command.command()
@click.argument("topic")
@output_option
def begin(topic: str, output: str) -> None:
    """Begin a new chain of windows for a TOPIC that was recreated under its old name.

    The chain opens with the current window and begins at the new topic's first offset. The new
    topic gets the configs of its declaration. Records of the old topic that were not landed are
    lost, and the command lists them. The old chain and its books stay (window list
    --incarnation).
    """
    penstock = Connections(settings())
    ref = penstock.kafka.ref(topic)
    spec = (declarations(penstock) or {}).get(topic)
    before = WindowStore.of(penstock).incarnations(ref.cluster_id, topic)
    old = before[-1] if before and before[-1] != ref.topic_id else None
    lost = lost_with(penstock, TopicRef(ref.cluster_id, topic, old), spec) if old else None
    # Before the chain: a broker's own retention must not take what no window holds yet.
    changes = apply_topic(penstock.kafka, spec) if spec is not None else []
    WindowStore.of(penstock).admit(ref, penstock.clock.now(), begin_new=True)
    begun = ref.topic_id not in before
    if output == "json":
        print_json(
            {
                "topic": topic,
                "topic_id": ref.topic_id,
                "begun": begun,
                "previous_topic_id": old,
                "configs_applied": spec is not None,
                "changes": changes,
                "lost": lost_document(lost),
            }
        )
        return
    said = "begins" if begun else "continues; no new chain is needed"
    out = console()
    out.print(f"{topic}: the chain of topic id {ref.topic_id} {said} ({table_part(topic)})")
    if lost is not None:
        out.print(f"  the topic with id {old} is gone: {lost}")
        out.print(f"  its windows: penstock window list {topic} --incarnation {old}")
    for change in changes:
        out.print(f"  {change}")
    if spec is None:
        out.print(
            "  its declaration could not be asked for, so no configs were set: "
            "materialise the topic's asset once Dagster is up"
        )
