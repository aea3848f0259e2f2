"""One sync for all appends that wait for one.

A log that asks for a sync has it begun at once, in another thread; what is appended while that is
under way shares the next. So with ``flush.messages=1`` a hundred producers that wait for the disk
wait for two syncs at most, not for a hundred, and the event loop for none.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock_broker.log.flushing import FlushJob
from penstock_broker.log.log import Log

Done = Callable[[OSError | None], None]


def run_at_once(job: FlushJob, done: Done) -> None:
    """Sync in the caller's thread."""
    try:
        job.run()
    except OSError as error:
        done(error)
    else:
        done(None)


class GroupFlush:
    """The syncs under way, at most one for each log. Owned by the event loop."""

    def __init__(self) -> None:
        self.submit: Callable[[FlushJob, Done], None] = run_at_once
        """Runs a job, and calls back in the event loop's thread; here and now unless replaced."""
        self._running: set[Log] = set()

    def request(self, log: Log) -> None:
        """Have the log synced up to its end, soon."""
        if log in self._running:
            return
        job = log.flush_job()
        if job is None:
            return
        self._running.add(log)
        self.submit(job, lambda error: self._done(job, error))

    def _done(self, job: FlushJob, error: OSError | None) -> None:
        log = job.log
        self._running.discard(log)
        if error is not None:
            log.fail(f"cannot sync: {error}")
            return
        log.flushed(job)
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self.request(log)
