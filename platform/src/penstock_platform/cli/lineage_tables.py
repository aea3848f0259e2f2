"""Lineage as lines and tables of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from penstock_platform.cli.console import cell, console, table
from penstock_platform.cli.window_tables import seconds_of, state_text

VALUE_SHOWN_MAX = 200
LOG_WORDS = {
    "stored": "the log has it",
    "deleted": "deleted from the log",
    "beyond_end": "the log ends before it",
    "gone": "the broker has no topic of this id any more",
}
STATE_WORDS = {
    "frozen": "frozen",
    "not_frozen": "not frozen yet",
    "not_written": "not written yet",
    "before_chain": "before the chain",
    "no_chain": "no window yet",
}


def print_offset(document: dict[str, Any]) -> None:
    """What `lineage offset` shows."""
    out = console()
    log = document["log"]
    where = f"{document['topic']}, partition {document['partition']}, offset {document['offset']:,}"
    out.print(f"[bold]{escape(where)}[/]: {STATE_WORDS[document['state']]}")
    if document["reason"]:
        out.print(f"  {escape(document['reason'])}")
    bounds = "" if log["end"] is None else f" (offsets {log['start']:,} to {log['end'] - 1:,})"
    bounds = " (empty)" if log["end"] is not None and log["end"] == log["start"] else bounds
    out.print(f"  log: {LOG_WORDS[log['state']]}{bounds}")
    if len(document["windows"]) > 1:
        out.print("  the log was cut and grew again: the offset was given to several records")
    for window in document["windows"]:
        _print_window(out, window)


def _print_window(out: Console, window: dict[str, Any]) -> None:
    out.print(
        f"  window {escape(window['window'])} (sequence {window['sequence']}, offsets "
        f"{window['start']:,} to {window['end'] - 1:,}, closed {window['closed_at']})  "
        f"{state_text(window)}"
    )
    if window["lost_from_log"]:
        out.print("    [yellow]the log was cut below this offset after the window was frozen[/]")
    if window["holds_no_record"]:
        out.print("    no record: a transaction's marker, or a record of an aborted transaction")
    if window["producer"] is not None:
        who = window["producer"]
        server = f" on {who['server']}" if who["server"] else ""
        out.print(
            f"    sent by incarnation {who['incarnation']}{escape(server)}, sequence "
            f"{who['sequence']:,}"
        )
    for finding in window["findings"]:
        out.print(
            f"    [yellow]{finding['equation']}: {finding['kind']}[/] {escape(finding['detail'])}"
        )
    out.print(
        table(("    table", "row", "landed at", "attempt", "snapshot", "rows"), _rows(window))
    )


def _rows(window: dict[str, Any]) -> list[list[str]]:
    """A line for each receipt, and for a table without one."""
    lines = []
    for place in window["tables"]:
        receipts: list[dict[str, Any]] = place["receipts"] or [{}]
        for number, receipt in enumerate(receipts):
            lines.append(
                [
                    f"    {place['table']}" if number == 0 else "",
                    escape(_presence(place)) if number == 0 else "",
                    seconds_of(receipt.get("landed_at", "")),
                    receipt.get("attempt") or "–",
                    str(receipt.get("snapshot", "–")),
                    cell(receipt.get("rows")),
                ]
            )
    return lines


def _presence(place: dict[str, Any]) -> str:
    if place["rows"] is None:
        return f"not known: {place['problem']}"
    if place["rows"] == 0:
        return "not there"
    there = "there" if place["rows"] == 1 else f"there {place['rows']} times"
    return f"{there}: {place['reason']}" if place.get("reason") else there


def print_rows(document: dict[str, Any], columns: Sequence[str]) -> None:
    """What `lineage row` shows."""
    out = console()
    lines = [
        [
            row["topic"] or "–",
            str(row["partition"]),
            cell(row["offset"]),
            row["window"] or row["window_id"],
            row["state"] or "–",
            (row["receipt"] or {}).get("attempt", "–"),
            str((row["receipt"] or {}).get("snapshot", "–")),
            *(escape(_text(row["columns"][name])) for name in columns),
        ]
        for row in document["rows"]
    ]
    names = ("topic", "partition", "offset", "window", "state", "attempt", "snapshot", *columns)
    if lines:
        out.print(table(names, lines, right="partition,offset"))
    else:
        out.print(f"{document['table']}: no row matches")
    if document["more"]:
        out.print(f"more than {len(lines):,} rows match; for more of them: --limit")


def _text(value: object) -> str:
    """A value in a cell, at most so long; bytes as the text that they mostly are."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else cell(value)
    return text if len(text) <= VALUE_SHOWN_MAX else f"{text[:VALUE_SHOWN_MAX]}…"
