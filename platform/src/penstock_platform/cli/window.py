"""``penstock window list | show | rerun | accept | begin``."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Any

import click
from rich.markup import escape

from penstock_platform.cli.console import (
    CommandError,
    console,
    output_option,
    print_json,
    progress_console,
    settings,
    table,
)
from penstock_platform.cli.errors import ERROR, NOT_BALANCED
from penstock_platform.cli.incarnation import EVERY, chains_of, incarnation_option
from penstock_platform.cli.project import Connections, DagsterApi
from penstock_platform.cli.reruns import (
    Rerun,
    quarantining,
    rerun_all,
    rerun_options,
    windows_between,
)
from penstock_platform.cli.topic import declarations
from penstock_platform.kafka.model import TopicRef
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import Book, WindowState, state_on
from penstock_platform.reconciliation.model.recovery import rerun_sentence
from penstock_platform.reconciliation.model.recreation import LostTopic
from penstock_platform.reconciliation.recreation import lost_with
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.apply import apply_topic
from penstock_platform.topics.model.declaration import bronze_table, table_part
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore, window_uri

FINE_STATES = frozenset({WindowState.BALANCED, WindowState.ACCEPTED, WindowState.RETIRED})
RANGES_SHOWN = 20
STYLES = {
    WindowState.BALANCED: "green",
    WindowState.ACCEPTED: "green",
    WindowState.RETIRED: "dim",
    WindowState.FROZEN: "cyan",
    WindowState.LANDED: "cyan",
    WindowState.PENDING: "yellow",
    WindowState.UNAUDITED: "yellow",
}


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


def windows_of(penstock: Connections, ref: TopicRef, last: int) -> list[Window]:
    """The newest ``last`` windows of a chain, oldest first; all of them for 0."""
    return (
        WindowStore.of(penstock).recent(ref, last)
        if last
        else list(WindowStore.of(penstock).all(ref))
    )


def summary(penstock: Connections, window: Window) -> dict[str, Any]:
    """One window in a line: tiers, state, and whether the log still has it."""
    book = BookStore.of(penstock).newest_book(window.ref, window.sequence)
    tiers = book.tiers if book is not None else {}
    from penstock_platform.reconciliation.books import Bookkeeper  # noqa: PLC0415 - pyiceberg

    state = state_on(book, Bookkeeper(penstock).landing(window))
    retired = BookStore.of(penstock).retired(window.ref, window.sequence)
    return {
        "topic": window.topic,
        "window": window.name,
        "sequence": window.sequence,
        "topic_id": window.topic_id,
        "produced": tiers.get("produced"),
        "stored": window.record_count,
        "landed": tiers.get("landed"),
        "parsed": tiers.get("parsed"),
        "quarantined": tiers.get("quarantined"),
        "state": str(state),
        "unjudged": list(book.unjudged) if book is not None else [],
        "proven_at": book.proven_at if book is not None else "",
        "retired": retired,
        "closed_at": window.closed_at,
    }


def print_windows(rows: list[dict[str, Any]]) -> None:
    """The table of `window list` and of the demo's end."""
    columns = ("window", "produced", "stored", "landed", "parsed", "quarantined", "state")
    several = len({row["topic"] for row in rows}) > 1
    last = "proven at"
    shown = [
        [
            *([row["topic"]] if several else []),
            *(_cell(row[c]) for c in columns[:-1]),
            _state(row),
            seconds_of(row["proven_at"]),
        ]
        for row in rows
    ]
    right = ",".join(columns[1:-1])
    names = [*(["topic"] if several else []), *columns, last]
    console().print(table(names, shown, right=right))


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)


def seconds_of(time: str) -> str:
    """A time in a table, in UTC and short enough for a terminal of 100 columns."""
    return time[:19].replace("T", " ") or "–"


def _state(row: dict[str, Any]) -> str:
    state = WindowState(row["state"])
    gone = " [dim](swept)[/]" if row["retired"] else ""
    return f"[{STYLES.get(state, 'red')}]{state}[/]{gone}"


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


def find(penstock: Connections, ref: TopicRef, name: str) -> Window:
    """The window of a key, ``<key>#<part>`` or sequence. Raises CommandError naming the nearest
    that there are, or all windows of the key where it has several."""
    windows = find_all(penstock, ref, name)
    if len(windows) == 1:
        return windows[0]
    names = f"{windows[0].name} to {windows[-1].name}"
    raise CommandError(
        f"{ref.topic}: {name} has {len(windows)} windows", fix=f"name one of {names}"
    )


def find_all(penstock: Connections, ref: TopicRef, name: str) -> list[Window]:
    """The windows of a name, at least one. Raises CommandError naming the nearest there are."""
    windows = WindowStore.of(penstock).named(ref, name)
    if windows:
        return windows
    recent = ", ".join(w.name for w in WindowStore.of(penstock).recent(ref, 3)) or "none"
    raise CommandError(f"{ref.topic} has no window {name}", fix=f"its newest are: {recent}")


