"""A real broker in a process of its own, for tests: started, killed, started again.

    with BrokerProcess(tmp_path / "data", {"num.partitions": "3"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

The first start takes a free port and every later one the same, so that clients find it again.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

START_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 20.0
_READY = re.compile(rb"ready on (\S+):(\d+)")


class BrokerProcess:
    """``penstock-broker serve`` on a data directory; standard error goes to ``log_path``."""

    def __init__(
        self, data_dir: Path, settings: Mapping[str, str] | None = None, *, host: str = "127.0.0.1"
    ) -> None:
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.host = host
        self.port = 0
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port``, for ``bootstrap.servers``."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Its process id; RuntimeError while it does not run."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    def start(self) -> BrokerProcess:
        """Start it and return when it accepts requests. RuntimeError with its log otherwise."""
        command = [sys.executable, "-m", "penstock_broker", "serve"]
        command += ["--data-dir", str(self.data_dir), "--host", self.host, "--port", str(self.port)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        self._await_ready(self._process)
        return self

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            raise RuntimeError("no standard output")
        deadline = time.monotonic() + START_SECONDS_MAX
        seen = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if not selector.select(0.1):
                    continue
                chunk = os.read(process.stdout.fileno(), 4096)
                seen += chunk
                found = _READY.search(seen)
                if found:
                    self.port = int(found.group(2))
                    return
                if not chunk:
                    break
        self.kill()
        raise RuntimeError(f"the broker did not start: {self.log_path.read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone: what was not written to a file is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        return self._end(signal.SIGTERM)

    def restart(self) -> BrokerProcess:
        """Stop in order and start again."""
        self.stop()
        return self.start()

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            status = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        if process.stdout is not None:
            process.stdout.close()
        return status

    def log(self) -> str:
        """What it has logged so far."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(signal.SIGTERM)
