"""Consumer groups as tables and lines of a terminal."""

from __future__ import annotations

import shlex
from itertools import groupby
from typing import Any

from rich.markup import escape

from penstock_platform.cli.console import cell, console, table

STYLES = {"Stable": "green", "Empty": "dim", "Dead": "dim"}


def print_groups(rows: list[dict[str, Any]]) -> None:
    """The table of `group list`."""
    out = console()
    if not rows:
        out.print("no consumer group")
        return
    shown = [
        [
            escape(row["group"]),
            _state(row["state"]),
            row["protocol_type"] or "–",
            cell(row["members"]),
            escape(_some(row["topics"])),
            cell(row["lag"]),
        ]
        for row in rows
    ]
    columns = ("group", "state", "protocol", "members", "topics", "lag")
    out.print(table(columns, shown, right="members,lag"))


def print_look(document: dict[str, Any]) -> None:
    """What `group describe` shows."""
    out = console()
    members, lag = document["members"], document["lag"]
    out.print(f"[bold]{escape(document['group'])}[/]  {_state(document['state'])}")
    kind = document["type"] + (f", {document['assignor']}" if document["assignor"] else "")
    waiting = "nothing is committed" if lag is None else f"lag {lag:,}"
    out.print(f"  {kind}, {len(members)} {'member' if len(members) == 1 else 'members'}, {waiting}")
    for topic, found in groupby(document["partitions"], key=lambda row: row["topic"]):
        rows = list(found)
        out.print(f"[bold]{escape(topic)}[/]")
        columns = ("partition", "committed", "log start", "log end", "lag", "seconds", "member")
        keys = ("partition", "committed", "log_start", "log_end", "lag")
        shown = [
            [
                *(cell(row[key]) for key in keys),
                _seconds(row["lag_seconds"]),
                escape(row["member_name"]) or "–",
            ]
            for row in rows
        ]
        out.print(table(columns, shown, right=",".join(columns[:-1])))
        for row in rows:
            if row["outside"]:
                where = f"partition {row['partition']}, committed {cell(row['committed'])}"
                out.print(f"  [yellow]{where}: {row['outside']}[/]")
    if members:
        shown = [
            [escape(m["name"]), m["host"], cell(m["partitions"]), escape(m["member_id"])]
            for m in members
        ]
        out.print(table(("member", "host", "partitions", "member id"), shown, right="partitions"))


def print_reset(document: dict[str, Any]) -> None:
    """A plan, or what was executed of it."""
    out = console()
    rows = document["partitions"]
    out.print(
        f"[bold]{escape(document['group'])}[/]  {escape(document['topic'])}  "
        f"{escape(document['target'])}"
    )
    if not rows:
        out.print("  every partition has its offset already; nothing was changed")
        return
    columns = ("partition", "was" if document["executed"] else "now", "then", "difference")
    shown = [
        [
            cell(row["partition"]),
            cell(row["now"]),
            cell(row["then"]),
            "–" if row["difference"] is None else f"{row['difference']:+,}",
            _clamped(row),
        ]
        for row in rows
    ]
    out.print(table((*columns, ""), shown, right=",".join(columns)))
    out.print(f"  {_effect(rows)}")
    _print_next(document)


def _print_next(document: dict[str, Any]) -> None:
    out = console()
    if document["executed"]:
        out.print(f"  done by {escape(document['by'])}: {escape(document['reason'])}")
        out.print(f"  to undo it: {escape(document['undo'])}")
        if document["event_problem"]:
            out.print(f"  no asset event was recorded: {escape(document['event_problem'])}")
    elif document["plan_file"]:
        file = shlex.quote(document["plan_file"])
        reason = "" if document["reason"] else ' --reason "…"'
        out.print("  nothing was changed; to do it:")
        out.print(escape(f"  penstock group reset --execute-plan {file}{reason}"))
    else:
        out.print('  nothing was changed; to do it, add: --execute --reason "…"')


def _clamped(row: dict[str, Any]) -> str:
    """Why an offset is not the one that was asked for."""
    if row["then"] is None:
        return "the offset is deleted"
    if row["wanted"] is None:
        return ""
    edge = "begins" if row["wanted"] < row["then"] else "ends"
    return f"{row['wanted']:,} was asked for, the log {edge} at {row['then']:,}"


def _effect(rows: list[dict[str, Any]]) -> str:
    differences = [row["difference"] or 0 for row in rows]
    again, skipped = -sum(d for d in differences if d < 0), sum(d for d in differences if d > 0)
    said = [
        *([f"{again:,} messages are read again"] if again else []),
        *([f"{skipped:,} messages are skipped"] if skipped else []),
    ]
    return ", ".join(said) or "no message is read again, and none is skipped"


def _state(state: str) -> str:
    return f"[{STYLES.get(state, 'yellow')}]{state}[/]"


def _some(names: list[str]) -> str:
    """The first name, and how many more there are."""
    if not names:
        return "–"
    return names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "")


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:,.1f}"
