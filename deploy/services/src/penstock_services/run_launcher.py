"""How runs are started, stopped and looked after.

They are forked from the service ``workers`` (everything imported ahead); where that is not
running, Dagster's own way through the code server is taken.

And a run whose process is gone does not stay "started" forever. The service reports a worker that
dies under it. When both are killed (a machine that went down, ``kill -9`` of the lot) no process is
left to report, the run keeps its place among the concurrent runs, and after a few of those nothing
is launched any more. So Dagster's run monitoring asks here, and the process answers or does not.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psutil
from dagster import DagsterEventType, DagsterRun, Field, StringSource
from dagster._core.errors import DagsterLaunchFailedError
from dagster._core.launcher import (
    CheckRunHealthResult,
    DefaultRunLauncher,
    LaunchRunContext,
    WorkerStatus,
)
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import serialize_value
from dagster._serdes.config_class import ConfigurableClassData

from penstock_services.workers import ask

# The process of a run: "<pid> <start, in seconds since the epoch>". Hidden in the UI by its dot.
WORKER_TAG = ".dagster/penstock_worker"
ASK_SECONDS = 180.0
# The service imports its code again (some seconds) and is asked again.
STALE_SECONDS = 300.0
STALE_PAUSE_SECONDS = 0.1
# A worker reports its process id seconds after it started; a process that is younger than that
# report took over a dead one's id.
CLOCK_SLACK_SECONDS = 5.0
_STARTED = "Started process for run"


class WatchedRunLauncher(DefaultRunLauncher):
    """Runs as forks of the service ``workers``, each known by its process on this machine."""

    def __init__(self, socket: str = "", inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._socket = Path(socket) if socket else None

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {"socket": Field(StringSource, is_required=False, default_value="")}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]
    ) -> Self:
        return cls(inst_data=inst_data, **config_value)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Fork the run; without the service, start it as Dagster does."""
        run = context.dagster_run
        origin = context.job_code_origin
        if self._socket is None or origin is None:
            super().launch_run(context)
            return
        arguments = ExecuteRunArgs(origin, run.run_id, self._instance.get_ref())
        question = {"run_id": run.run_id, "input": serialize_value(arguments)}
        try:
            pid = self._fork(self._socket, question)
        except (FileNotFoundError, ConnectionRefusedError):
            super().launch_run(context)
            return
        except (OSError, ValueError, KeyError) as error:
            # It may have been forked: a second process for the same run would be worse.
            raise DagsterLaunchFailedError(  # type: ignore[no-untyped-call]
                f"The service workers did not say whether it started the run: {error!r}"
            ) from error
        started = _started_at(pid)
        self._instance.add_run_tags(run.run_id, {WORKER_TAG: f"{pid} {started}"})
        self._run_ids.add(run.run_id)

    def terminate(self, run_id: str) -> bool:
        """End a run as cancelled; False when it has ended, or runs elsewhere."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        worker = _tagged(run)
        if worker is None:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        self._instance.report_run_canceling(run)
        if not _is_worker(*worker):
            return False
        os.kill(worker[0], signal.SIGTERM)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        worker = _tagged(run) or self._reported(run)
        if worker is None:
            # Not reported yet: Dagster's timeout for starting runs watches over that.
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        if _is_worker(*worker):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"its process {worker[0]} is gone")

    def _fork(self, socket: Path, question: dict[str, Any]) -> int:
        deadline = time.monotonic() + STALE_SECONDS
        while True:
            answer = ask(socket, question, ASK_SECONDS)
            if not answer.get("stale"):
                return int(answer["pid"])
            if time.monotonic() > deadline:
                raise TimeoutError("its code keeps changing")
            time.sleep(STALE_PAUSE_SECONDS)

    def _reported(self, run: DagsterRun) -> tuple[int, float] | None:
        """Process id and the time of its report, of a run that Dagster started."""
        entries = self._instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT)
        for entry in reversed(entries):
            event = entry.dagster_event
            if event is None or not (event.message or "").startswith(_STARTED):
                continue
            pid = event.engine_event_data.metadata.get("pid")
            if pid is not None:
                return int(str(pid.value)), entry.timestamp
        return None


def _tagged(run: DagsterRun) -> tuple[int, float] | None:
    text = run.tags.get(WORKER_TAG, "")
    pid, _, started = text.partition(" ")
    return (int(pid), float(started)) if started else None


def _started_at(pid: int) -> float:
    """When the process started; 0 when it is gone already, which no living process matches."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def _is_worker(pid: int, known_at: float) -> bool:
    try:
        process = psutil.Process(pid)
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return alive and process.create_time() <= known_at + CLOCK_SLACK_SECONDS
    except psutil.Error:
        return False