def details(penstock: Connections, window: Window) -> dict[str, Any]:
    """A window, its receipts and its books, ready for JSON."""
    ref, sequence = window.ref, window.sequence
    receipts = BookStore.of(penstock).receipts(ref, bronze_table(window.topic), sequence)
    return {
        **summary(penstock, window),
        "window_id": window.window_id,
        "sha256": window.sha256,
        "object": window_uri(penstock, window),
        "frozen_at": window.frozen_at,
        "ranges": [
            {"partition": r.partition, "start": r.start, "end": r.end} for r in window.ranges
        ],
        "receipts": [
            {
                "attempt": r.attempt_id,
                "snapshot": r.snapshot_id,
                "rows": r.rows,
                "digest": r.digest,
                "seconds": r.seconds,
                "landed_at": r.landed_at,
            }
            for r in receipts
        ],
        "books": [book_summary(b) for b in BookStore.of(penstock).books(ref, sequence)],
        "acceptances": [
            {"by": a.by, "reason": a.reason, "accepted_at": a.accepted_at}
            for a in BookStore.of(penstock).acceptances(ref, sequence)
        ],
    }


def book_summary(book: Book) -> dict[str, Any]:
    return {
        "made_at": book.made_at,
        "state": str(book.state),
        "tiers": book.tiers,
        "equations": [
            {
                "equation": str(r.equation),
                "state": str(r.state),
                "expected": r.expected,
                "found": r.found,
                "rerun_from": rerun_sentence(r),
                "findings": [
                    {
                        "kind": f.kind,
                        "records": f.count,
                        "ranges": [[x.partition, x.start, x.end] for x in f.ranges],
                        "incarnation": f.incarnation,
                        "detail": f.detail,
                    }
                    for f in r.findings
                ],
            }
            for r in book.equations
        ],
    }


def print_details(document: dict[str, Any]) -> None:
    out = console()
    out.print(f"[bold]{document['topic']}[/] {document['window']}  {_state(document)}")
    out.print(f"  closed {document['closed_at']}, frozen {document['frozen_at']}")
    out.print(f"  proven at {document['proven_at'] or 'no time yet'}")
    for sentence in document["unjudged"]:
        out.print(f"  not judged: {sentence}")
    out.print(f"  {document['object']}")
    out.print(f"  sha256 {document['sha256']}")
    out.print()
    rows = [
        (r["partition"], r["start"], r["end"], r["end"] - r["start"]) for r in document["ranges"]
    ]
    columns = ("partition", "start", "end", "records")
    out.print(table(columns, rows, right=",".join(columns)))
    for receipt in document["receipts"]:
        out.print(
            f"landed {receipt['landed_at']}: {receipt['rows']:,} rows in "
            f"{receipt['seconds']:.1f} s, snapshot {receipt['snapshot']}, "
            f"digest {receipt['digest']}"
        )
    if document["books"]:
        print_book(document["books"][-1], len(document["books"]))
    for acceptance in document["acceptances"]:
        out.print(
            f"accepted by {acceptance['by']} at {acceptance['accepted_at']}: {acceptance['reason']}"
        )


def print_book(book: dict[str, Any], number: int) -> None:
    out = console()
    out.print(f"book {number} of {book['made_at']}:")
    for equation in book["equations"]:
        style = STYLES.get(WindowState(equation["state"]), "red")
        out.print(
            f"  [{style}]{equation['state']:<10}[/] {equation['equation']}: "
            f"expected {equation['expected']:,}, found {equation['found']:,}"
        )
        if equation["rerun_from"]:
            out.print(f"      {equation['rerun_from']}")
        for finding in equation["findings"]:
            ranges = finding["ranges"]
            spans = ", ".join(f"{p}:{a}-{b - 1}" for p, a, b in ranges[:RANGES_SHOWN])
            left = len(ranges) - RANGES_SHOWN
            more = f" and {left} more" if left > 0 else ""
            out.print(
                f"      {finding['records']:,} {finding['kind']} {spans}{more} {finding['detail']}"
            )


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


def rerun_summary(penstock: Connections, done: Rerun, window: Window) -> dict[str, Any]:
    """One window that was landed again: its state by the newest book, and what kept the run."""
    return {
        **summary(penstock, window),
        "run": done.run_id,
        "url": done.url,
        "status": done.outcome.status if done.outcome is not None else "",
        "problem": done.problem,
    }


def print_reruns(topic: str, rows: list[dict[str, Any]], done: Sequence[Rerun]) -> None:
    """Checks that failed, what kept a run, and each window's state with what is not judged."""
    out = console()
    for outcome in done:
        for c in outcome.outcome.checks if outcome.outcome is not None else ():
            wrong = "[red]✗[/]" if c.severity == "ERROR" else "[yellow]![/]"
            mark = "[green]✓[/]" if c.passed else wrong
            out.print(f"  {mark} {outcome.key} {c.asset} {c.check}: {escape(c.description)}")
    for row in rows:
        state = WindowState(row["state"])
        why = [row["problem"], *row.get("unjudged", ())] if state not in FINE_STATES else []
        why = why or [row["problem"]]
        said = "; ".join(w for w in why if w)
        failed = "the run failed: " if row["problem"] else ""
        reason = f" ({escape(failed + said)})" if said else ""
        out.print(f"{topic} {row['window']}: [{STYLES.get(state, 'red')}]{state}[/]{reason}")


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


def lost_document(lost: LostTopic | None) -> dict[str, Any] | None:
    """What a recreated topic took with it, ready for JSON."""
    if lost is None:
        return None

    def spans(ranges: Sequence[OffsetRange]) -> list[list[int]]:
        return [[r.partition, r.start, r.end] for r in ranges]

    return {
        "records": lost.lost,
        "unlanded": spans(lost.unlanded),
        "unfrozen": spans(lost.unfrozen),
        "safe_in_bronze": lost.safe,
        "last_window": lost.last_window,
    }
