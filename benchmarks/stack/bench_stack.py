"""What one minute of the demo costs: processor seconds by process, and when windows are decided.

    python benchmarks/stack/bench_stack.py [--rate 5000]

Runs ``penstock-demo`` in a state directory of its own, on free ports, and adds up the processor
time of each service with all of its children, those that have ended included. Between the first
record and the end of the demo; what starting the services cost is its own column. Processor
seconds depend on the machine, so compare two versions on one machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil
from dagster import DagsterInstance

from penstock_platform.settings import Settings
from penstock_services.run_launcher import WORKER_TAG
from penstock_services.testing.services import free_ports

PORTS = ("KAFKA_PORT", "S3_PORT", "SPARK_PORT", "DAGSTER_PORT", "DAGSTER_CODE_SERVER_PORT")
SAMPLE_SECONDS = 0.5
PRODUCER = "producer"


class Meter:
    """Processor seconds by service, sampled: a process counts with what it had when last seen,
    and with the children that it has waited for."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._known: dict[int, tuple[psutil.Process, str]] = {}
        self.seconds: dict[int, float] = {}
        self.service_of: dict[int, str] = {}

    def sample(self) -> None:
        for process in psutil.process_iter():
            if process.pid not in self._known:
                service = self._service(process)
                if service is None:
                    continue
                self._known[process.pid] = (process, service)
                self.service_of[process.pid] = service
        for pid, (process, _) in self._known.items():
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            self.seconds[pid] = times.user + times.system

    def by_service(self) -> dict[str, float]:
        total: dict[str, float] = defaultdict(float)
        for pid, seconds in self.seconds.items():
            total[self.service_of[pid]] += seconds
        return dict(total)

    def _service(self, process: psutil.Process) -> str | None:
        try:
            environment = process.environ()
            command = process.cmdline()
        except psutil.Error:
            return None
        if environment.get("PENSTOCK_HOME") != self._home:
            return None
        if any("demo.producers" in part for part in command):
            return PRODUCER
        return environment.get("PENSTOCK_SERVICE") or "demo and its commands"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=5000.0, help="records a second")
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / ".penstock"
        ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        env = {**os.environ, "CI": "true", "PENSTOCK_HOME": str(home)}
        env |= {f"PENSTOCK_{name}": port for name, port in ports.items()}
        demo = Path(sys.executable).with_name("penstock-demo")
        command = [str(demo), "--rate", str(options.rate)]
        meter = Meter(home)
        process = subprocess.Popen(command, env=env, cwd=directory, stdin=subprocess.DEVNULL)
        start: dict[str, float] = {}
        began = 0.0
        while process.poll() is None:
            meter.sample()
            if not began and meter.by_service().get(PRODUCER):
                start, began = meter.by_service(), time.monotonic()
            time.sleep(SAMPLE_SECONDS)
        minutes = (time.monotonic() - began) / 60
        report(meter, start, minutes)
        runs = runs_by_job(meter, Settings.load(home))
        report_runs(runs, minutes)
        if options.output:
            figures = {"minutes": minutes, "start": start, "end": meter.by_service(), "runs": runs}
            options.output.write_text(json.dumps(figures, indent=2))
    return process.returncode


def report(meter: Meter, start: dict[str, float], minutes: float) -> None:
    print(f"\n{'process':<24} {'to start, s':>12} {'a minute, s':>12}   ({minutes:.1f} minutes)")
    total = 0.0
    for service, seconds in sorted(meter.by_service().items(), key=lambda item: -item[1]):
        each = (seconds - start.get(service, 0.0)) / minutes
        total += each
        print(f"{service:<24} {start.get(service, 0.0):>12.1f} {each:>12.1f}")
    print(f"{'all':<24} {sum(start.values()):>12.1f} {total:>12.1f}")


def runs_by_job(meter: Meter, settings: Settings) -> dict[str, list[float]]:
    """Processor seconds of each run's process, by job."""
    found: dict[str, list[float]] = defaultdict(list)
    with DagsterInstance.from_config(str(settings.dagster_home)) as instance:
        for record in instance.get_run_records():
            pid = record.dagster_run.tags.get(WORKER_TAG, "").partition(" ")[0]
            if pid and int(pid) in meter.seconds:
                found[record.dagster_run.job_name].append(meter.seconds[int(pid)])
    return dict(found)


def report_runs(runs: dict[str, list[float]], minutes: float) -> None:
    print(f"\n{'job':<24} {'runs':>6} {'each, s':>9} {'a minute, s':>12}")
    for job, seconds in sorted(runs.items(), key=lambda item: -sum(item[1])):
        each = sum(seconds) / len(seconds)
        print(f"{job:<24} {len(seconds):>6} {each:>9.2f} {sum(seconds) / minutes:>12.1f}")


if __name__ == "__main__":
    sys.exit(main())
