"""Tries the mutants of one module: each in a forked process, with the tests that reach its line.

The tests are collected once. One run of them, traced, says which lines each test reaches. For each
mutant a fork then exchanges the code of the function that it changes and runs the tests that reach
the changed statement, the quickest first, until one fails: some milliseconds. What runs while the
module is imported (constants, classes, defaults) cannot be exchanged: those mutants are imported
again in the module's place, with all tests, which takes seconds each.

No file is changed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.abc
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar

import pytest
from _pytest.main import pytest_runtestloop
from hypothesis import HealthCheck, Phase, settings
from mutations import Mutant
from reaching import Meter, Reached, Tracer
from subjects import Subject, Substitute, changed_functions

T = TypeVar("T")

WALL_SECONDS = 600.0  # for a mutant that waits; one that loops meets its limit of CPU time
MEMORY = 4 << 30  # for a mutant that loops and collects
FEW_EXAMPLES = 25  # of a property; who survives them meets as many as the test asks for
OURS = (
    "penstock_broker",
    "penstock_client",
    "penstock_platform",
    "penstock_pipelines",
    "test_",
    "conftest",
)
OPTIONS = ["-x", "-q", "--tb=native", "--assert=plain", "-o", "addopts=", "-o", "timeout=0"]
# They take half a minute, and find what others find sooner.
OPTIONS += [
    f"--deselect=tests/broker/log/{name}"
    for name in (
        "test_log_compaction.py::test_every_crash_leaves_a_log_with_the_same_table",
        "test_log_compaction.py::test_transactions_are_compacted_as_a_committed_reader_sees_them",
        "test_checkpoint_crashes.py::test_kills_and_power_cuts_find_the_same_with_checkpoints_and_"
        "without",
        "test_checkpoint_crashes.py::test_a_crash_at_each_step_of_a_checkpoint",
    )
]
PLUGINS_LEFT_OUT = ["cacheprovider", "xdist", "timeout", "faulthandler"]
OF_A_PROPERTY = "_hypothesis_internal_use_settings"
KILLED, SURVIVED, APART = "killed", "survived", "apart"


Attempt = tuple[int, list[tuple[CodeType, CodeType]], list[int]]  # mutant, codes, tests


# --- one process with the tests collected


class Bench:
    """A pytest plugin: instead of running the tests once, it tries the mutants one by one.

    ``report`` gets the number of each mutant with ``KILLED``, ``SURVIVED``, or ``APART`` where it
    needs a process of its own.
    """

    def __init__(
        self,
        subject: Subject,
        found: Sequence[Mutant],
        jobs: int,
        report: Callable[[int, str], None],
    ) -> None:
        self._found, self._jobs, self._report = found, jobs, report
        self._file = subject.file
        self._substitute = Substitute(subject, subject.source)
        self._tracer = Tracer(subject.file)
        self._importing = self._tracer.running()
        self._reached = Reached()
        self._functions: dict[int, list[FunctionType]] = defaultdict(list)

    def run(self, tests: Sequence[str]) -> int:
        """Pytest's exit code for the collection, and for the tests with the module as it is."""
        sys.meta_path.insert(0, self._substitute)
        return run_pytest(tests, self)

    def pytest_collection(self) -> None:
        self._importing.__enter__()

    def pytest_collection_finish(self) -> None:
        self._importing.__exit__(None, None, None)
        self._reached.at_import = self._tracer.take()

    def pytest_runtestloop(self, session: Any) -> bool:
        if session.testsfailed or not session.items:
            return True
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename == self._file:
                self._functions[id(thing.__code__)].append(thing)
        before_forks()
        if not self._measure(session):
            session.testsfailed = 1
            return True
        attempts = []
        for number, mutant in enumerate(self._found):
            changed = self._changes(mutant)
            tests = self._reached.tests_of(mutant.lines)
            if changed is None:
                self._report(number, APART)
            elif not tests:
                self._report(number, SURVIVED)
            else:
                attempts.append((number, changed, tests))
        self._try_all(session, attempts)
        return True

    def _try_all(self, session: Any, attempts: Sequence[Attempt]) -> None:
        """With few examples of each property first; what survives them meets all."""
        for examples in (FEW_EXAMPLES, None):
            left = []
            children = (
                (attempt, partial(self._attempt, session, attempt, examples), self._limit(attempt))
                for attempt in attempts
            )
            for attempt, survived in outcomes(children, self._jobs):
                if survived and examples and has_properties(session.items, attempt[2]):
                    left.append(attempt)
                else:
                    self._report(attempt[0], SURVIVED if survived else KILLED)
            attempts = left

    def _limit(self, attempt: Attempt) -> int:
        return int(sum(self._reached.seconds[test] for test in attempt[2])) * 5 + 5

    def _attempt(self, session: Any, attempt: Attempt, examples: int | None) -> int:
        """In a fork: the exit code."""
        _, changed, tests = attempt
        for old, new in changed:
            for function in self._functions[id(old)]:
                function.__code__ = new
        return run_items(session, [session.items[test] for test in tests], examples)

    def _changes(self, mutant: Mutant) -> list[tuple[CodeType, CodeType]] | None:
        if mutant.lines & self._reached.at_import:
            return None
        code = compile(mutant.source, self._file, "exec", dont_inherit=True)
        changed = changed_functions(self._substitute.code, code)
        if changed is None or any(id(old) not in self._functions for old, _ in changed):
            return None
        return changed

    def _measure(self, session: Any) -> bool:
        """Run every test once in a fork; learn what lines each reaches, and what it costs."""
        reader, writer = os.pipe()

        def measured() -> int:
            meter = Meter(session.items, self._tracer)
            session.config.pluginmanager.register(meter)
            code = run_items(session, session.items, FEW_EXAMPLES)
            if code:
                session.config.pluginmanager.get_plugin("terminalreporter").summary_failures()
            with os.fdopen(writer, "w") as out:
                json.dump({"seconds": meter.seconds, "lines": meter.lines_of_tests()}, out)
            return code

        child = fork(measured, 0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        if os.waitpid(child, 0)[1]:
            return False
        answer = json.loads(text)
        self._reached.seconds = answer["seconds"]
        for number, lines in enumerate(answer["lines"]):
            for line in lines:
                self._reached.by_line[line].add(number)
        return True


# --- pytest, and forks


def run_pytest(tests: Sequence[str], plugin: object) -> int:
    left_out = [option for name in PLUGINS_LEFT_OUT for option in ("-p", f"no:{name}")]
    return int(pytest.main([*OPTIONS, *left_out, *tests], plugins=[plugin]))


def run_items(session: Any, items: Sequence[Any], examples: int | None) -> int:
    """Run collected tests until one fails: 0 if none did."""
    set_examples(items, examples)
    session.items[:] = items
    try:
        pytest_runtestloop(session)
    except (session.Failed, session.Interrupted):
        pass
    finally:
        session._setupstate.teardown_exact(None)
    return 1 if session.testsfailed else 0


def set_examples(items: Sequence[Any], most: int | None) -> None:
    """Properties choose the same examples each time, at most so many, and none from a database."""
    for item in items:
        for owner, name in _settings_of(item):
            asked = getattr(owner, name) or settings.default
            examples = min(most, asked.max_examples) if most else asked.max_examples
            changed = settings(
                asked,
                max_examples=examples,
                derandomize=True,
                database=None,
                deadline=None,
                phases=(Phase.explicit, Phase.generate),
                suppress_health_check=list(HealthCheck),
            )
            setattr(owner, name, changed)


def has_properties(items: Sequence[Any], numbers: Sequence[int]) -> bool:
    return any(_settings_of(items[number]) for number in numbers)


def _settings_of(item: Any) -> list[tuple[Any, str]]:
    """Where a property keeps its settings: on its function, or on the class of a state machine."""
    function = getattr(item.obj, "__func__", item.obj)
    if hasattr(function, OF_A_PROPERTY):
        return [(function, OF_A_PROPERTY)]
    if isinstance(getattr(item.cls, "settings", None), settings):
        return [(item.cls, "settings")]
    return []


class Apart:
    """A pytest plugin that runs the tests with few examples of each property, then with all."""

    def __init__(self, examples: int | None) -> None:
        self._examples = examples

    def pytest_collection_finish(self, session: Any) -> None:
        set_examples(session.items, self._examples)


def fork(child: Callable[[], int], cpu_seconds: int, output: str = os.devnull) -> int:
    """Start a process that ends with the child's exit code; its id, which its group has too."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if cpu_seconds:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        code = child()
    finally:
        sys.stdout.flush()
        os._exit(code)


def before_forks() -> None:
    """What each fork would do otherwise: look through all objects, and through all modules."""
    with contextlib.suppress(Exception):
        providers = importlib.import_module("hypothesis.internal.conjecture.providers")
        providers._get_local_constants()  # for examples like the numbers in the code
    gc.collect()
    gc.freeze()


def outcomes(
    children: Iterator[tuple[T, Callable[[], int], int]], jobs: int
) -> Iterator[tuple[T, bool]]:
    """Run children, each within its CPU seconds, so many at once: whether each ended with 0."""
    running: dict[int, tuple[T, float]] = {}
    more = True
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while more or running:
        while more and len(running) < jobs:
            following = next(children, None)
            if following is None:
                more = False
                break
            key, child, limit = following
            running[fork(child, limit)] = (key, time.monotonic())
        for process in list(running):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGKILL)  # what it started and left behind
                yield running.pop(process)[0], status == 0
        if len(running) < jobs and (more or not running):
            continue
        signal.sigtimedwait({signal.SIGCHLD}, 5.0)
        for late, (_, began) in running.items():
            if time.monotonic() - began > WALL_SECONDS:
                os.kill(late, signal.SIGKILL)


# --- all mutants of a module


def survivors_of(subject: Subject, found: Sequence[Mutant], jobs: int) -> Iterator[Mutant]:
    """Those that no test notices. Raises SystemExit if the tests fail with the module as it is."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        os.environ |= {"TMPDIR": scratch, "PYTEST_DEBUG_TEMPROOT": scratch}
        tempfile.tempdir = None
        log = f"{scratch}/output"
        import_others(subject, log)
        reader, writer = os.pipe()

        def bench() -> int:
            os.close(reader)
            with os.fdopen(writer, "w", buffering=1) as pipe:
                tried = Bench(
                    subject, found, jobs, lambda *answer: print(*answer, file=pipe, flush=True)
                )
                return tried.run(subject.tests)

        process = fork(bench, 0, log)
        os.close(writer)
        apart = []
        with os.fdopen(reader) as pipe:
            for line in pipe:
                number, outcome = line.split()
                if outcome == SURVIVED:
                    yield found[int(number)]
                elif outcome == APART:
                    apart.append(found[int(number)])
        _must_end_well(subject, process, log)
        for examples in (FEW_EXAMPLES, None):
            children = ((m, partial(reimported, subject, m, examples), 120) for m in apart)
            apart = [mutant for mutant, survived in outcomes(children, jobs) if survived]
        yield from apart


def reimported(subject: Subject, mutant: Mutant, examples: int | None) -> int:
    """In a fork that has imported nothing of ours: pytest's exit code with the mutant in place."""
    sys.meta_path.insert(0, Substitute(subject, mutant.source))
    return run_pytest(subject.tests, Apart(examples))


def import_others(subject: Subject, log: str) -> None:
    """Import what the tests need and is not ours: once, for all forks to come."""

    def collected() -> int:
        code = run_pytest([*subject.tests, "--collect-only"], object())
        names = [n for n in sys.modules if not n.startswith(OURS) and "/tests/" not in n]
        sys.stdout.write("\nmodules: " + " ".join(names))
        return code

    process = fork(collected, 0, log)
    _must_end_well(subject, process, log)
    for name in Path(log).read_text().rsplit("\nmodules: ", 1)[1].split():
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    before_forks()


def _must_end_well(subject: Subject, process: int, log: str) -> None:
    if os.waitpid(process, 0)[1]:
        text = Path(log).read_text()
        raise SystemExit(f"the tests of {subject.path} fail as it is:\n{text[-3000:]}")
