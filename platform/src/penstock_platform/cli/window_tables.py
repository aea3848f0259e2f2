"""Windows, books and re-runs as tables and lines of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from penstock_platform.cli.console import cell, console, table
from penstock_platform.cli.reruns import Rerun
from penstock_platform.reconciliation.model.books import GOOD_STATES, WindowState

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


def print_windows(rows: list[dict[str, Any]]) -> None:
    """The table of `window list` and of the demo's end."""
    columns = ("window", "produced", "stored", "landed", "parsed", "quarantined", "state")
    several = len({row["topic"] for row in rows}) > 1
    last = "proven at"
    shown = [
        [
            *([row["topic"]] if several else []),
            *(cell(row[c]) for c in columns[:-1]),
            state_text(row),
            seconds_of(row["proven_at"]),
        ]
        for row in rows
    ]
    right = ",".join(columns[1:-1])
    names = [*(["topic"] if several else []), *columns, last]
    console().print(table(names, shown, right=right))


def seconds_of(time: str) -> str:
    """A time in a table, in UTC and short enough for a terminal of 100 columns."""
    return time[:19].replace("T", " ") or "–"


def state_text(row: dict[str, Any]) -> str:
    """The state in its colour, and whether the records were swept from the log."""
    state = WindowState(row["state"])
    gone = " [dim](swept)[/]" if row["retired"] else ""
    return f"[{STYLES.get(state, 'red')}]{state}[/]{gone}"


def print_details(document: dict[str, Any]) -> None:
    out = console()
    out.print(f"[bold]{document['topic']}[/] {document['window']}  {state_text(document)}")
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
        why = [row["problem"], *row.get("unjudged", ())] if state not in GOOD_STATES else []
        why = why or [row["problem"]]
        said = "; ".join(w for w in why if w)
        failed = "the run failed: " if row["problem"] else ""
        reason = f" ({escape(failed + said)})" if said else ""
        out.print(f"{topic} {row['window']}: [{STYLES.get(state, 'red')}]{state}[/]{reason}")
