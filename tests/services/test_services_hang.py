"""A service that hangs is seen as one, and hangs no command."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock_platform.components.definitions import DefinitionsError
from penstock_platform.settings import Settings
from penstock_services import stack, status
from penstock_services.catalogue import outline
from penstock_services.errors import ServiceError
from penstock_services.supervisor import ProcessState
from polling import until


def test_a_stopped_process_is_not_ready(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process.send_signal(signal.SIGSTOP)
        seen = psutil.Process(process.pid)
        until("it is stopped", lambda: seen.status() == psutil.STATUS_STOPPED)
        settings = Settings(home=tmp_path)
        entry = next(service for service in outline(settings) if service.name == "daemon")
        state = ProcessState("daemon", "RUNNING", process.pid, "", 0, 0)
        health, text = status._health(settings, entry, state)
        assert health == "not ready"
        assert f"kill -CONT {process.pid}" in text
    finally:
        process.kill()
        process.communicate()


def test_a_call_that_hangs_is_not_waited_for() -> None:
    gate = threading.Event()
    hangs = status.Limited(lambda: gate.wait(600))
    fails = status.Limited(lambda: 1 / 0)
    assert hangs.result(time.monotonic() + 0.05) is None
    with pytest.raises(ZeroDivisionError):
        fails.result(time.monotonic() + 60)
    gate.set()
    assert hangs.result(time.monotonic() + 60) is True


class Running:
    """A supervisor whose code server runs."""

    def __init__(self, _settings: object, pid: int | None = 1) -> None:
        self.pid = pid
        self.applied = 0

    def states(self) -> dict[str, ProcessState]:
        return {"code": ProcessState("code", "RUNNING", self.pid, "", 0, 0)}


def test_up_changes_nothing_when_the_new_definitions_do_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen before: one typo and `penstock up` stopped every topic."""
    said: list[Any] = []

    def broken(_settings: object) -> None:
        raise DefinitionsError(("orders/defs.yaml:5: spec.partitons is not a key here",))

    monkeypatch.setattr(stack, "require_valid", broken)
    settings = Settings(home=tmp_path)
    with pytest.raises(ServiceError, match=r"(?s)defs.yaml:5.*continue.*penstock up"):
        stack._load_first(settings, Running(settings), said.append)  # type: ignore[arg-type]
    assert [progress.phase for progress in said] == ["working"]
    stack._load_first(settings, Running(settings, pid=None), said.append)  # type: ignore[arg-type]
    assert len(said) == 1, "where no definitions run there are none to keep"


def test_up_looks_at_the_definitions_before_it_touches_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path)
    touched: list[str] = []

    def refuse(*_: object) -> None:
        raise ServiceError("they do not load")

    class Answering(Running):
        def running(self) -> bool:
            return True

    monkeypatch.setattr(stack, "_preflight", lambda _settings: None)
    monkeypatch.setattr(stack, "tools", lambda *_: None)
    monkeypatch.setattr(stack, "services", lambda *_: [])
    monkeypatch.setattr(stack, "Supervisor", Answering)
    monkeypatch.setattr(stack, "_load_first", refuse)
    for name in ("write_files", "_check_ports", "_reload_definitions"):
        monkeypatch.setattr(stack, name, lambda *_, name=name: touched.append(name))
    with pytest.raises(ServiceError, match="do not load"):
        stack.up(settings, lambda _progress: None)
    assert touched == []
