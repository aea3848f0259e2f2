"""Consumer groups as tables and lines of a terminal."""

from __future__ import annotations

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


def _state(state: str) -> str:
    return f"[{STYLES.get(state, 'yellow')}]{state}[/]"


def _some(names: list[str]) -> str:
    """The first name, and how many more there are."""
    if not names:
        return "–"
    return names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "")


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:,.1f}"
