"""Long requests, done a moment at a time.

One request may name thousands of partitions, and one event loop serves everybody. A handler whose
work grows with the request gives it in steps (``api.context.Steps``). Most are done within their
first moment. The others go on in turns, one moment of one request in each turn of the loop, however
many wait, so that they never delay the rest by more than a moment. Meanwhile their connections
are not read from: answers keep their order, and a client has one long request at a time.

A step that gives a function has work that cannot be cut into moments, and touches nothing that
the event loop owns: it is run in another thread, and the request goes on after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Any

from penstock_broker.api.context import Reply, Steps

if TYPE_CHECKING:
    from penstock_broker.server.dispatch import RequestExchange

MOMENT_SECONDS = 0.005
THREADS = 2


class LongWorks:
    """The requests that are not done yet; ``handle`` goes on with one."""

    def __init__(self, handle: Callable[[RequestExchange, Any, Steps], None]) -> None:
        self._handle = handle
        self._pool: ThreadPoolExecutor | None = None
        self._elsewhere = 0  # how many have work in another thread
        self._waiting: deque[tuple[RequestExchange, Any, Steps]] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + self._elsewhere

    def go_on(self, exchange: RequestExchange, request: Any, steps: Steps) -> Reply | None:
        """Do steps for a moment: the reply when that was all, else None, and the rest later.

        Raises what the handler raises.
        """
        if exchange.is_closed:
            steps.close()
            return None
        until = perf_counter() + MOMENT_SECONDS
        try:
            while True:
                work = next(steps)
                if work is not None:
                    exchange.wait_in_line()
                    self._run_elsewhere(exchange, request, steps, work)
                    return None
                if perf_counter() > until:
                    break
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        exchange.wait_in_line()
        if not self._waiting:
            exchange.connection.soon(self._turn)
        self._waiting.append((exchange, request, steps))
        return None

    def _run_elsewhere(
        self, exchange: RequestExchange, request: Any, steps: Steps, work: Callable[[], None]
    ) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="long-work")
        self._elsewhere += 1

        def go_on(done: asyncio.Future[None]) -> None:
            self._elsewhere -= 1
            before = len(self)
            if not done.cancelled():
                self._handle(exchange, request, _after(done, steps))
            if len(self) == before:
                exchange.connection.let_go()

        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._pool, work).add_done_callback(go_on)

    def _turn(self) -> None:
        exchange, request, steps = self._waiting.popleft()
        connection = exchange.connection
        waiting, unfinished = len(self._waiting), len(self)
        self._handle(exchange, request, steps)
        if len(self) == unfinished:
            connection.let_go()
        if waiting:
            connection.soon(self._turn)


def _after(done: asyncio.Future[None], steps: Steps) -> Steps:
    """The steps that are left. Work that raises is a bug: nothing is left then."""
    error = done.exception()
    if error is not None:
        steps.close()
        raise error
    return (yield from steps)
