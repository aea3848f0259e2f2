"""What ``penstock group reset`` is given: its targets, and the files of its plans."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from penstock_platform.cli.console import CommandError
from penstock_platform.cli.project import Connections
from penstock_platform.cli.window_documents import find_all
from penstock_platform.clock import from_iso
from penstock_platform.groups.model.rewind import PlanFileError, ResetPlan, duration_of
from penstock_platform.groups.reset import Kind, Target, topic_of

PLAN_BYTES_MAX = 64 * 1024 * 1024
Command = Callable[..., None]


def target_options(command: Command) -> Command:
    """The options that say where a reset leads; a command is given one of them."""
    options = (
        click.option("--to-offset", type=click.IntRange(0), help="This offset."),
        click.option("--to-earliest", is_flag=True, help="The start of the log."),
        click.option("--to-latest", is_flag=True, help="The end of the log."),
        click.option(
            *("--to-time", "--to-datetime"),
            metavar="ISO",
            help="The first record at or after that time: 2026-11-20T07:00:00Z.",
        ),
        click.option("--by-duration", metavar="PT1H", help="As --to-time, so long ago."),
        click.option("--shift-by", type=int, metavar="±N", help="So many messages on, or back."),
        click.option(
            "--to-window", metavar="KEY", help="The first offsets of a window of the topic."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def given(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The target options that are on the command line, also those with the value 0."""
    return {n: value for n, value in asked.items() if value is not None and value is not False}


def target_of(penstock: Connections, topic: str, asked: Mapping[str, Any]) -> Target:
    """The one target among the options. Raises UsageError for none, several, or a bad value."""
    found = given(asked)
    if len(found) != 1:
        raise click.UsageError(
            "give one of --to-offset, --to-earliest, --to-latest, --to-time, --by-duration, "
            "--shift-by, --to-window"
        )
    ((name, value),) = found.items()
    kind = Kind(f"--{name.replace('_', '-')}")
    try:
        match kind:
            case Kind.EARLIEST | Kind.LATEST:
                return Target(kind)
            case Kind.OFFSET:
                return Target(kind, str(value), number=value)
            case Kind.SHIFT:
                return Target(kind, f"{value:+}", number=value)
            case Kind.TIME:
                return Target(kind, value, timestamp_ms=_milliseconds(from_iso(value)))
            case Kind.DURATION:
                moment = penstock.clock.now() - duration_of(value)
                return Target(kind, value, timestamp_ms=_milliseconds(moment))
            case Kind.WINDOW:
                return Target(kind, value, starts=window_starts(penstock, topic, value))
    except (ValueError, OverflowError) as error:
        raise click.UsageError(f"{kind}: {error}") from error


def _milliseconds(moment: datetime) -> int:
    """Not before 1970: in Kafka's ListOffsets negative times have meanings, -1 is the log's end."""
    return max(0, round(moment.timestamp() * 1000))


def window_starts(penstock: Connections, topic: str, name: str) -> dict[int, int]:
    """The first offsets of a window, of the first one where its tick has several."""
    first = find_all(penstock, topic_of(penstock, topic), name)[0]
    return {partition.p: partition.start for partition in first.partitions}


def read_plan(file: str) -> ResetPlan:
    """Raises CommandError for a file that is no plan."""
    path = Path(file)
    if path.is_file() and path.stat().st_size > PLAN_BYTES_MAX:
        raise CommandError("not a plan of penstock group reset: too large", where=file)
    try:
        return ResetPlan.from_bytes(path.read_bytes())
    except PlanFileError as error:
        raise CommandError(str(error), where=file, fix="make a new plan with --plan") from error


def write_new(path: Path, plan: ResetPlan) -> None:
    """Write a plan to a file that does not exist yet: an undo is never overwritten."""
    try:
        with path.open("xb") as file:
            file.write(plan.to_bytes())
    except FileExistsError as error:
        raise CommandError(
            "the file exists already, and nothing was changed",
            where=str(path),
            fix="give another name",
        ) from error


def undo_path(plan: ResetPlan, now: datetime) -> Path:
    """In the directory of the command: the group's name and the time."""
    group = re.sub(r"[^A-Za-z0-9._-]", "_", plan.group)[:100]
    return Path(f"undo-{group}-{now:%Y%m%dT%H%M%S%fZ}.json")
