"""Several works in steps that go together: what they wait for is one step."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from penstock_broker.steps import Commit, Step, in_batches, resume, run, together, work_of

Log = list[str]


def write(log: Log, name: str) -> Callable[[], None]:
    return lambda: log.append(name)


def working(log: Log, name: str, *steps: Step) -> Generator[Step, None, str]:
    try:
        for number, step in enumerate(steps):
            yield step
            log.append(f"{name} continues after {number}")
    except OSError as error:
        return f"{name}: {error}"
    finally:
        log.append(f"{name} ends")
    return name


def test_work_that_several_ask_for_is_done_once() -> None:
    log: Log = []
    shared = write(log, "sync")
    many = [working(log, name, None, Commit(shared)) for name in "ab"]
    assert run(together([*many, working(log, "c")])) == ["a", "b", "c"]
    assert log.count("sync") == 1
    assert log.index("sync") < log.index("a continues after 1") < log.index("b continues after 1")


def test_each_gets_the_error_of_its_own_work() -> None:
    log: Log = []

    def fail() -> None:
        raise OSError("no disk")

    many = [working(log, "a", fail), working(log, "b", write(log, "b"), write(log, "later"))]
    assert run(together(many)) == ["a: no disk", "b"]
    assert "later" in log


def test_what_is_committed_is_followed_up_in_one_step_and_the_rest_given_up() -> None:
    """As its driver does when the client has left: once more after the commit, and then no more."""
    log: Log = []
    many = [
        working(log, "a", Commit(write(log, "a")), None, write(log, "never")),
        working(log, "b", Commit(write(log, "b"))),
        working(log, "c", write(log, "c"), write(log, "never")),
    ]
    steps = together(many)
    step: Any = None
    while step is None:
        step = resume(steps, None)
    assert isinstance(step, Commit)
    work_of(step)()
    resume(steps, None)
    assert [each for each in log if "continues" in each] == [
        "a continues after 0",
        "b continues after 0",
    ]
    steps.close()
    assert {"a ends", "b ends", "c ends"} <= set(log)
    assert "never" not in log


def test_a_bug_in_one_ends_the_others() -> None:
    log: Log = []

    def broken() -> Generator[Step, None, str]:
        yield write(log, "first")
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        run(together([broken(), working(log, "a", None, Commit(write(log, "a")), None)]))
    assert "a ends" in log


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ([], []),
        ([1, 1, 1], [[0, 1, 2]]),
        ([2, 1, 3, 4, 9, 1], [[0, 1], [2], [3], [4], [5]]),
        ([9, 9], [[0], [1]]),
    ],
)
def test_batches_hold_what_they_may(sizes: list[int], found: list[list[int]]) -> None:
    assert [list(places) for places in in_batches(sizes, 3)] == found
