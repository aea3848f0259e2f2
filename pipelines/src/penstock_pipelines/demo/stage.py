"""The demo's acts, in order. Each waits for what the platform does by itself, with a deadline."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from penstock_pipelines.demo.observer import Observer, Seen, coordinates, find_alert
from penstock_pipelines.demo.processes import ProducerProcesses, Role
from penstock_platform.cli.project import Connections
from penstock_platform.clock import from_iso
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.settings import Settings
from penstock_platform.system_clock import SystemClock
from penstock_platform.topics.model.declaration import table_part
from penstock_platform.windows.model.window import Window

AUDIT = "__penstock_audit"
TOPICS = ("flights", "weather", "host.metrics", AUDIT)
FLIGHTS_HALF = 168_388  # rows of one half: two producers replay the year from both
VICTIM = "flights-2"
POLL_SECONDS = 1.0
# Waits guard against hanging, never against a slow machine: one ends when nothing at all has moved
# on for IDLE_SECONDS_MAX, or after WAIT_SECONDS_MAX in any case.
IDLE_SECONDS_MAX = 900.0
WAIT_SECONDS_MAX = 3 * 3600.0
FIRST_WINDOW_SECONDS_MIN = 15.0


T = TypeVar("T")


class DemoError(RuntimeError):
    """The demo did not go as planned: what was expected, and what was seen."""


@dataclass(frozen=True, slots=True)
class Sabotage:
    """What a saboteur did to a window, as only it and the demo know."""

    topic: str
    window: Window
    removed: set[tuple[int, int]]
    duplicated: set[tuple[int, int]]

    def __str__(self) -> str:
        doubled = f", {len(self.duplicated)} doubled" if self.duplicated else ""
        return f"{self.topic} {self.window.window}: {len(self.removed)} rows removed{doubled}"


@dataclass(slots=True)
class Stage:
    """One performance. ``rate``: records a second of all producers together."""

    settings: Settings
    out: Console
    rate: float
    directory: Path = field(init=False)
    penstock: Connections = field(init=False)
    observer: Observer = field(init=False)
    producers: ProducerProcesses = field(init=False)
    clock: SystemClock = field(default_factory=SystemClock)
    killed_incarnation: str = ""

    def __post_init__(self) -> None:
        self.directory = self.settings.home / "demo"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.penstock = Connections(self.settings)
        self.observer = Observer(self.penstock, TOPICS)
        self.producers = ProducerProcesses(self.settings.bootstrap_servers, self.directory)

    def act_one(self) -> None:
        """Real records flow, windows close and balance; a producer dies without a word."""
        self._title("Act one: real records, from producers to a proven table")
        self._wait("the declared topics", lambda: not self.observer.missing_topics())
        self.observer.begin()
        self._until_minute_is_young()
        for role in self._roles():
            pid = self.producers.start(role)
            self._print(f"{role.name} (pid {pid}) sends {role.rate:,.0f} records a second")
        first = self._wait("the first window to close", self._first_window)
        self._print(
            f"window {first.window.window} is frozen: {first.row['stored']:,} records of flights"
        )
        self._wait("its books", lambda: self._all_decided(first.window.window))
        late = (self.clock.now() - first.window.closed_time).total_seconds()
        self._print(
            f"window {first.window.window} of every topic is decided {late:.0f} s after its close"
        )
        self._wait("its last monitoring events", lambda: self._acceptable(self._seen(first.window)))
        self._require(self._seen(first.window), WindowState.BALANCED)
        self._kill_one()

    def act_two(self) -> None:
        """Rows vanish behind the platform's back; it finds that, says so, and is repaired."""
        self._title("Act two: a landed table is damaged behind the platform's back")
        sabotages = [
            self._sabotage("flights", remove=37, duplicate=0),
            self._sabotage("weather", remove=11, duplicate=11),
        ]
        alerts = {s.topic: self._await_alert(s) for s in sabotages}
        self.producers.stop()
        self._print(f"the producers end: {self.producers.sent():,} records sent by them")
        for sabotage in sabotages:
            self._repair(sabotage, alerts[sabotage.topic])

    def finale(self) -> list[Seen]:
        """Every window that holds a record of this performance, once all are decided."""
        self._title("Finale: the books")
        closing = self.clock.now()
        self._wait("the last window to close and balance", lambda: self._is_finished(closing))
        self.observer.invalidate_all()
        seen = [s for s in self.observer.all_windows() if s.window.record_count]
        for window in seen:
            self._judge(window)
        return seen

    # --- act one --------------------------------------------------------------------------------

    def _roles(self) -> list[Role]:
        flights = self.rate * 0.42
        return [
            Role("flights-1", "flights", flights),
            Role(VICTIM, "flights", flights, FLIGHTS_HALF),
            Role("weather", "weather", self.rate * 0.12),
            Role("metrics", "metrics", self.rate * 0.04),
        ]

    def _until_minute_is_young(self) -> None:
        """A first window of a few records would prove little."""
        left = 60 - self.clock.now().timestamp() % 60
        if left < FIRST_WINDOW_SECONDS_MIN:
            self._print(f"waiting {left:.0f} s for the next minute")
            self.clock.sleep(left)

    def _first_window(self) -> Seen | None:
        self._alive()
        return next((s for s in self.observer.windows("flights") if s.window.record_count), None)

    def _kill_one(self) -> None:
        """After the first books, so that the kill is in a later window, however late they are."""
        self.killed_incarnation = self._wait(
            f"{VICTIM} to say who it is", lambda: self.producers.incarnation(VICTIM)
        )
        role = self.producers.members[VICTIM].role
        self.producers.kill(VICTIM)
        self._print(f"{VICTIM} is killed with -9: no producer claims what it sent last")
        pid = self.producers.start(role)
        self._print(f"{VICTIM} is back (pid {pid})")

    def _all_decided(self, window: str) -> bool:
        self._alive()
        rows = [s for s in self.observer.all_windows() if s.window.window == window]
        return {s.window.topic for s in rows} == set(TOPICS) and all(s.decided for s in rows)

    # --- act two --------------------------------------------------------------------------------

    def _sabotage(self, topic: str, remove: int, duplicate: int) -> Sabotage:
        target = self._wait(
            f"a balanced window of {topic} with records enough",
            lambda: self._target(topic, remove + duplicate),
        )
        report = self.directory / f"sabotage-{table_part(topic)}.json"
        report.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "penstock_pipelines.demo.saboteur"),
            *("--table", f"bronze.{table_part(topic)}", "--window-id", target.window_id),
            *("--remove", str(remove), "--duplicate", str(duplicate), "--report", str(report)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DemoError(f"the saboteur failed on {topic}: {done.stderr.strip()[-400:]}")
        noted = json.loads(report.read_text())
        removed = {(p, o) for p, o in noted["removed"]}
        sabotage = Sabotage(topic, target, removed, {(p, o) for p, o in noted["duplicated"]})
        self._print(f"another process damaged {sabotage}; the platform is not notified")
        return sabotage

    def _target(self, topic: str, records: int) -> Window | None:
        """The newest balanced window: the log still has its records, if it has those of any."""
        balanced = [
            s.window
            for s in self.observer.windows(topic)
            if s.state is WindowState.BALANCED and s.window.record_count > records
        ]
        return balanced[-1] if balanced else None

    def _await_alert(self, sabotage: Sabotage) -> dict[str, Any]:
        alert: dict[str, Any] = self._wait(
            f"the scheduled re-verification to see it in {sabotage.topic}",
            lambda: find_alert(self.observer.alerts(), "trigger", sabotage.window, names="missing"),
        )
        self._print_line(f"[red]ALERT[/] {alert['payload']['summary']}")
        details = alert["payload"]["custom_details"]
        for key, truth in (("missing", sabotage.removed), ("duplicates", sabotage.duplicated)):
            named = coordinates(details.get(key, []))
            if named != truth:
                raise DemoError(
                    f"{sabotage}: the alert names {len(named)} {key} offsets, "
                    f"{len(named & truth)} of them right; expected exactly {len(truth)}"
                )
        self._print("it names exactly the offsets that the saboteur noted")
        return alert

    def _repair(self, sabotage: Sabotage, alert: dict[str, Any]) -> None:
        command = alert["payload"]["custom_details"].get("rerun")
        if command is None:
            raise DemoError(
                f"{sabotage}: the alert gives no command, so neither the log nor a snapshot of "
                f"the table has these records: {alert['payload']['summary']}"
            )
        self._print(f"the alert's own command: [bold]{command}[/]")
        self.observer.invalidate(sabotage.window)
        if code := run_command(self.settings, shlex.split(command)[1:]):
            self._print(f"it ended with {code}; the books of the window say what became of it")
        self._wait(
            f"{sabotage.topic} {sabotage.window.window} to balance again",
            lambda: self._seen(sabotage.window).state is WindowState.BALANCED,
        )
        resolved = self._wait(
            "the alert to resolve",
            lambda: find_alert(
                self.observer.alerts(), "resolve", sabotage.window, alert["dedup_key"]
            ),
        )
        summary = str(resolved["payload"]["summary"]).removeprefix("resolved: ")
        self._print_line(f"[green]RESOLVED[/] {summary}")

    # --- finale ---------------------------------------------------------------------------------

    def _is_finished(self, closing: datetime) -> bool:
        """Every topic has a window that closed after the last record, and all are decided."""
        for topic in TOPICS:
            windows = self.observer.windows(topic)
            if not windows or windows[-1].window.closed_time < closing:
                return False
            due = [
                s
                for s in windows
                if s.window.record_count and from_iso(s.window.opened_at) < closing
            ]
            if not all(self._acceptable(s) for s in due):
                return False
        return True

    def _acceptable(self, seen: Seen) -> bool:
        """Whether there is nothing to wait for: on a slow machine claims come after the grace, and
        then a window that was unaudited is judged again."""
        if seen.state is not WindowState.UNAUDITED or seen.window.topic == AUDIT:
            return seen.decided
        if self.observer.incarnations_unaudited(seen.window) == {self.killed_incarnation}:
            return True
        self.observer.invalidate(seen.window)
        return False

    def _judge(self, seen: Seen) -> None:
        if seen.window.topic == AUDIT:
            self._require(seen, WindowState.UNAUDITED)  # the audit topic has no auditor of its own
        elif seen.state is WindowState.UNAUDITED:
            silent = self.observer.incarnations_unaudited(seen.window)
            if silent != {self.killed_incarnation}:
                raise DemoError(f"{seen.row}: unaudited records of {silent}, not of the killed one")
        else:
            self._require(seen, WindowState.BALANCED)

    # --- helpers --------------------------------------------------------------------------------

    def _seen(self, window: Window) -> Seen:
        found = self.observer.windows(window.topic)
        self.observer.invalidate(window)
        return next(s for s in found if s.window.sequence == window.sequence)

    def _require(self, seen: Seen, state: WindowState) -> None:
        if seen.state is not state:
            raise DemoError(
                f"{seen.window.topic} {seen.window.window} is {seen.state}, not {state}: "
                f"penstock window show {seen.window.topic} {seen.window.window}"
            )

    def _alive(self) -> None:
        for name in self.producers.ended():
            raise DemoError(f"producer {name} ended: {self.producers.last_output(name)}")

    def _wait(self, what: str, look: Callable[[], T | None]) -> T:
        """What ``look`` finds, once it finds something; DemoError when nothing moves any more."""
        began = moved = self.clock.monotonic()
        before = self._movement()
        with self.out.status(f"waiting for {what}"):
            while not (found := look()):
                now = self.clock.monotonic()
                if now - moved > IDLE_SECONDS_MAX:
                    movement = self._movement()
                    if movement == before or now - began > WAIT_SECONDS_MAX:
                        raise DemoError(
                            f"waited {now - began:.0f} s without success for {what}; "
                            + ("nothing moves" if movement == before else "other work continues")
                            + "".join(f"\n  {line}" for line in self.observer.open_windows())
                        )
                    before, moved = movement, now
                self.clock.sleep(POLL_SECONDS)
        return found

    def _movement(self) -> Hashable:
        """Changes with every progress: windows are decided, alerts sent, records produced."""
        return (self.producers.sent(), *self.observer.movement())

    def _title(self, text: str) -> None:
        self.out.rule(f"[bold]{text}", align="left")

    def _print(self, text: str) -> None:
        self._print_line(f"{self.clock.now():%H:%M:%S} {text}", highlight=False)

    def _print_line(self, text: str, highlight: bool = True) -> None:
        """Wrapped at words on a terminal; one line of a log elsewhere."""
        wraps = self.out.is_terminal
        self.out.print(f"  {text}", highlight=highlight, soft_wrap=not wraps)


def run_command(settings: Settings, arguments: list[str]) -> int:
    """The user's own ``penstock``, as a user would type it; its exit code."""
    binary = Path(sys.executable).with_name("penstock")
    return subprocess.run([str(binary), *arguments], cwd=settings.project, check=False).returncode
