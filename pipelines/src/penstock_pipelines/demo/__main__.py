"""``penstock-demo``: the whole of Penstock on real input, sabotage included (``make demo``).

Brings the services up with the user's own command, plays the acts of ``stage.py``, and ends with
the books of every window. On a terminal the services stay up until Ctrl-C; without one, or with
``CI=true``, everything is stopped, and the exit code is 0 only if all went as planned.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from rich.console import Console

from penstock_pipelines.demo.observer import Seen
from penstock_pipelines.demo.stage import DemoError, Stage, run_command
from penstock_platform.cli.window_tables import print_windows
from penstock_platform.settings import Settings, SettingsError

RATE_DEFAULT = 5000.0
PAGES = (
    ("the lineage", "/asset-groups"),
    ("a landing, window by window", "/assets/lake/bronze/flights?view=partitions"),
    ("its checks, failed and healed", "/assets/lake/bronze/flights?view=checks"),
    ("the books of flights", "/assets/books/flights?view=partitions"),
    ("a topic", "/assets/{cluster}/topic/flights?view=events"),
    ("departures, a mart", "/assets/lake/marts/departure_delay"),
    ("what retention deletes, and holds", "/assets/retention/flights?view=events"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when every window ended as it should and act two went as planned."""
    parser = argparse.ArgumentParser(prog="penstock-demo", description=__doc__)
    parser.add_argument(
        "--rate", type=float, default=RATE_DEFAULT, help="records a second, all producers together"
    )
    options = parser.parse_args(arguments)
    out = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        settings = Settings.load()
    except SettingsError as error:
        out.print(f"[red]{error}[/]")
        return 2
    stays = sys.stdin.isatty() and out.is_terminal and os.environ.get("CI") != "true"
    if run_command(settings, ["up"]):
        out.print("[red]The services did not start; the lines above say why.[/]")
        if not stays:
            run_command(settings, ["down"])
        return 1
    stage = Stage(settings, out, options.rate)
    try:
        code = _play(stage, out)
        if stays:
            _stay(out)
    except KeyboardInterrupt:
        out.print("\nended by hand")
        code = 130
    finally:
        # A second signal while the services are being stopped would leave them running.
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_IGN)
        stage.producers.stop()
        run_command(settings, ["down"])
    return code


def _play(stage: Stage, out: Console) -> int:
    started = stage.clock.monotonic()
    try:
        stage.act_one()
        stage.act_two()
        seen = stage.finale()
    except DemoError as error:
        out.print(f"\n[red]The demo did not go as planned:[/] {error}", soft_wrap=True)
        out.print("penstock status · penstock logs daemon · penstock alert list")
        return 1
    _conclude(stage, out, seen)
    out.print(f"\nAll went as planned, in {stage.clock.monotonic() - started:.0f} s.")
    return 0


def _conclude(stage: Stage, out: Console, seen: Sequence[Seen]) -> None:
    print_windows([s.row for s in seen])
    out.print(
        "UNAUDITED are the windows of the audit topic itself, and the one in which a producer was "
        "killed: its last records are stored and landed, but no producer claims them. Retention "
        "holds such a window until a person accepts it: "
        "penstock window accept TOPIC WINDOW --reason …",
        style="dim",
    )
    out.print("\nPages worth looking at:")
    for text, path in PAGES:
        address = stage.settings.dagster_url + path.format(cluster=stage.settings.cluster)
        out.print(f"  {text:<36} {address}", soft_wrap=True)


def _stay(out: Console) -> None:
    out.print("\nThe services stay up; Ctrl-C ends them.")
    signal.pause()


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
