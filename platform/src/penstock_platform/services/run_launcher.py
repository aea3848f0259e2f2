"""Dagster's launcher, with eyes: a run whose process is gone does not stay "started" for ever.

The code server itself reports a worker that dies under it. When both are killed (a machine that
went down, ``kill -9`` of the lot) nobody is left to report, the run keeps its place among the
concurrent runs, and after a few of those nothing is launched any more. So Dagster's run
monitoring asks here, and the worker's process answers or does not.
"""

from __future__ import annotations

import psutil
from dagster import DagsterEventType, DagsterRun
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus

# A worker reports its process id seconds after it started; a process that is younger than that
# report took over a dead one's id.
CLOCK_SLACK_SECONDS = 5.0
_STARTED = "Started process for run"


class WatchedRunLauncher(DefaultRunLauncher):
    """``DefaultRunLauncher`` that can say whether a run's process is alive on this machine."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        worker = self._worker(run)
        if worker is None:
            # Not reported yet: Dagster's timeout for starting runs watches over that.
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        pid, reported_at = worker
        if _is_worker(pid, reported_at):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"its process {pid} is gone")

    def _worker(self, run: DagsterRun) -> tuple[int, float] | None:
        """Process id and time of the report, in seconds since the epoch."""
        entries = self._instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT)
        for entry in reversed(entries):
            event = entry.dagster_event
            if event is None or not (event.message or "").startswith(_STARTED):
                continue
            pid = event.engine_event_data.metadata.get("pid")
            if pid is not None:
                return int(str(pid.value)), entry.timestamp
        return None


def _is_worker(pid: int, reported_at: float) -> bool:
    try:
        process = psutil.Process(pid)
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return alive and process.create_time() <= reported_at + CLOCK_SLACK_SECONDS
    except psutil.Error:
        return False
