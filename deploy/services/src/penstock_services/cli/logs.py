"""``penstock logs``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from penstock_platform.cli.console import CommandError, output_option, settings
from penstock_services import layout
from penstock_services.catalogue import outline

POLL_SECONDS = 0.25
CHUNK = 65_536


@click.command()
@click.argument("service", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come, until Ctrl-C.")
@click.option("-n", "--lines", default=40, show_default=True, help="Number of lines from the end.")
@output_option
def command(service: str | None, follow: bool, lines: int, output: str) -> None:
    """Print the end of the log of SERVICE, or of every service.

    With -o json each line is a JSON document: {"service": …, "line": …}.
    """
    here = settings()
    known = [*(s.name for s in outline(here)), "supervisord"]
    if service is not None and service not in known:
        raise click.BadParameter(f"{service}: the services are {', '.join(known)}")
    files = {name: layout.log_file(here, name) for name in ([service] if service else known)}
    present = {name: file for name, file in files.items() if file.is_file()}
    if not present:
        raise CommandError(f"there is no log under {here.home / 'logs'} yet", fix="penstock up")
    form = output if output == "json" else "titled" if len(present) > 1 else "plain"
    ends = {name: _show_end(name, file, lines, form) for name, file in present.items()}
    if follow:
        _follow(present, ends, form)


def _show_end(name: str, file: Path, lines: int, form: str) -> int:
    """Print the last lines; returns the position after them."""
    size = file.stat().st_size
    with file.open("rb") as data:
        data.seek(max(0, size - CHUNK * 4))
        text = data.read(size).decode(errors="replace")
        end = data.tell()
    _print(name, text.splitlines()[-lines:] if lines > 0 else [], form)
    return end


def _follow(files: dict[str, Path], ends: dict[str, int], form: str) -> None:
    while True:
        for name, file in files.items():
            size = file.stat().st_size
            if size < ends[name]:  # rotated: the new file from its beginning
                ends[name] = 0
            if size > ends[name]:
                with file.open("rb") as data:
                    data.seek(ends[name])
                    text = data.read(CHUNK)
                # Whole lines only; the rest comes with the next round.
                whole = text[: text.rfind(b"\n") + 1]
                ends[name] += len(whole)
                _print(name, whole.decode(errors="replace").splitlines(), form)
        sys.stdout.flush()
        time.sleep(POLL_SECONDS)


def _print(name: str, lines: list[str], form: str) -> None:
    for line in lines:
        if form == "json":
            click.echo(json.dumps({"service": name, "line": line}))
        else:
            click.echo(f"{name:<12} {line}" if form == "titled" else line)
