"""Plans of a sweep as tables and lines of a terminal."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from penstock_platform.cli.console import cell, console, table

RANGES_SHOWN = 100
STYLES = {"delete": "green", "hold": "yellow", "keep": "dim"}


def print_plan(document: dict[str, Any]) -> None:
    """What `retention plan` shows."""
    out = console()
    out.print(f"[bold]{escape(document['topic'])}[/]  {_policy(document['retention'])}")
    rows = [row for partition in document["partitions"] for row in partition["ranges"]]
    if not rows:
        out.print("  the log is empty")
    else:
        shown = [
            [
                cell(row["partition"]),
                f"{row['start']:,}–{row['end'] - 1:,}",
                cell(row["records"]),
                f"[{STYLES.get(row['action'], 'dim')}]{row['action']}[/]",
                escape(row["windows"]) or "–",
                escape(row["reason"]),
            ]
            for row in rows[:RANGES_SHOWN]
        ]
        columns = ("partition", "offsets", "records", "action", "windows", "reason")
        out.print(table(columns, shown, right="partition,offsets,records"))
        if len(rows) > RANGES_SHOWN:
            out.print(f"… and {len(rows) - RANGES_SHOWN:,} more ranges; all of them: -o json")
    for line in forecast_lines(document["forecast"]):
        out.print(f"  {line}")
    for risk in document["risks"]:
        out.print(f"[yellow]![/] {escape(risk)}")
    if "executed" not in document:
        out.print(f"{document['topic']}: a sweep now would delete {_deleted(document)}")


def print_applied(document: dict[str, Any]) -> None:
    """What `retention apply` did, or did not do."""
    out = console()
    name = document["topic"]
    if not document["executed"]:
        out.print(
            f"{name}: nothing was deleted; with --execute the command deletes {_deleted(document)}"
        )
        return
    out.print(f"{name}: deleted {_deleted(document)}")
    for partition in document["partitions"]:
        before = partition["delete_before"]
        if before is not None:
            out.print(f"  partition {partition['partition']}: offsets before {before:,}")


def print_offset(document: dict[str, Any]) -> None:
    """What `retention explain` says."""
    where = f"{document['topic']}, partition {document['partition']}, offset {document['offset']:,}"
    if document["deletable"]:
        said = "[green]a sweep now would delete it[/]"
    elif document["action"] == "gone":
        said = "[dim]deleted[/]"
    else:
        said = "[yellow]a sweep now would not delete it[/]"
    out = console()
    out.print(f"{escape(where)}: {said}")
    if document["window"] is not None:
        out.print(f"  in window {escape(document['window'])}: {escape(document['reason'])}")
    else:
        out.print(f"  {escape(document['reason'])}")


def forecast_lines(forecast: dict[str, Any]) -> list[str]:
    """The forecast in sentences, as far as there is one."""
    lines: list[str] = []
    size, grows = forecast["log_bytes"], forecast["bytes_per_second"]
    if size is not None:
        rate = f", growing by {grows:,.0f} bytes/s" if grows else ""
        lines.append(f"the log then has {size:,} bytes{rate}")
    sentences = {
        "overdue_seconds": "what is held is past its policy for {}",
        "until_due_seconds": "the next window is due in {}",
        "until_max_bytes_seconds": "if nothing more is deleted, max_bytes is reached in {}",
        "until_disk_full_seconds": "at this rate the disk is full in {}",
    }
    return lines + [
        text.format(_span(forecast[key]))
        for key, text in sentences.items()
        if forecast[key] is not None
    ]


def _span(seconds: int) -> str:
    """A time in its two largest units: ``3d 4h``."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number:,}{unit}")
    return " ".join(parts[:2]) or "0s"


def _deleted(document: dict[str, Any]) -> str:
    windows = document["windows_deleted"]
    if not windows:
        return "nothing"
    named = windows[0] if len(windows) == 1 else f"{windows[0]} … {windows[-1]}"
    noun = "window" if len(windows) == 1 else "windows"
    return f"{document['records_deleted']:,} records of {len(windows)} {noun} ({named})"


def _policy(retention: dict[str, Any]) -> str:
    shown = {k: ", ".join(v) if isinstance(v, list) else v for k, v in retention.items() if v}
    said = [f"{key}: {value}" for key, value in shown.items()]
    return escape(", ".join(said) or "no policy: nothing is deleted")
