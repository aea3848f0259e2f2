"""The service ``workers``: run processes that start with everything heavy imported already.

Dagster's own way starts a new Python for each run, which imports Dagster, PySpark, pyarrow and
pyiceberg before it does anything: some five seconds of a core, many times a minute. Here one
process imports them once, loads the definitions once, and forks for each run. A run that finds
the definitions changed since loads them from their files (``preloading.py``), so it never executes
yesterday's code.

One connection, one question, one line of JSON each way, over a unix socket of the owner::

    {"run_id": "…", "input": "<ExecuteRunArgs, serialised>"}   →  {"pid": 123}
    {"run_id": "…", "input": "…"}                              →  {"stale": true}    ask again
    {"ping": true}                                             →  {"ready": true, "running": 0}

The parent stays without threads, connections or clients, so that a fork copies nothing alive. It
knows of each child whose run it is: one that is killed, or crashes, is reported as failed at once.
``stale``: the platform's own code, the installed packages or the definitions changed; it begins
again in its place (``exec``: same process, same socket, children stay its own) and is asked again.

On SIGTERM it passes that on to the runs, which end as cancelled (or are killed), and leaves.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock_services.preloading import (
    Definitions,
    code_signature,
    load_definitions,
    preload,
    threads,
)

LOG = logging.getLogger("penstock.workers")
REQUEST_BYTES_MAX = 4_000_000
REQUEST_SECONDS = 10.0
# A report may fail for what ended the run: a database that stays locked.
REPORTS_MAX = 3
END_SECONDS = 6.0
END_POLL_SECONDS = 0.05
# Changed definitions are reloaded by each run until this process is old enough to start over.
RENEWAL_SECONDS_MIN = 60.0
# Set for a process that starts over after the definitions started threads: a fork would lose them.
WITHOUT_DEFINITIONS = "PENSTOCK_WORKERS_WITHOUT_DEFINITIONS"


@dataclass(frozen=True)
class Job:
    """What a forked child is to do; ``died`` is set where it is to report another's death."""

    run_id: str
    arguments: str  # ExecuteRunArgs, serialised
    died: str = ""
    reports: int = 0
    """Processes so far that were to report it."""


class WorkerServer:
    """The parent: accepts, forks, reaps."""

    def __init__(
        self,
        listener: socket.socket,
        running: dict[int, Job],
        definitions: Definitions | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """``arguments`` are those with which it starts over, without the listener's."""
        self._listener = listener
        self._running = running
        self._definitions = definitions
        self._arguments = tuple(arguments)
        self._started = time.monotonic()
        self._code = code_signature()
        self._ending = False
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)

    def serve(self) -> Job | None:
        """Serve until SIGTERM: returns None then, and in a forked child the job to do."""
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                if (job := self._reap()) is not None:
                    return job
                if self._ending:
                    return None
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        with contextlib.suppress(BlockingIOError):
                            self._woken.recv(4096)
                    elif (job := self._accept()) is not None:
                        return job

    def end_runs(self, patience_seconds: float = END_SECONDS) -> None:
        """Pass SIGTERM on, wait for the runs to end as cancelled, and kill what does not.

        A run may be killed between any two instructions: the next one does its work again.
        """
        for pid in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + patience_seconds
        while self._running and time.monotonic() < deadline:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid:
                self._running.pop(pid, None)
            else:
                time.sleep(END_POLL_SECONDS)
        for pid in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _end(self, *_: object) -> None:
        self._ending = True

    def _accept(self) -> Job | None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(REQUEST_SECONDS)
            try:
                question = json.loads(_read_line(connection))
                if not isinstance(question, dict):
                    raise ValueError("not an object")
                job = self._answer(connection, question)
            except (OSError, ValueError, KeyError) as error:
                LOG.warning("a question that could not be answered: %r", error)
                return None
        return job

    def _answer(self, connection: socket.socket, question: dict[str, Any]) -> Job | None:
        if "ping" in question:
            _send(connection, {"ready": True, "running": len(self._running)})
            return None
        if code_signature() != self._code or self._renews():
            _send(connection, {"stale": True})
            self.start_over()
        job = Job(str(question["run_id"]), str(question["input"]))
        pid = self._fork(job)
        if pid == 0:
            return job
        LOG.info("run %s: process %d", job.run_id, pid)
        _send(connection, {"pid": pid})
        return None

    def _fork(self, job: Job) -> int:
        """As os.fork; the child keeps nothing of the server but its imports."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for end in (self._listener, self._wake, self._woken):
                end.close()
            if (numpy := sys.modules.get("numpy")) is not None:
                numpy.random.seed()  # or every run would draw the same numbers
        else:
            self._running[pid] = job
        return pid

    def _reap(self) -> Job | None:
        """Bury children; in a child forked to report a death, the job to do that."""
        while self._running:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._running.clear()
                return None
            if pid == 0:
                return None
            job = self._running.pop(pid, None)
            died = _death(pid, status)
            if job is None or not died:
                continue
            LOG.warning("run %s: %s", job.run_id, died)
            if job.reports == REPORTS_MAX:
                continue
            report = Job(job.run_id, job.arguments, job.died or died, job.reports + 1)
            if self._fork(report) == 0:
                return report
        return None

    def _renews(self) -> bool:
        """Whether the definitions have changed, and it is worth it to load them here again."""
        if self._definitions is None or time.monotonic() - self._started < RENEWAL_SECONDS_MIN:
            return False
        return not self._definitions.current

    def start_over(self) -> None:
        LOG.info("the code or the definitions have changed: reloading them")
        os.set_inheritable(self._listener.fileno(), True)
        running = {pid: [job.run_id, job.arguments] for pid, job in self._running.items()}
        os.environ["PENSTOCK_WORKERS_RUNNING"] = json.dumps(running)
        signal.set_wakeup_fd(-1)
        command = [sys.executable, "-m", "penstock_services.workers"]
        place = ["--listener", str(self._listener.fileno())]
        os.execv(sys.executable, [*command, *self._arguments, *place])


def execute(job: Job, definitions: Definitions | None = None) -> int:
    """In the child: the run itself, or the report of another's death. Returns the exit code."""
    if definitions is not None and not definitions.current:
        definitions.drop()
    from dagster._cli.api import _execute_run_command_body  # noqa: PLC0415
    from dagster._cli.utils import get_instance_for_cli  # noqa: PLC0415
    from dagster._core.storage.dagster_run import DagsterRun  # noqa: PLC0415
    from dagster._grpc.types import ExecuteRunArgs  # noqa: PLC0415
    from dagster._serdes import deserialize_value  # noqa: PLC0415
    from dagster._utils.interrupts import (  # noqa: PLC0415
        capture_interrupts,
        setup_interrupt_handlers,
    )

    signal.signal(signal.SIGINT, signal.default_int_handler)
    setup_interrupt_handlers()
    arguments = deserialize_value(job.arguments, ExecuteRunArgs)
    with (
        capture_interrupts(),
        get_instance_for_cli(instance_ref=arguments.instance_ref) as instance,
    ):
        if not job.died:
            return _execute_run_command_body(
                job.run_id, instance, lambda _: None, set_exit_code_on_failure=False
            )
        run = instance.get_run_by_id(job.run_id)
        if isinstance(run, DagsterRun) and not run.is_finished:
            instance.report_run_failed(run, f"The run has ended early: {job.died}.")
        return 0


def listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(64)
    return listener


def ask(path: Path, question: dict[str, Any], seconds: float) -> dict[str, Any]:
    """One question to the service. OSError where it is not there or does not answer in time."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        connection.connect(str(path))
        _send(connection, question)
        answer: dict[str, Any] = json.loads(_read_line(connection))
        return answer


def renewal_arguments(arguments: argparse.Namespace) -> list[str]:
    """What a new process gets of the definitions."""
    if not arguments.module:
        return []
    sources = [part for path in arguments.source for part in ("--source", str(path))]
    return ["--module", arguments.module, "--project", str(arguments.project), *sources]


def _send(connection: socket.socket, document: dict[str, Any]) -> None:
    connection.sendall(json.dumps(document).encode() + b"\n")


def _read_line(connection: socket.socket) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("the other side closed the connection")
        data += part
        if len(data) > REQUEST_BYTES_MAX:
            raise ValueError("a question of more than 4 MB")
    return bytes(data)


def _death(pid: int, status: int) -> str:
    """How a process ended, in words; empty when it ended well."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"its process {pid} was ended by {signal.Signals(number).name}"
    code = os.waitstatus_to_exitcode(status)
    return f"its process {pid} left with code {code}" if code else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Run processes with everything imported ahead.")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--socket", type=Path)
    place.add_argument("--listener", type=int, help="a socket that an earlier process listened on")
    parser.add_argument("--module", default="", help="the code location's module")
    parser.add_argument("--project", type=Path, default=Path(), help="where it is looked for")
    parser.add_argument("--source", type=Path, action="append", default=[], help="decides it too")
    arguments = parser.parse_args()
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False  # a run configures logging for itself
    modules = preload()
    left = json.loads(os.environ.pop("PENSTOCK_WORKERS_RUNNING", "{}"))
    running = {int(pid): Job(run_id, text) for pid, (run_id, text) in left.items()}
    if arguments.socket:
        listener = listen(arguments.socket)
    else:
        listener = socket.socket(fileno=arguments.listener)
        listener.set_inheritable(False)
    definitions = None
    if arguments.module and not os.environ.get(WITHOUT_DEFINITIONS):
        definitions = load_definitions(arguments.module, arguments.project, arguments.source)
    server = WorkerServer(listener, running, definitions, renewal_arguments(arguments))
    if definitions is not None and threads() > 1:
        LOG.warning("the definitions start threads, so each run loads them for itself")
        os.environ[WITHOUT_DEFINITIONS] = "1"
        server.start_over()
    LOG.info("ready: %d modules imported, %d runs in progress", modules, len(running))
    job = server.serve()
    if job is not None:
        return execute(job, definitions)
    server.end_runs()
    return 0


if __name__ == "__main__":
    sys.exit(main())
