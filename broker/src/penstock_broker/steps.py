"""Work in steps, so that others have their turn between them: generators, and what they yield.

    None       others may have a turn
    a function to be called in another thread, because it takes long (a disk); the generator
               continues after it, in the event loop, and gets its OSError where it yielded
    a Commit   the same, for what cannot be given up halfway: the generator continues at least to
               its next step even when the client has disconnected

:func:`run` does all of it at once, in the caller's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")
Work = Callable[[], object]
"""May run in any thread. OSError."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Work that has to be followed up."""

    work: Work


Step = Work | Commit | None
PAUSE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class End(Generic[Made]):
    """There are no more steps."""

    made: Made


class OneAtATime:
    """Lets one of several generators through at a time, so that each begins with what the one
    before has left; the others look again a moment later."""

    def __init__(self) -> None:
        self._is_taken = False

    def through(self, steps: Generator[Any, None, Made]) -> Generator[Any, None, Made]:
        """The same steps, when it is their turn."""
        while self._is_taken:
            yield partial(time.sleep, PAUSE_SECONDS)
        self._is_taken = True
        try:
            return (yield from steps)
        finally:
            self._is_taken = False


def work_of(step: Work | Commit) -> Work:
    """The function to be called elsewhere."""
    return step.work if isinstance(step, Commit) else step


def resume(steps: Generator[Any, None, Made], error: BaseException | None) -> Any:
    """Continue after work that ended so; the next step. Raises what the generator raises."""
    return next(steps) if error is None else steps.throw(error)


def step_or_end(steps: Generator[Any, None, Made], error: BaseException | None) -> Step | End[Made]:
    """As :func:`resume`, and what the generator has made when it is at its end."""
    try:
        step: Step = resume(steps, error)
    except StopIteration as end:
        return End(end.value)
    return step


def attempt(step: Work | Commit) -> OSError | None:
    """Do the work of a step, in any thread; what went wrong with it."""
    try:
        work_of(step)()
    except OSError as error:
        return error
    return None


def run(steps: Generator[Any, None, Made]) -> Made:
    """Do all steps at once; what they make."""
    error: OSError | None = None
    while not isinstance(step := step_or_end(steps, error), End):
        error = None if step is None else attempt(step)
    return step.made


def together(many: Sequence[Generator[Any, None, Made]]) -> Generator[Step, None, list[Made]]:
    """Several generators as one; what they make, in their order.

    Each continues until it asks for work; then the work of all is one step, in which what several
    ask for is done once. So changes that would each wait for a write of their own share one.
    """
    made: dict[int, Made] = {}
    asked: dict[int, Work | Commit] = {}

    def note(number: int, step: Step | End[Made]) -> Generator[Step, None, None]:
        while step is None:
            yield None
            step = step_or_end(many[number], None)
        if isinstance(step, End):
            made[number] = step.made
        else:
            asked[number] = step

    try:
        for number, steps in enumerate(many):
            yield from note(number, step_or_end(steps, None))
            yield None
        while asked:
            before, errors = dict(asked), dict[Work, OSError | None]()
            asked.clear()
            yield _one_step(list(before.values()), errors)
            # What is committed is followed up before the rest can be given up.
            following = {
                number: step_or_end(many[number], errors[step.work])
                for number, step in before.items()
                if isinstance(step, Commit)
            }
            for number, step in before.items():
                if number not in following:
                    yield None
                    following[number] = step_or_end(many[number], errors[work_of(step)])
                yield from note(number, following[number])
        return [made[number] for number in range(len(many))]
    finally:
        for steps in many:
            steps.close()


def _one_step(steps: Sequence[Work | Commit], errors: dict[Work, OSError | None]) -> Work | Commit:
    """The work of all of them, each once; what went wrong with each goes into ``errors``."""
    works = dict.fromkeys(work_of(step) for step in steps)

    def do() -> None:
        for work in works:
            errors[work] = attempt(work)

    return Commit(do) if any(isinstance(step, Commit) for step in steps) else do


def in_batches(sizes: Sequence[int], most: int) -> Iterator[range]:
    """Ranges of places whose sizes are no more than ``most`` together; a larger one is alone."""
    begin = total = 0
    for place, size in enumerate(sizes):
        if place > begin and total + size > most:
            yield range(begin, place)
            begin, total = place, 0
        total += size
    if begin < len(sizes):
        yield range(begin, len(sizes))
