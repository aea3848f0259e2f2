"""The demo's producer processes: started, killed without warning, started again, ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STOP_SECONDS = (
    900.0  # against hanging: a producer that is killed claims nothing of its last records
)


@dataclass(frozen=True, slots=True)
class Role:
    """One producer: ``kind`` of data, records a second, and the row with which it begins."""

    name: str
    kind: str
    rate: float
    first_row: int = 0


@dataclass(slots=True)
class _Member:
    role: Role
    process: subprocess.Popen[bytes]
    log: Path


@dataclass(slots=True)
class ProducerProcesses:
    """Producer processes by the name of their role; each writes its progress to its own log."""

    bootstrap_servers: str
    directory: Path
    members: dict[str, _Member] = field(default_factory=dict)

    def start(self, role: Role) -> int:
        """Start (or start again) a producer where it left off; its process id."""
        self.directory.mkdir(parents=True, exist_ok=True)
        log = self.directory / f"{role.name}.log"
        command = [
            *(sys.executable, "-m", "penstock_pipelines.demo.producers", role.kind),
            *("--bootstrap-servers", self.bootstrap_servers),
            *("--rate", str(role.rate), "--offset", str(role.first_row)),
            *("--cursor-file", str(self.directory / f"{role.name}.cursor")),
            *("--report-seconds", "1"),
        ]
        with log.open("ab") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        self.members[role.name] = _Member(role, process, log)
        return process.pid

    def kill(self, name: str) -> None:
        """kill -9: no flush, no last monitoring event."""
        member = self.members[name]
        member.process.kill()
        member.process.wait()

    def ended(self) -> list[str]:
        """Roles whose process has ended."""
        return [name for name, m in self.members.items() if m.process.poll() is not None]

    def last_output(self, name: str) -> str:
        """The end of a producer's log, for the message about its failure."""
        return self.members[name].log.read_text(errors="replace")[-500:].strip()

    def sent(self) -> int:
        """Records sent so far, as the running producers last reported."""
        return sum(_last_progress(m.log).get("sent", 0) for m in self.members.values())

    def incarnation(self, name: str) -> str:
        """The audited producer's id, as its process last reported."""
        return str(_last_progress(self.members[name].log).get("incarnation", ""))

    def stop(self, names: Sequence[str] | None = None) -> None:
        """End producers cleanly: what is queued is delivered, the last event sent."""
        members = [self.members[n] for n in (self.members if names is None else names)]
        for member in members:
            if member.process.poll() is None:
                member.process.terminate()
        for member in members:
            try:
                member.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()


def _last_progress(log: Path) -> dict[str, Any]:
    """The newest whole line of JSON in a producer's log."""
    for line in reversed(log.read_text(errors="replace").splitlines()):
        if line.startswith("{"):
            try:
                found: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            return found
    return {}
