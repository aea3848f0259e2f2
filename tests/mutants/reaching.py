"""Which lines of a module each test reaches, learned by tracing one run of them."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest


@dataclass
class Reached:
    """Which lines of the module run while it is imported, and in which test (by its number)."""

    at_import: set[int] = field(default_factory=set)
    by_line: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    seconds: list[float] = field(default_factory=list)

    def tests_of(self, lines: frozenset[int]) -> list[int]:
        """The tests that reach one of the lines, the quickest first."""
        found = set().union(*(self.by_line.get(line, set()) for line in lines))
        return sorted(found, key=lambda number: self.seconds[number])


class Tracer:
    """Collects the lines of one file that run."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.lines: set[int] = set()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def take(self) -> set[int]:
        taken, self.lines = self.lines, set()
        return taken

    def _call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if frame.f_code.co_filename != self._file:
            return None
        return self._line(frame, _event, _argument)

    def _line(self, frame: FrameType, _event: str, _argument: object) -> Any:
        self.lines.add(frame.f_lineno)
        return self._line


class Meter:
    """A pytest plugin that says of each test what lines it reaches and how long it takes.

    What the setting up of a test reaches counts for all tests of its file: they may share it.
    """

    def __init__(self, items: Sequence[Any], tracer: Tracer) -> None:
        self._items, self._tracer = items, tracer
        self.seconds: list[float] = []
        self._lines: list[set[int]] = []
        self._set_up: dict[str, set[int]] = defaultdict(set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        began = time.process_time()
        with self._tracer.running():
            result = yield
        self._lines.append(self._tracer.take())
        self.seconds.append(time.process_time() - began)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: Any) -> Iterator[None]:
        result = yield
        self._set_up[str(item.path)] |= self._tracer.lines
        return result

    def lines_of_tests(self) -> list[list[int]]:
        """By the number of the test."""
        return [
            sorted(lines | self._set_up[str(item.path)])
            for item, lines in zip(self._items, self._lines, strict=True)
        ]
