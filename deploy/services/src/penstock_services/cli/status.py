"""``penstock status``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import click

from penstock_platform.alerts.health import HealthReader
from penstock_platform.alerts.model.chain_health import Kind, Problem, judge_chain, judge_platform
from penstock_platform.cli.audit import described_problem, print_problems
from penstock_platform.cli.console import console, output_option, print_json, settings, table
from penstock_platform.cli.errors import ERROR, NOT_BALANCED, OK
from penstock_platform.cli.project import Connections
from penstock_platform.cli.topic import declarations
from penstock_platform.identity import IdentityError
from penstock_platform.settings import Settings
from penstock_services.status import Limited, ServiceStatus, StackStatus, stack_status

CHAIN_SECONDS = 30.0
# Of each topic; `penstock audit` looks at all.
WINDOWS_LOOKED_AT = 10
_COLOURS = {"ready": "green", "not ready": "yellow", "down": "red"}


@click.command()
@output_option
@click.pass_context
def command(ctx: click.Context, output: str) -> None:
    """Show every endpoint, process, health, memory and CPU, and the health of each chain.

    Exit code 1 if a service does not answer, 3 if a chain stops.
    """
    here = settings()
    status = stack_status(here)
    problems = chain_problems(here, status)
    if output == "json":
        found = None if problems is None else [described_problem(p) for p in problems]
        print_json({**status.document(), "chains": found})
    else:
        out = console()
        columns = ["service", "health", "pid", "up", "MB", "CPU %", "endpoint", ""]
        rows = [_cells(service) for service in status.services]
        out.print(table(columns, rows, right="pid,up,MB,CPU %"))
        total = status.document()
        out.print(f"{total['memory_mb']} MB, {total['cpu_percent']} % of one core; {status.home}")
        if not status.running:
            out.print("The services are not running: penstock up")
        print_problems(problems or ())
        if status.ready and problems is None:
            out.print(f"the chains could not be read in {CHAIN_SECONDS:.0f} s")
    ctx.exit(ERROR if not status.ready else NOT_BALANCED if problems else OK)


def chain_problems(here: Settings, status: StackStatus) -> Sequence[Problem] | None:
    """What stops chains of windows; None where broker or store do not answer, which says why."""
    health = {service.name: service.health for service in status.services}
    broker = health.get("broker", health.get("kafka"))
    if broker != "ready" or health.get("s3") != "ready":
        return None
    try:
        return Limited(partial(_all_chains, here)).result(time.monotonic() + CHAIN_SECONDS)
    except IdentityError as error:
        return [Problem(Kind.CHAIN_UNREADABLE, str(error))]


def _all_chains(here: Settings) -> Sequence[Problem]:
    penstock = Connections(here)
    reader = HealthReader(penstock, windows=WINDOWS_LOOKED_AT)
    now = penstock.clock.now()
    found = list(judge_platform(reader.services()).problems)
    for name, spec in (declarations(penstock) or {}).items():
        found += judge_chain(reader.chain(name, spec), now).problems
    return found


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
