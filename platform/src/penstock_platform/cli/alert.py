"""``penstock alert list | test``."""

from __future__ import annotations

import click

from penstock_platform.cli.console import console, output_option, print_json, settings, table
from penstock_platform.domain.clock import to_iso
from penstock_platform.resources.alerts import Alerts, headline, read_alerts
from penstock_platform.resources.clock import SystemClock


@click.group()
def command() -> None:
    """What was alerted, and whether alerts get through."""


@command.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only incidents that are not resolved.")
@output_option
def list_alerts(only_open: bool, output: str) -> None:
    """The alerts of the local file, oldest first."""
    here = settings()
    alerts = list(read_alerts(here.alert_file))
    if only_open:
        last = {alert.get("dedup_key"): alert for alert in alerts}
        alerts = [alert for alert in last.values() if alert.get("event_action") == "trigger"]
    if output == "json":
        print_json(alerts)
        return
    rows = [
        (
            (alert.get("payload") or {}).get("timestamp"),
            (alert.get("payload") or {}).get("severity"),
            headline(alert),
        )
        for alert in alerts
    ]
    console().print(table(("time", "severity", "alert"), rows))
    if not rows:
        console().print(f"no {'open incident' if only_open else 'alert'} in {here.alert_file}")


@command.command()
@click.pass_context
def test(ctx: click.Context) -> None:
    """Send a harmless alert through every configured channel, and say which took it."""
    here = settings()
    alerts = Alerts.from_settings(here)
    document = {
        "event_action": "resolve",
        "dedup_key": f"test:{here.cluster}",
        "payload": {
            "summary": f"test of Penstock's alerts from cluster {here.cluster}; nothing is wrong",
            "severity": "info",
            "source": here.cluster,
            "component": "alerts",
            "group": "test",
            "class": "test",
            "timestamp": to_iso(SystemClock().now()),
            "custom_details": {},
        },
        "links": [],
    }
    failures = alerts.deliver(document)
    for name in alerts.names:
        said = f"[red]✗ {failures[name]}[/]" if name in failures else "[green]✓[/]"
        console().print(f"  {name}: {said}")
    ctx.exit(1 if failures else 0)
