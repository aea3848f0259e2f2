"""Work that is done again and again: flushes, checkpoints, retention, expiry.

Each job is a task that waits on the broker's own timers, so that a test which moves the clock
moves them too. A job that fails says so in the log and is tried again in its turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any

from penstock_broker.clock import Clock, Timers
from penstock_broker.errors import KafkaError
from penstock_broker.steps import End, Made, attempt, step_or_end

_logger = logging.getLogger(__name__)


async def drive(loop: asyncio.AbstractEventLoop, steps: Generator[Any, None, Made]) -> Made:
    """Do all steps (``penstock_broker/steps.py``), what takes long in the loop's threads."""
    error: OSError | None = None
    while not isinstance(step := step_or_end(steps, error), End):
        if step is None:
            error = None
            await asyncio.sleep(0)
        else:
            error = await loop.run_in_executor(None, attempt, step)
    return step.made


class BackgroundJobs:
    """The jobs of one broker, in its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, timers: Timers) -> None:
        self._loop = loop
        self._clock = clock
        self._timers = timers
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, milliseconds: int, job: Callable[[], object]) -> None:
        """Call ``job`` (await it, if it is a coroutine function) so often; 0 or less is never."""
        if milliseconds > 0:
            self._tasks.append(self._loop.create_task(self._repeat(milliseconds / 1000.0, job)))

    async def stop(self) -> None:
        """End them all; what one of them has running in a thread is not waited for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _repeat(self, seconds: float, job: Callable[[], object]) -> None:
        name = job.__name__.strip("_")
        while True:
            await self._sleep(seconds)
            try:
                result = job()
                if asyncio.iscoroutine(result):
                    await result
            except (OSError, KafkaError) as error:
                _logger.error(
                    "%(job)s: %(reason)s", {"event": "job_failed", "job": name, "reason": error}
                )
            except Exception:
                _logger.exception("%(job)s failed", {"event": "job_failed", "job": name})

    async def _sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        timer = self._timers.call_at(self._clock.monotonic() + seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()
