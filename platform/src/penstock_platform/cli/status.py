"""``penstock status``."""

from __future__ import annotations

import click

from penstock_platform.cli.console import console, output_option, print_json, settings, table
from penstock_platform.services.status import ServiceStatus, stack_status

_COLOURS = {"ready": "green", "not ready": "yellow", "down": "red"}


@click.command()
@output_option
@click.pass_context
def command(ctx: click.Context, output: str) -> None:
    """Every endpoint, process, health, memory and CPU. Exit code 1 unless everything serves."""
    status = stack_status(settings())
    if output == "json":
        print_json(status.document())
    else:
        out = console()
        columns = ["service", "health", "pid", "up", "MB", "CPU %", "endpoint", ""]
        rows = [_cells(service) for service in status.services]
        out.print(table(columns, rows, right="pid,up,MB,CPU %"))
        total = status.document()
        out.print(f"{total['memory_mb']} MB, {total['cpu_percent']} % of one core; {status.home}")
        if not status.running:
            out.print("The services are not running: penstock up")
    ctx.exit(0 if status.ready else 1)


def _cells(service: ServiceStatus) -> list[object]:
    colour = _COLOURS[service.health]
    return [
        service.name,
        f"[{colour}]{service.health}[/]",
        service.pid if service.managed else "external",
        _duration(service.uptime_seconds),
        service.memory_mb,
        service.cpu_percent,
        service.endpoint,
        "" if service.health == "ready" else service.detail,
    ]


def _duration(seconds: int | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
