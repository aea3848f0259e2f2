"""``penstock up``."""

from __future__ import annotations

import time

import click
from rich.console import Console
from rich.status import Status

from penstock_platform.cli.console import (
    output_option,
    print_json,
    progress_console,
    settings,
)
from penstock_platform.settings import Settings
from penstock_services.catalogue import Service, externals
from penstock_services.errors import ServiceError
from penstock_services.stack import Progress, up
from penstock_services.supervisor import Supervisor


class Show:
    """Shows progress: a line when something serves, and on a terminal what is waited for."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._status: Status | None = out.status("") if out.is_terminal else None
        self._waiting: dict[str, float] = {}

    def __enter__(self) -> Show:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def __call__(self, progress: Progress) -> None:
        if progress.phase == "ready":
            self._waiting.pop(progress.name, None)
            seconds = f"{progress.seconds:5.1f} s" if progress.seconds else " " * 7
            self._out.print(f"  [green]✓[/] {progress.name:<10} {seconds}  {progress.text}")
        elif progress.phase == "failed":
            self._out.print(f"  [red]✗[/] {progress.name}")
        elif progress.phase == "starting":
            self._waiting[progress.name] = time.monotonic()
        elif self._status is None:
            self._out.print(f"  … {progress.name}: {progress.text}")
        if self._status:
            waiting = ", ".join(self._waiting)
            text = progress.text if progress.phase == "working" else f"waiting for {waiting}"
            self._status.update(f"{progress.name}: {text}" if not waiting else text)


@click.command()
@click.option(
    "--profile",
    type=click.Choice(["local"]),
    default="local",
    show_default=True,
    help="All services on this machine.",
)
@output_option
def command(profile: str, output: str) -> None:
    """Start the services of this directory and wait until each one answers.

    Running services stay up; those with changed settings are restarted, and the code location is
    reloaded. Services that the settings name (kafka.bootstrap_servers, s3.endpoint, spark.remote)
    are checked, and not started.
    """
    here = settings()
    out = progress_console(output)
    started = time.monotonic()
    out.print(f"penstock up: state in {here.home}")
    with Show(out) as show:
        try:
            found = up(here, show)
        except ServiceError:
            if Supervisor(here).pid() is not None:
                out.print(
                    "services that run stay up: penstock status, penstock up again, penstock down"
                )
            raise
    seconds = round(time.monotonic() - started, 1)
    if output == "json":
        endpoints = {name: endpoint for name, _, endpoint in endpoints_of(here, found)}
        print_json({"home": here.home, "seconds": seconds, "endpoints": endpoints})
        return
    out.print(f"all services answer after {seconds} s")
    print_endpoints(out, here, found)


def endpoints_of(here: Settings, found: list[Service]) -> list[tuple[str, str, str]]:
    """(name, title, address) of every service, the user's own first."""
    return [
        *((e.name, e.title, e.endpoint) for e in externals(here)),
        *((s.name, s.title, s.endpoint) for s in found if s.endpoint),
    ]


def print_endpoints(out: Console, here: Settings, found: list[Service]) -> None:
    """Where to go from here."""
    for name, title, endpoint in endpoints_of(here, found):
        out.print(f"  {title:<20} {endpoint}  [dim]({name})[/]")
    out.print("next: penstock status · penstock logs SERVICE -f · penstock down")
