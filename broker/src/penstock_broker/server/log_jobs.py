"""What is done for the logs in the background: syncs, checkpoints, retention, compaction.

The event loop decides and renames; whatever touches the disk for long runs in threads, and a
compaction in a process of its own.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from penstock_broker.clock import Clock
from penstock_broker.config import BrokerConfig
from penstock_broker.log.cleaner import LogCleaner
from penstock_broker.log.compaction_worker import make_worker
from penstock_broker.log.files import ColdReadError, Files, not_waiting
from penstock_broker.log.flushing import FlushJob
from penstock_broker.log.group_flush import Done
from penstock_broker.log.manager import LogManager
from penstock_broker.metrics import Metrics
from penstock_broker.server.background import BackgroundJobs, drive

_logger = logging.getLogger(__name__)

FLUSH_THREADS = 8
"""Syncs under way at a time for appends that wait for them."""
PRODUCER_EXPIRY_CHECK_MS = 600_000
TRASH_CHECK_MS = 1_000
VANISHED_CHECK_MS = 10_000
CHECKPOINT_CHECK_MS = 3_000
"""How often logs are looked at that a start after a kill would read too much of."""
CHECKPOINTS_AT_MOST = 16
"""Of them, at each look."""
OPEN_FILES_LEAST = 64
_SLICE_SECONDS = 0.005


class LogJobs:
    """The background work on the logs of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        *,
        clock: Clock,
        files: Files,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._logs = logs
        self._metrics = metrics
        self._loop = loop
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The rest of the descriptors is for connections.
        logs.open_files.most = max(OPEN_FILES_LEAST, soft // 2)
        self._pool = ThreadPoolExecutor(FLUSH_THREADS, "penstock-flush")
        self._cleaner_pool = ThreadPoolExecutor(1, "penstock-cleaner")
        logs.group_flush.submit = self._submit
        self.cleaner = LogCleaner(
            logs.logs,
            clock,
            metrics,
            in_thread=self._in_cleaner_thread,
            make_worker=lambda: make_worker(files),
            map_bytes=config.log_cleaner_dedupe_buffer_size,
        )

    def use_config(self, config: BrokerConfig) -> None:
        """The broker's settings have changed."""
        self._config = config

    def start(self, jobs: BackgroundJobs) -> None:
        """Begin. From now on the event loop's thread owns the logs."""
        self._logs.own_files()
        config = self._config
        for every_ms, job in (
            (config.log_flush_scheduler_interval_ms, self._flush),
            (config.log_flush_offset_checkpoint_interval_ms, self._checkpoint),
            (CHECKPOINT_CHECK_MS, self._checkpoint_segments),
            (config.log_retention_check_interval_ms, self._enforce_retention),
            (config.log_cleaner_backoff_ms if config.log_cleaner_enable else 0, self._compact),
            (TRASH_CHECK_MS, self._empty_trash),
            (VANISHED_CHECK_MS, self._look_for_vanished),
            (PRODUCER_EXPIRY_CHECK_MS, self._expire_producers),
        ):
            jobs.every(every_ms, job)

    def stop(self) -> None:
        """End what runs elsewhere. Syncs under way are waited for."""
        self.cleaner.stop()
        self._cleaner_pool.shutdown()
        self._pool.shutdown()

    # -- syncs -------------------------------------------------------------------------------

    def _submit(self, job: FlushJob, done: Done) -> None:
        """For appends that wait: see ``log/group_flush.py``."""

        def run() -> None:
            began = time.monotonic()
            error: OSError | None = None
            try:
                job.run()
            except OSError as problem:
                error = problem
            seconds = time.monotonic() - began
            self._loop.call_soon_threadsafe(self._synced, done, error, seconds)

        self._pool.submit(run)

    def _synced(self, done: Done, error: OSError | None, seconds: float) -> None:
        self._metrics.flush_seconds.observe(seconds)
        done(error)

    async def _flush(self) -> None:
        """Sync what flush.ms asks for, and closed segments; a start then need not check them."""
        jobs = self._logs.flush_jobs()
        if jobs:
            await self._run(jobs)
            await self._checkpoint()

    async def _checkpoint_segments(self) -> None:
        """Sync the logs of which a start after a kill would read the most, with checkpoints."""
        logs = self._logs.far_behind(CHECKPOINTS_AT_MOST)
        for log in logs:  # one at a time: each copies its indexes, in this thread
            job = log.flush_job(with_checkpoint=True)
            if job is not None:
                await self._run([job])
        if logs:
            await self._checkpoint()

    async def _run(self, jobs: Sequence[FlushJob]) -> None:
        errors = await self._loop.run_in_executor(None, _run_jobs, jobs)
        for job, error in zip(jobs, errors, strict=True):
            if error is None:
                job.log.flushed(job)
            else:
                job.log.fail(f"cannot sync: {error}")

    async def _checkpoint(self) -> None:
        await self._loop.run_in_executor(None, self._logs.checkpoint_job())

    # -- what goes -----------------------------------------------------------------------------

    async def _enforce_retention(self) -> None:
        """In slices: the first look at a closed segment reads its index, in a thread if need be."""
        logs = list(self._logs.logs())
        while logs:
            end = self._loop.time() + _SLICE_SECONDS
            some = []
            while logs and self._loop.time() < end:
                try:
                    with not_waiting():
                        if self._logs.retention.wants(logs[-1]):
                            some.append(logs[-1])
                except ColdReadError as cold:
                    await self._loop.run_in_executor(None, _prefetch, cold)
                else:
                    logs.pop()
            await drive(self._loop, self._logs.retention.enforcing(some))
            await asyncio.sleep(0)

    def _empty_trash(self) -> None:
        self._logs.empty_trash()

    async def _look_for_vanished(self) -> None:
        vanished = await self._loop.run_in_executor(None, self._logs.vanished)
        self._logs.fail_vanished(vanished)

    async def _compact(self) -> None:
        await self.cleaner.clean_all()

    def _expire_producers(self) -> None:
        self._logs.expire_producers(self._config.producer_id_expiration_ms)

    async def _in_cleaner_thread(self, job: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self._cleaner_pool, job)


def _prefetch(cold: ColdReadError) -> None:
    with suppress(OSError):  # the read in the event loop reports what is wrong
        cold.prefetch()


def _run_jobs(jobs: Sequence[FlushJob]) -> list[OSError | None]:
    """Run them; what was wrong with each."""
    errors: list[OSError | None] = []
    for job in jobs:
        try:
            job.run()
        except OSError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors
