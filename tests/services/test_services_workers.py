"""The service that forks runs: its protocol, its renewal, and how it reads deaths."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_services import catalogue, workers
from penstock_services.workers import Job, WorkerServer, ask, listen


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pw") as short:  # a socket's path is bounded
        yield Path(short) / "w.sock"


@pytest.fixture
def server(path: Path) -> Iterator[WorkerServer]:
    with listen(path) as listener:
        yield WorkerServer(listener, {})


def accept_while(server: WorkerServer, question: object) -> tuple[Job | None, list[bytes]]:
    """The server's view of one connection, and what its client received."""
    received: list[bytes] = []

    def asker() -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(server._listener.getsockname())
            data = question if isinstance(question, bytes) else json.dumps(question).encode()
            connection.sendall(data + b"\n")
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(4096):
                received.append(part)

    thread = threading.Thread(target=asker)
    thread.start()
    job = server._accept()
    thread.join(10)
    return job, received


def test_ping(server: WorkerServer) -> None:
    job, received = accept_while(server, {"ping": True})
    assert job is None
    assert json.loads(b"".join(received)) == {"ready": True, "running": 0}


@pytest.mark.parametrize("question", [b"not json", b"", {"run_id": "x"}, b"[]", b"17"])
def test_a_question_that_makes_no_sense_is_hung_up_on(
    server: WorkerServer, question: object
) -> None:
    job, received = accept_while(server, question)
    assert job is None
    assert received == []
    assert accept_while(server, {"ping": True})[1], "it serves on"


def test_changed_code_is_reloaded_with_socket_and_children_kept(
    server: WorkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Replaced(BaseException):
        pass

    seen: list[list[str]] = []

    def execv(_program: str, arguments: list[str]) -> None:
        seen.append(arguments)
        raise Replaced

    server._running[4711] = Job("run", "input")
    monkeypatch.setattr(workers, "code_signature", lambda: (1, 2, 3))
    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.delenv("PENSTOCK_WORKERS_RUNNING", raising=False)
    with pytest.raises(Replaced):
        accept_while(server, {"run_id": "new", "input": "…"})
    assert seen[0][-2:] == ["--listener", str(server._listener.fileno())]
    assert os.get_inheritable(server._listener.fileno())
    assert json.loads(os.environ.pop("PENSTOCK_WORKERS_RUNNING")) == {"4711": ["run", "input"]}


def test_the_process_takes_over_a_listener_and_leaves_on_sigterm(path: Path) -> None:
    with listen(path) as listener:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "penstock_services.workers"),
                *("--listener", str(listener.fileno())),
            ],
            pass_fds=[listener.fileno()],
            env=os.environ | catalogue.WITHOUT_THREADS,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ask(path, {"ping": True}, 600)["ready"], "asked before it was ready, answered after"
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert process.stderr is not None
    assert "threads are running" not in process.stderr.read()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(0)", ""),
        ("raise SystemExit(3)", "left with code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
    ],
)
def test_deaths_in_words(code: str, words: str) -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status = os.waitpid(pid, 0)
    said = workers._death(pid, status)
    assert (words in said) if words else said == ""


def test_a_report_that_fails_is_tried_again_three_times(
    server: WorkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run would count as starting until Dagster's timeout, and keep its place meanwhile."""
    reports: list[Job] = []

    def fork(job: Job) -> int:
        reports.append(job)
        return begin(job)

    def begin(job: Job) -> int:
        pid = os.posix_spawn("/bin/false", ["false"], os.environ)
        server._running[pid] = job
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return pid

    monkeypatch.setattr(server, "_fork", fork)
    pid = begin(Job("run", "arguments"))
    assert server._reap() is None
    died = f"its process {pid} left with code 1"
    assert reports == [Job("run", "arguments", died, number) for number in (1, 2, 3)]
    assert not server._running


def test_the_socket_is_the_owners(server: WorkerServer, path: Path) -> None:
    assert path.stat().st_mode & 0o077 == 0
