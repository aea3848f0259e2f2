"""Single services as processes of a test: started, killed, started again on the same port.

The same command lines, files and probes as ``penstock up`` uses, without a supervisor, so that a
test decides itself when what dies comes back.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock_platform.settings import KafkaSettings, S3Settings, Settings, SparkSettings
from penstock_services import catalogue, layout, stack
from penstock_services.catalogue import Service
from penstock_services.probes import PROBES, NotReady

STOP_SECONDS = 120
POLL_SECONDS = 0.1
LOG_TAIL_BYTES = 4000


class ServiceProcess:
    """One service of the catalogue as a process of its own."""

    def __init__(self, settings: Settings, service: Service) -> None:
        self.settings = settings
        self.service = service
        self.log = layout.log_file(settings, service.name)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.service.name} was not started")
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until its probe is content. Raises RuntimeError with its last words."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.service.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.service.environment},
                cwd=self.settings.home,
                start_new_session=True,
            )
        deadline = time.monotonic() + self.service.ready_seconds
        while True:
            try:
                PROBES[self.service.name](self.settings)
                return
            except NotReady as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(
                        f"{self.service.name} does not serve ({error}):\n{self._last_words()}"
                    ) from error
            time.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """kill -9, with whatever it started."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        for signum in (how, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, signum)
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        self._process = None

    def _last_words(self) -> str:
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


class Services:
    """Some of one home's services. ``penstock.toml`` is not read: settings come from the test."""

    def __init__(self, settings: Settings, names: Sequence[str]) -> None:
        self.settings = settings
        found = catalogue.services(settings, stack.tools(settings, lambda _progress: None))
        stack.write_files(settings, found)
        self._processes = {s.name: ServiceProcess(settings, s) for s in found if s.name in names}

    def __getitem__(self, name: str) -> ServiceProcess:
        return self._processes[name]

    @contextmanager
    def running(self) -> Iterator[Services]:
        """Start them all, and stop them all at the end."""
        with ExitStack() as stop:
            for process in self._processes.values():
                stop.callback(process.stop)
                process.start()
                if process.service.name == "s3":
                    _ensure_bucket(self.settings)
            yield self


def settings_on_free_ports(home: Path, bootstrap_servers: str = "") -> Settings:
    """Settings of a home for one test: broker, S3 and Spark on ports that are free now."""
    kafka, s3, spark = free_ports(3)
    return Settings(
        home=home,
        kafka=KafkaSettings(port=kafka, bootstrap_servers=bootstrap_servers),
        s3=S3Settings(port=s3),
        spark=SparkSettings(port=spark),
    )


def free_ports(count: int) -> list[int]:
    """Ports that are free at this moment, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _ensure_bucket(settings: Settings) -> None:
    from penstock_platform.archive.store import S3Archive  # noqa: PLC0415

    S3Archive(settings).ensure_bucket()
