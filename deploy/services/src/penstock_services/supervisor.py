"""supervisord: generated, started, asked and stopped.

It runs in the foreground in a session of its own, so it outlives the terminal, and its process id
is known. It is asked by XML-RPC over a unix socket that only the owner can open. When it is gone
without its services (kill -9), ``orphans`` finds them by the two variables that each carries.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from penstock_platform.cli.dagster_api import DagsterApiError
from penstock_platform.settings import HOME_VARIABLE, Settings
from penstock_services import layout
from penstock_services.catalogue import SERVICE_VARIABLE
from penstock_services.errors import ServiceError

START_SECONDS = 300
STOP_SECONDS = 60
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class ProcessState:
    """One program as supervisord sees it. ``state``: RUNNING, STARTING, BACKOFF, FATAL …"""

    name: str
    state: str
    pid: int | None
    description: str
    started_at: int  # seconds since the epoch, 0 when it never ran
    now: int


class Supervisor:
    """The supervisord of one Penstock home."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._socket = layout.supervisor_socket(settings)

    def pid(self) -> int | None:
        """Its process id while it runs and belongs to this home."""
        try:
            pid = int(layout.supervisor_pid_file(self._settings).read_text())
            command = psutil.Process(pid).cmdline()
        except (OSError, ValueError, psutil.Error):
            return None
        return pid if str(layout.supervisor_conf(self._settings)) in command else None

    def running(self) -> bool:
        return self.pid() is not None and self._answers()

    def start(self) -> None:
        """Start supervisord on the configuration file in place, and wait until it answers."""
        log = layout.log_file(self._settings, "supervisord")
        log.parent.mkdir(parents=True, exist_ok=True)
        _stop_ignoring_interrupts()
        with log.with_suffix(".out").open("wb") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "supervisor.supervisord", "--nodaemon"),
                    *("--configuration", str(layout.supervisor_conf(self._settings))),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self._settings.project,
                # Settings reach each service through its own section, so that a later `up` can
                # change and remove them.
                env={k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")},
            )
        deadline = time.monotonic() + START_SECONDS
        while not (self.pid() and self._answers()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServiceError(f"supervisord does not start: {_last_line(log)}; see {log}")
            time.sleep(POLL_SECONDS)

    def apply(self) -> None:
        """Take over a changed configuration: changed and removed services are stopped."""
        added, changed, removed = self._call("reloadConfig")[0]
        for name in (*changed, *removed):
            self._call("stopProcessGroup", name)
            self._call("removeProcessGroup", name)
        for name in (*added, *changed):
            self._call("addProcessGroup", name)

    def states(self) -> dict[str, ProcessState]:
        return {
            info["name"]: ProcessState(
                name=info["name"],
                state=info["statename"],
                pid=info["pid"] or None,
                description=info["spawnerr"] or info["description"],
                started_at=info["start"],
                now=info["now"],
            )
            for info in self._call("getAllProcessInfo")
        }

    def start_service(self, name: str) -> None:
        """Ask for a start; returns before the process serves. Running already: nothing."""
        if self.states()[name].state not in ("RUNNING", "STARTING", "BACKOFF"):
            self._call("startProcess", name, False)

    def stop_service(self, name: str) -> None:
        """End one service; it stays down until it is started."""
        self._call("stopProcess", name, True)

    def shutdown(self) -> None:
        """Stop every service, the last started first, then supervisord itself."""
        pid = self.pid()
        if pid is None:
            return
        process = psutil.Process(pid)
        if self._answers():
            self._call("shutdown")
        else:
            process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except psutil.TimeoutExpired:
            end([*process.children(recursive=True), process])

    def _answers(self) -> bool:
        try:
            return bool(self._call("getState")["statename"] == "RUNNING")
        except (ServiceError, OSError):
            return False

    def _call(self, method: str, *arguments: object) -> Any:
        proxy = xmlrpc.client.ServerProxy("http://localhost", transport=_Unix(self._socket))
        try:
            return getattr(proxy.supervisor, method)(*arguments)
        except xmlrpc.client.Fault as fault:
            raise ServiceError(f"supervisord refuses {method} {arguments}: {fault}") from fault
        except (OSError, http.client.HTTPException) as error:
            raise ServiceError(
                f"supervisord does not answer at {self._socket}: {error}; run: penstock up"
            ) from error


def orphans(home: Path) -> list[psutil.Process]:
    """Processes of this home's services, found by the variables they carry."""
    found = []
    for process in psutil.process_iter():
        try:
            variables = process.environ()
        except (psutil.Error, OSError):
            continue  # another user's, or gone meanwhile
        if variables.get(HOME_VARIABLE) == str(home) and variables.get(SERVICE_VARIABLE):
            found.append(process)
    return found


def end(processes: Iterable[psutil.Process], patience_seconds: float = 15.0) -> None:
    """Terminate these processes, and kill those that are still there after the patience."""
    remaining = list(processes)
    for ask in (psutil.Process.terminate, psutil.Process.kill):
        for process in remaining:
            try:
                ask(process)
            except psutil.NoSuchProcess:
                continue
        _, remaining = psutil.wait_procs(remaining, timeout=patience_seconds)


class _Unix(xmlrpc.client.Transport):
    """XML-RPC over a unix socket, one connection a call."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        return _UnixConnection(self._path)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=STOP_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _stop_ignoring_interrupts() -> None:
    # A shell without job control starts `penstock up &` with SIGINT ignored, children inherit
    # that, and Dagster copies it to SIGTERM: its processes could only be killed. A handler of
    # ours, unlike "ignore", becomes the default again in a child.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _last_line(file: Path) -> str:
    for candidate in (file.with_suffix(".out"), file):
        if candidate.is_file():
            lines = candidate.read_text(errors="replace").strip().splitlines()
            if lines:
                return lines[-1]
    return "it left no message"


def supervisor_user() -> str | None:
    """The user to name in the configuration: only root is asked to."""
    return "root" if os.geteuid() == 0 else None


def require_own_dagster(settings: Settings) -> None:
    """Raises DagsterApiError unless this project's own webserver runs (group ``penstock.dagster``):
    what answers at its address without it is another project's. A Dagster of the user's own
    (``dagster.url``) is no service of this project."""
    if settings.dagster.url:
        return
    supervisor = Supervisor(settings)
    try:
        states = supervisor.states() if supervisor.pid() is not None else {}
    except ServiceError:
        states = {}
    webserver = states.get("webserver")
    if webserver is None or webserver.pid is None:
        raise DagsterApiError(
            f"Dagster of this project ({settings.home}) does not run, and what answers "
            f"at {settings.dagster_url}, if anything, is another's; start it with `penstock up`"
        )
