"""Long requests, done a moment at a time.

One request may name thousands of partitions, and one event loop serves everybody. A handler whose
work grows with the request gives it in steps (``api.context.Steps``). Most are done within their
first moment. The others go on in turns, one moment of one request in each turn of the loop, however
many wait, so that they never delay the rest by more than a moment. Meanwhile their connections
are not read from: answers keep their order, and a client has one long request at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from penstock_broker.api.context import Reply, Steps

if TYPE_CHECKING:
    from penstock_broker.server.dispatch import RequestExchange

MOMENT_SECONDS = 0.005
STEPS_BETWEEN_LOOKS = 8
"""Steps done without looking at the clock."""


class LongWorks:
    """The requests that are not done yet; ``handle`` goes on with one."""

    def __init__(self, handle: Callable[[RequestExchange, Any, Steps], None]) -> None:
        self._handle = handle
        self._waiting: deque[tuple[RequestExchange, Any, Steps]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

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
                for _ in range(STEPS_BETWEEN_LOOKS):
                    next(steps)
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

    def _turn(self) -> None:
        exchange, request, steps = self._waiting.popleft()
        connection = exchange.connection
        waiting = len(self._waiting)
        self._handle(exchange, request, steps)
        if len(self._waiting) == waiting:
            connection.let_go()
        if waiting:
            connection.soon(self._turn)
