"""How tests wait: until something holds. The deadline guards against hanging and asserts no speed.

The only module of the tests that sleeps (``test_tidy.py`` sees to it).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE_SECONDS = 120.0
PAUSE_SECONDS = 0.01

T = TypeVar("T")


def until(
    awaited: str,
    holds: Callable[[], T],
    *,
    seconds: float = DEADLINE_SECONDS,
    pause: float = PAUSE_SECONDS,
    ignoring: tuple[type[Exception], ...] = (),
) -> T:
    """The first true answer of ``holds``, asked every ``pause`` seconds. An exception of
    ``ignoring`` counts as a false answer.

    Fails after ``seconds`` with what was awaited (``awaited``, a clause) and the last answer.
    """
    attempt = _Attempt(awaited, holds, seconds, ignoring)
    while not attempt.answer():
        time.sleep(pause)
    return attempt.last  # type: ignore[return-value]


async def until_async(
    awaited: str, holds: Callable[[], T], *, seconds: float = DEADLINE_SECONDS
) -> T:
    """As :func:`until`, while the loop continues."""
    attempt = _Attempt(awaited, holds, seconds, ())
    while not attempt.answer():
        await asyncio.sleep(PAUSE_SECONDS)
    return attempt.last  # type: ignore[return-value]


class _Attempt:
    def __init__(
        self,
        awaited: str,
        holds: Callable[[], object],
        seconds: float,
        ignoring: tuple[type[Exception], ...],
    ) -> None:
        self._awaited = awaited
        self._holds = holds
        self._seconds = seconds
        self._ignoring = ignoring
        self._began = time.monotonic()
        self.last: object = None

    def answer(self) -> bool:
        """Whether it holds now; fails when the time is over and it does not."""
        try:
            self.last = self._holds()
            if self.last:
                return True
        except self._ignoring as error:
            self.last = error
        if time.monotonic() - self._began > self._seconds:
            raise AssertionError(
                f"not within {self._seconds:.0f} s: {self._awaited}; last: {self.last!r}"
            )
        return False
