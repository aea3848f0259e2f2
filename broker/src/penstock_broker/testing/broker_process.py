"""A real broker in a process of its own, for tests: started, killed, started again.

    with BrokerProcess(tmp_path / "data", {"num.partitions": "3"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

The first start takes a free port and every later one the same, so that clients find it again. It
ends with the process that started it, however that ends.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock_broker.testing.faults import Faults
from penstock_broker.testing.handle import BrokerHandle

# Against hanging: a machine with other work takes long to start a Python.
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 120.0
ANSWER_SECONDS_MAX = 120.0
_READY = re.compile(rb"ready on (\S+):(\d+)\n")


class BrokerProcess(BrokerHandle):
    """A broker process on a data directory; what it logs goes to ``log_path``."""

    def __init__(
        self, data_dir: Path, settings: Mapping[str, str] | None = None, *, host: str = "127.0.0.1"
    ) -> None:
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.host = host
        self.port = 0
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self.faults = Faults(self._command)
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""

    @property
    def pid(self) -> int:
        """Its process id; RuntimeError while it does not run."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether it has been started and not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> BrokerProcess:
        """Start it and return when it accepts requests. RuntimeError with its log otherwise."""
        command = [sys.executable, "-m", "penstock_broker.testing.controlled"]
        command += ["--data-dir", str(self.data_dir), "--host", self.host, "--port", str(self.port)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._received = b""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        line = self._read_line(self._process, START_SECONDS_MAX)
        found = _READY.search(line)
        if found is None:
            self.kill()
            raise RuntimeError(f"the broker did not start: {self.log()[-2000:]}")
        self.port = int(found.group(2))
        return self

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone: what was not written to a file is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        self.thaw()
        return self._end(signal.SIGTERM)

    def freeze(self) -> None:
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.is_running:
            self._running().send_signal(signal.SIGCONT)

    def log(self) -> str:
        """What it has logged so far."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    # -- its process -------------------------------------------------------------------------

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process

    def _read_line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        """The next line of its standard output; what there is when that ends, or takes too long."""
        if process.stdout is None:
            raise RuntimeError("no standard output")
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._received and time.monotonic() < deadline:
                if not selector.select(0.1):
                    continue
                chunk = os.read(process.stdout.fileno(), 65_536)
                if not chunk:
                    break
                self._received += chunk
        line, end, self._received = self._received.partition(b"\n")
        return line + end

    def _command(self, command: dict[str, Any]) -> Any:
        process = self._running()
        if process.stdin is None:
            raise RuntimeError("no standard input")
        process.stdin.write(json.dumps(command).encode() + b"\n")
        process.stdin.flush()
        line = self._read_line(process, ANSWER_SECONDS_MAX)
        if not line.endswith(b"\n"):
            raise RuntimeError(f"the broker does not answer: {self.log()[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["result"]

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
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return status
