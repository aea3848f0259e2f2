"""The state of every service of a home: process, health, memory, processor time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import psutil

from penstock_platform.settings import Settings
from penstock_services.catalogue import External, Service, externals, outline
from penstock_services.errors import ServiceError
from penstock_services.probes import PROBES, NotReady
from penstock_services.supervisor import ProcessState, Supervisor

SAMPLE_SECONDS = 1.0
# After that a service counts as one that does not answer.
ANSWER_SECONDS = 15.0
NO_ANSWER = f"it did not answer in {ANSWER_SECONDS:.0f} s"
T = TypeVar("T")


@dataclass(frozen=True)
class ServiceStatus:
    """One row of ``penstock status``. ``health``: ``ready``, ``not ready`` or ``down``.

    ``memory_mb`` and ``cpu_percent`` (of one core, over a second) include child processes.
    """

    name: str
    title: str
    endpoint: str
    managed: bool
    state: str
    pid: int | None
    health: str
    detail: str
    memory_mb: int | None
    cpu_percent: float | None
    uptime_seconds: int | None


@dataclass(frozen=True)
class StackStatus:
    """All services of a home; ``running`` says whether supervisord is there at all."""

    home: str
    running: bool
    supervisor_pid: int | None
    services: tuple[ServiceStatus, ...]

    @property
    def ready(self) -> bool:
        return all(service.health == "ready" for service in self.services)

    def document(self) -> dict[str, Any]:
        """For ``-o json``."""
        document = asdict(self)
        document["ready"] = self.ready
        document["memory_mb"] = sum(s.memory_mb or 0 for s in self.services)
        document["cpu_percent"] = round(sum(s.cpu_percent or 0 for s in self.services), 1)
        return document


def stack_status(settings: Settings) -> StackStatus:
    """Ask every service. Takes about a second, the sample of processor time."""
    supervisor = Supervisor(settings)
    pid = supervisor.pid()
    try:
        states = supervisor.states() if pid else {}
    except ServiceError:
        states = {}  # it is just ending, or hangs: then its services are shown as down
    table: list[Service | External] = [*externals(settings), *outline(settings)]
    asked = {
        entry.name: Limited(partial(_health, settings, entry, states.get(entry.name)))
        for entry in table
    }
    usage = _usage({n: s.pid for n, s in states.items() if s.pid})
    deadline = time.monotonic() + ANSWER_SECONDS
    rows = tuple(
        _row(
            entry,
            states.get(entry.name),
            asked[entry.name].result(deadline) or ("not ready", NO_ANSWER),
            usage,
        )
        for entry in table
    )
    return StackStatus(str(settings.home), pid is not None, pid, rows)


class Limited(Generic[T]):
    """A call in a thread of its own, waited for no longer than a deadline."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._results: list[T] = []
        self._error: BaseException | None = None
        # A daemon: a service that hangs does not keep the command from ending.
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            self._error = error

    def result(self, deadline: float) -> T | None:
        """What the call returned, or None where it has not by then; raises what it raised."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._error is not None:
            raise self._error
        return self._results[0] if self._results else None


def _health(
    settings: Settings, entry: Service | External, state: ProcessState | None
) -> tuple[str, str]:
    if isinstance(entry, Service) and (state is None or state.pid is None):
        return "down", state.description if state and state.state == "FATAL" else ""
    if state is not None and state.pid is not None and (stopped := _stopped(state.pid)):
        return "not ready", f"process {stopped} is stopped (SIGSTOP): kill -CONT {stopped}"
    try:
        return "ready", PROBES[entry.name](settings)
    except NotReady as error:
        return "not ready", str(error)


def _stopped(pid: int) -> int | None:
    """A stopped process of the service; it holds its ports and answers no request."""
    for process in _tree(pid):
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_STOPPED:
                return int(process.pid)
    return None


def _usage(pids: dict[str, int]) -> dict[str, tuple[int, float]]:
    """{service: (MB, percent of one core)} over its process and children."""
    trees = {name: _tree(pid) for name, pid in pids.items()}
    before = {name: _cpu_seconds(tree) for name, tree in trees.items()}
    started = time.monotonic()
    time.sleep(SAMPLE_SECONDS)
    elapsed = time.monotonic() - started
    return {
        name: (
            _memory(tree) // 1_000_000,
            round(max(0.0, _cpu_seconds(tree) - before[name]) / elapsed * 100, 1),
        )
        for name, tree in trees.items()
    }


def _tree(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _cpu_seconds(tree: list[psutil.Process]) -> float:
    total = 0.0
    for process in tree:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def _memory(tree: list[psutil.Process]) -> int:
    """Bytes that would be free without these processes: what forks share counts once."""
    return sum(_proportional(process) for process in tree)


def _proportional(process: psutil.Process) -> int:
    try:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        return int(rollup.split("\nPss:", 1)[1].split(maxsplit=1)[0]) * 1024
    except (OSError, IndexError, ValueError):
        pass  # not Linux, or another user's
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _row(
    entry: Service | External,
    state: ProcessState | None,
    health: tuple[str, str],
    usage: dict[str, tuple[int, float]],
) -> ServiceStatus:
    memory, cpu = usage.get(entry.name, (None, None))
    managed = isinstance(entry, Service)
    return ServiceStatus(
        name=entry.name,
        title=entry.title,
        endpoint=entry.endpoint,
        managed=managed,
        state=(state.state.lower() if state else "stopped") if managed else "external",
        pid=state.pid if state else None,
        health=health[0],
        detail=health[1],
        memory_mb=memory,
        cpu_percent=cpu,
        uptime_seconds=state.now - state.started_at if state and state.pid else None,
    )
