"""``penstock alert list | test``."""

from __future__ import annotations

import click

from penstock_platform.alerts.channels import Alert, Alerts, headline, read_alerts
from penstock_platform.cli.console import console, output_option, print_json, settings, table
from penstock_platform.clock import to_iso
from penstock_platform.system_clock import SystemClock


@click.group()
def command() -> None:
    """The alerts so far, and a test of their delivery."""


@command.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only incidents that are not resolved.")
@output_option
def list_alerts(only_open: bool, output: str) -> None:
    """List the alerts in the local file, oldest first."""
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
@output_option
@click.pass_context
def test(ctx: click.Context, output: str) -> None:
    """Send a harmless alert through every configured channel, and report each delivery.

    Exit code 1 if a delivery failed, or if no channel leaves this machine: a local file reaches
    no person.
    """
    here = settings()
    alerts = Alerts.from_settings(here)
    failures = alerts.try_all(harmless(here.cluster))
    if output == "json":
        channels = [
            {"channel": name, "delivered": name not in failures, "error": failures.get(name, "")}
            for name in alerts.names
        ]
        print_json({"channels": channels, "reaches_people": bool(alerts.remote)})
    else:
        for name in alerts.names:
            said = f"[red]✗[/] {failures[name]}" if name in failures else "[green]✓[/]"
            console().print(f"  {name}: {said}")
    if not alerts.remote:
        click.echo(
            "Error: no channel leaves this machine, so alerts would reach no person; set "
            "alerts.urls, alerts.webhook or alerts.pagerduty_routing_key in penstock.toml "
            "(PENSTOCK_ALERTS_URLS, …)",
            err=True,
        )
    ctx.exit(1 if failures or not alerts.remote else 0)


def harmless(cluster: str) -> Alert:
    """An alert that opens nothing: the resolve of an incident that never was."""
    return {
        "event_action": "resolve",
        "dedup_key": f"test:{cluster}",
        "payload": {
            "summary": f"test of Penstock's alerts from cluster {cluster}; nothing is wrong",
            "severity": "info",
            "source": cluster,
            "component": "alerts",
            "group": "test",
            "class": "test",
            "timestamp": to_iso(SystemClock().now()),
            "custom_details": {},
        },
        "links": [],
    }
