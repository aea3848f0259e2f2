"""The service ``watcher``: notices that the alert sensor does not run.

The alert sensor runs in Dagster, so it is silent when Dagster is: a daemon that hangs, definitions
that do not load, a database that does not answer. This small process beside them looks every few
seconds at what the others leave behind, and alerts through the same channels:

- Dagster's own report (one GraphQL query): do the definitions load, when did each daemon report?
- ``<home>/alerts/state.json``: when did the alert sensor last look?
- the outbox: has a channel had an alert pending for long? (The others report it.)
- the supervisor: which service does not run?

It asks neither broker nor object store nor any database, so it works when these do not answer. Its
own incidents and outbox are under ``<home>/alerts/watcher/``. With ``alerts.heartbeat_url`` it asks
that address once a minute while all is well, and a dead-man service alerts when it no longer does.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from penstock_platform.alerts.channels import AlertError, Alerts, ping
from penstock_platform.alerts.dagster_state import dagster_facts
from penstock_platform.alerts.model.chain_health import (
    Health,
    Kind,
    PlatformFacts,
    Problem,
    confirm,
    judge_platform,
)
from penstock_platform.alerts.model.incident_states import (
    Incidents,
    Observation,
    advance,
    failure,
)
from penstock_platform.alerts.outbox import Outbox, write_whole
from penstock_platform.clock import Clock, from_iso
from penstock_platform.settings import Settings
from penstock_platform.system_clock import SystemClock
from penstock_services import layout
from penstock_services.errors import ServiceError
from penstock_services.supervisor import Supervisor

LOG = logging.getLogger("penstock.watcher")
LOOK_SECONDS = 15.0
PING_SECONDS = 60.0
DELIVERY_BUDGET_SECONDS = 10.0
# `penstock up` may take that long to bring everything to where it reports.
PATIENCE = timedelta(minutes=2)
UNDELIVERED = timedelta(minutes=15)
RUNS = ("RUNNING", "STARTING")


@dataclass(slots=True)
class WatcherState:
    """What is kept over a restart of the watcher."""

    incidents: Incidents = field(default_factory=Incidents)
    suspected: dict[str, str] = field(default_factory=dict)


class Watcher:
    """One home's watcher. ``look`` is one look; ``facts`` and ``states`` are asked each time."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        alerts: Alerts | None = None,
        facts: Callable[[Settings], PlatformFacts] = dagster_facts,
        states: Callable[[Settings], Mapping[str, str] | None] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._alerts = alerts or Alerts.from_settings(settings)
        self._facts = facts
        self._states = states or services_down
        self._directory = layout.watcher_directory(settings)
        self._began = self._clock.now()
        self._pinged: datetime | None = None
        self._ping_failed = ""

    def look(self) -> tuple[Problem, ...]:
        """Look, alert, and ask the dead-man service where all is well; returns what is wrong now,
        also what is not alerted yet."""
        now = self._clock.now()
        state = self._load()
        health = self.judge(now)
        problems = tuple(_patient(problem) for problem in health.problems)
        confirmed, suspected = confirm(problems, state.suspected, now)
        incidents, alerts = advance(state.incidents, self._observe(health, confirmed), now)
        outbox = Outbox(self._directory, self._alerts, self._clock)
        outbox.add(alerts)
        if (incidents, suspected) != (state.incidents, state.suspected):
            self._save(WatcherState(incidents, suspected))
        outbox.deliver(DELIVERY_BUDGET_SECONDS)
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "looked").touch()
        if not problems and not incidents.open and not self._sensor().get("problems"):
            self._ping(now)
        return problems

    def judge(self, now: datetime) -> Health:
        """What is wrong now, by all that others leave behind."""
        sensor = self._sensor()
        last = max(self._began, from_iso(sensor["at"])) if sensor.get("at") else self._began
        box = Outbox(self._settings.alert_directory, self._alerts, self._clock)
        late = [o for o in box.pending() if o.attempts and now - from_iso(o.since) > UNDELIVERED]
        facts = replace(
            self._facts(self._settings),
            looked=(now - last).total_seconds(),
            undelivered={pending.channel: pending.error for pending in late},
            down=self._states(self._settings),
        )
        return judge_platform(facts)

    def _observe(self, health: Health, confirmed: list[Problem]) -> list[Observation]:
        cluster = self._settings.cluster
        bad = [
            failure(
                cluster,
                problem.source,
                component="platform",
                summary=problem.summary,
                group="watcher",
                class_=str(problem.kind),
                severity=problem.severity,
                details={**problem.details, "command": problem.command},
            )
            for problem in confirmed
        ]
        return [*(Observation(source) for source in health.good), *bad]

    def _ping(self, now: datetime) -> None:
        url = self._settings.alerts.heartbeat_url
        due = self._pinged is None or (now - self._pinged).total_seconds() >= PING_SECONDS
        if not url or not due:
            return
        self._pinged = now
        error = ""
        try:
            ping(url)
        except AlertError as refusal:
            error = str(refusal)
        if error != self._ping_failed:
            LOG.warning("%s", error or "the dead-man service answers again")
        self._ping_failed = error

    def _sensor(self) -> dict[str, Any]:
        """The alert sensor's state, as far as it is needed here; empty where there is none."""
        return _read(self._settings.alert_directory / "state.json")

    def _load(self) -> WatcherState:
        raw = _read(self._directory / "state.json")
        try:
            incidents = Incidents.from_document(raw.get("incidents"))
            return WatcherState(incidents, dict(raw.get("suspected", {})))
        except (ValueError, TypeError) as error:
            LOG.error("the watcher's state cannot be read and starts over: %s", error)
            return WatcherState()

    def _save(self, state: WatcherState) -> None:
        raw = {"incidents": state.incidents.document(), "suspected": state.suspected}
        write_whole(self._directory / "state.json", json.dumps(raw).encode())


def _patient(problem: Problem) -> Problem:
    """Services are started and replaced now and then; definitions are not repaired by waiting."""
    if problem.kind in (Kind.DEFINITIONS_BROKEN, Kind.ALERTS_UNDELIVERED):
        return problem
    return replace(problem, patience=PATIENCE)


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}


def services_down(settings: Settings) -> Mapping[str, str] | None:
    """{service: state} of those that the supervisor does not run; None where it does not answer."""
    try:
        states = Supervisor(settings).states()
    except (ServiceError, OSError):
        return None
    return {
        name: f"{state.state} ({state.description})"
        for name, state in states.items()
        if state.state not in RUNS
    }


def main() -> None:
    """Look until SIGTERM. A look that fails is logged, and the next one comes."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(message)s"
    )
    settings = Settings.load()
    watcher = Watcher(settings)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        started = time.monotonic()
        try:
            watcher.look()
        except Exception:  # the watcher must not end with what it watches
            LOG.exception("a look failed")
        stop.wait(max(1.0, LOOK_SECONDS - (time.monotonic() - started)))


if __name__ == "__main__":
    main()
