"""Long requests, done a moment at a time.

One request may name thousands of partitions, and one event loop serves all clients. A handler whose
work grows with the request gives it in steps (``api.context.Steps``). Most are done within their
first moment. The others continue in turns, one moment of one request in each turn of the loop, so
that any number of them delays other requests by no more than a moment. Meanwhile their connections
are not read from: answers keep their order, and a client has one long request at a time.

A step that gives a function has work that cannot be cut into moments, or waits for the disk, and
touches nothing that the event loop owns: it is run in another thread, and the request continues
after it (``penstock_broker/steps.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Any

from penstock_broker.api.context import Reply, Staged, Steps
from penstock_broker.errors import KafkaError
from penstock_broker.steps import Commit, Work, resume, work_of

if TYPE_CHECKING:
    from penstock_broker.server.exchange import RequestExchange

_logger = logging.getLogger(__name__)

MOMENT_SECONDS = 0.005
THREADS = 8


class LongWorks:
    """The requests that are not done yet; ``handle`` continues with one.

    ``commit`` writes and answers what has been staged: before a request is left for later, and
    after each of its turns.
    """

    def __init__(
        self,
        handle: Callable[[RequestExchange, Any, Steps], None],
        commit: Callable[[], None],
    ) -> None:
        self._handle = handle
        self._commit = commit
        self._pool: ThreadPoolExecutor | None = None
        self._error: BaseException | None = None  # of the work that the next steps asked for
        self._elsewhere = 0  # how many have work in another thread
        self._idle: asyncio.Event | None = None  # set when none has
        self._waiting: deque[tuple[RequestExchange, Any, Steps]] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + self._elsewhere

    def proceed(
        self, exchange: RequestExchange, request: Any, steps: Steps
    ) -> Reply | Staged | None:
        """Do steps for a moment: the reply when that was all, else None, and the rest later.

        Raises what the handler raises.
        """
        if exchange.is_closed:
            steps.close()
            return None
        until = perf_counter() + MOMENT_SECONDS
        error, self._error = self._error, None
        try:
            while True:
                work, error = resume(steps, error), None
                if work is not None:
                    self._commit()
                    exchange.wait_in_line()
                    self._run_elsewhere(exchange, request, steps, work)
                    return None
                if perf_counter() > until:
                    break
        except StopIteration as end:
            reply: Reply | Staged = end.value
            return reply
        self._commit()
        exchange.wait_in_line()
        if not self._waiting:
            exchange.connection.soon(self._turn)
        self._waiting.append((exchange, request, steps))
        return None

    def _run_elsewhere(
        self, exchange: RequestExchange, request: Any, steps: Steps, work: Work | Commit
    ) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="long-work")
        self._elsewhere += 1

        def follow_up(done: asyncio.Future[Any]) -> None:
            self._elsewhere -= 1
            before = len(self)
            if exchange.is_closed:
                _follow_up(done, steps, work)
            elif not done.cancelled():
                self._error = done.exception()
                self._handle(exchange, request, steps)
                self._commit()
            if len(self) == before:
                exchange.connection.unhold()
            if not self._elsewhere and self._idle is not None:
                self._idle.set()

        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._pool, work_of(work)).add_done_callback(follow_up)

    async def finish(self) -> None:
        """Wait for what runs in other threads, and follow it up: the broker is stopping, and has
        closed all connections."""
        if self._elsewhere:
            self._idle = asyncio.Event()
            await self._idle.wait()
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    def _turn(self) -> None:
        exchange, request, steps = self._waiting.popleft()
        connection = exchange.connection
        waiting, unfinished = len(self._waiting), len(self)
        self._handle(exchange, request, steps)
        self._commit()
        if len(self) == unfinished:
            connection.unhold()
        if waiting:
            connection.soon(self._turn)


def _follow_up(done: asyncio.Future[Any], steps: Steps, work: Work | Commit) -> None:
    """The client is gone: what was committed is followed up, and that is the end."""
    if isinstance(work, Commit) and not done.cancelled():
        try:
            resume(steps, done.exception())
        except (StopIteration, KafkaError):
            pass
        except Exception:
            _logger.exception("the work of a closed connection cannot be completed")
    steps.close()
