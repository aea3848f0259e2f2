"""The watcher notices that the alert sensor does not run, from files and two requests."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock_platform.alerts.channels import AlertError, Alerts, FileChannel, read_alerts
from penstock_platform.alerts.dagster_state import DagsterSilentError, dagster_facts
from penstock_platform.alerts.model.chain_health import PlatformFacts
from penstock_platform.alerts.outbox import Outbox
from penstock_platform.clock import to_iso
from penstock_platform.settings import Settings
from penstock_platform.testing.clock import ManualClock
from penstock_services import layout
from penstock_services.probes import NotReady, probe_daemon, probe_watcher
from penstock_services.watcher import PATIENCE, Watcher

FINE = PlatformFacts(dagster="", definitions="", heartbeats={"SENSOR": 1.0})


class Home:
    """A home with a watcher, of which everything it asks can be changed."""

    def __init__(self, directory: Path, **alerts: str) -> None:
        self.settings = Settings.model_validate({"home": directory, "alerts": alerts})
        self.clock = ManualClock()
        self.facts = FINE
        self.down: dict[str, str] | None = {}
        self.channels: list[Any] = [FileChannel(self.settings.alert_file)]
        self.start()

    def start(self) -> None:
        self.watcher = Watcher(
            self.settings,
            self.clock,
            Alerts(self.channels),
            facts=lambda _settings: self.facts,
            states=lambda _settings: self.down,
        )

    def sensor_looks(self, **state: Any) -> None:
        file = self.settings.alert_directory / "state.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"at": to_iso(self.clock.now()), "problems": [], **state}))

    def look(self, seconds: float = 0.0, *, sensor: bool = True) -> list[dict[str, Any]]:
        """Let that much time pass and look; the alerts of this look."""
        before = len(list(read_alerts(self.settings.alert_file)))
        self.clock.advance(seconds)
        if sensor:
            self.sensor_looks()
        self.watcher.look()
        return list(read_alerts(self.settings.alert_file))[before:]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


LONG = PATIENCE.total_seconds()


def test_a_daemon_that_stopped_reporting_is_one_incident(home: Home) -> None:
    assert home.look() == []
    home.facts = PlatformFacts(dagster="", definitions="", heartbeats={"SENSOR": 300.0})
    assert home.look() == [], "it may be about to be replaced"
    (alert,) = home.look(LONG)
    assert alert["payload"]["class"] == "daemon_stale"
    assert "SENSOR (300 s ago)" in alert["payload"]["summary"]
    home.start()
    assert home.look(600) == [], "restarted, it remembers what it said"
    home.facts = PlatformFacts(dagster="connection refused")
    assert home.look(15) == [], "silence proves nothing"
    home.facts = FINE
    (resolve,) = home.look(15)
    assert (resolve["event_action"], resolve["dedup_key"]) == ("resolve", alert["dedup_key"])


def test_definitions_that_do_not_load_are_said_at_once(home: Home) -> None:
    home.facts = PlatformFacts(dagster="", definitions="orders/defs.yaml:5: spec.partitons")
    (alert,) = home.look()
    assert "defs.yaml:5" in alert["payload"]["summary"]
    assert alert["payload"]["custom_details"]["command"] == "penstock validate"


def test_dagster_that_does_not_answer(home: Home) -> None:
    home.facts = PlatformFacts(dagster="timed out")
    assert home.look() == []
    (alert,) = home.look(LONG)
    assert alert["payload"]["class"] == "dagster_unanswered"


def test_an_alert_sensor_that_no_longer_looks(home: Home) -> None:
    home.look()
    assert home.look(180, sensor=False) == []
    assert home.look(1, sensor=False) == []
    (alert,) = home.look(LONG, sensor=False)
    assert alert["payload"]["class"] == "alerts_stale"
    assert "has not looked for 301 s" in alert["payload"]["summary"]
    assert home.look()[0]["event_action"] == "resolve"


def test_a_sensor_that_never_looked_counts_from_the_watchers_start(home: Home) -> None:
    assert home.look(181, sensor=False) == []
    assert len(home.look(LONG, sensor=False)) == 1


def test_services_that_do_not_run(home: Home) -> None:
    home.down = {"spark": "FATAL (exited too quickly)"}
    assert home.look() == []
    (alert,) = home.look(LONG)
    assert "spark: FATAL" in alert["payload"]["summary"]
    home.down = None
    assert home.look(15) == [], "a supervisor that does not answer proves nothing"
    home.down = {}
    assert home.look(15)[0]["event_action"] == "resolve"


class Refusing:
    name = "webhook pager #123456"
    local = False

    def deliver(self, alert: Any) -> None:
        raise AlertError(f"{self.name}: HTTP 503")


def test_alerts_that_do_not_arrive_are_said_through_the_others(home: Home) -> None:
    home.channels.append(Refusing())
    home.start()
    box = Outbox(home.settings.alert_directory, Alerts([Refusing()]), home.clock)
    box.add([{"event_action": "trigger", "dedup_key": "k"}])
    box.deliver(20)
    assert home.look(890) == []
    (alert,) = home.look(20)
    assert alert["payload"]["summary"] == (
        "alerts are not delivered: webhook pager #123456: HTTP 503"
    )


class Service:
    """A dead-man service."""

    def __init__(self) -> None:
        self.pings = 0
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.pings += 1
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/T0KEN4711"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_the_dead_man_service_is_asked_only_while_all_is_well(
    tmp_path: Path, service: Service
) -> None:
    home = Home(tmp_path / "home", heartbeat_url=service.url)
    home.look()
    home.look(15)
    assert service.pings == 1, "once a minute"
    home.look(45)
    assert service.pings == 2
    home.facts = PlatformFacts(dagster="", definitions="", heartbeats={"SENSOR": 300.0})
    home.look(60)
    assert service.pings == 2, "not even while it is only suspected"
    home.facts = FINE
    home.look(60)
    assert service.pings == 3
    home.clock.advance(60)
    home.sensor_looks(problems=["shop.orders: no window is frozen"])
    home.watcher.look()
    assert service.pings == 3, "a chain stops: that is not well"
    kept = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert not [p for p in kept if b"T0KEN4711" in p.read_bytes()]


def test_a_dead_man_service_that_is_away_is_said_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path / "home", heartbeat_url="http://127.0.0.1:9/T0KEN4711")
    for _ in range(3):
        home.look(60)
    assert caplog.text.count("heartbeat 127.0.0.1") == 1
    assert "T0KEN4711" not in caplog.text


def test_an_unreadable_state_starts_over(home: Home) -> None:
    home.look()
    (layout.watcher_directory(home.settings) / "state.json").write_text("{")
    home.down = {"spark": "FATAL"}
    home.look()
    assert len(home.look(LONG)) == 1


def test_the_watcher_shows_that_it_looks(home: Home) -> None:
    with pytest.raises(NotReady, match="not run yet"):
        probe_watcher(home.settings)
    home.look()
    assert "looks" in probe_watcher(home.settings)


def test_the_watcher_loads_nothing_heavy() -> None:
    heavy = "{'dagster', 'pyspark', 'boto3', 'confluent_kafka', 'pyarrow', 'grpc'}"
    code = f"import sys, penstock_services.watcher; print(sorted({heavy} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


class Answers:
    """Dagster's GraphQL, answering what a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
        def graphql(*_: object) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr("penstock_platform.alerts.dagster_state.graphql", graphql)
        monkeypatch.setattr("penstock_services.probes.graphql", graphql)


def workspace(**location: Any) -> dict[str, Any]:
    entry = {"name": "pipelines", "loadStatus": "LOADED", **location}
    return {"__typename": "Workspace", "locationEntries": [entry]}


def daemons(age: float | None) -> dict[str, Any]:
    beat = None if age is None else time.time() - age
    names = ("SENSOR", "SCHEDULER", "QUEUED_RUN_COORDINATOR")
    statuses = [{"daemonType": n, "healthy": True, "lastHeartbeatTime": beat} for n in names]
    return {"daemonHealth": {"allDaemonStatuses": statuses}}


def test_what_dagster_reports_of_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(home=tmp_path)
    good = workspace(locationOrLoadError={"__typename": "RepositoryLocation"})
    Answers(monkeypatch, {"workspaceOrError": good, "instance": daemons(5)})
    facts = dagster_facts(settings)
    assert (facts.dagster, facts.definitions) == ("", "")
    assert facts.heartbeats is not None
    assert timedelta(seconds=facts.heartbeats["SENSOR"] or 0) < timedelta(minutes=5)
    error = {"__typename": "PythonError", "message": "x", "causes": [{"message": "defs.yaml:5"}]}
    bad = workspace(locationOrLoadError=error)
    Answers(monkeypatch, {"workspaceOrError": bad, "instance": daemons(None)})
    facts = dagster_facts(settings)
    assert facts.definitions == "defs.yaml:5"
    assert facts.heartbeats == dict.fromkeys(("SENSOR", "SCHEDULER", "QUEUED_RUN_COORDINATOR"))
    loading = workspace(loadStatus="LOADING", locationOrLoadError=None)
    Answers(monkeypatch, {"workspaceOrError": loading, "instance": daemons(1)})
    assert dagster_facts(settings).definitions is None
    Answers(monkeypatch, DagsterSilentError("timed out"))
    facts = dagster_facts(settings)
    assert facts.dagster is not None and "timed out" in facts.dagster
    assert facts.heartbeats is None


def test_a_daemon_whose_last_report_is_old_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen before: a daemon that was stopped (SIGSTOP) was "ready" for half an hour."""
    settings = Settings(home=tmp_path)
    Answers(monkeypatch, {"instance": daemons(30)})
    assert probe_daemon(settings) == "3 daemons"
    Answers(monkeypatch, {"instance": daemons(121)})
    with pytest.raises(NotReady, match=r"last heartbeat was 12. s ago"):
        probe_daemon(settings)
