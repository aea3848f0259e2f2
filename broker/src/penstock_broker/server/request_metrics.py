"""What is counted of requests: how many, how long, and which errors their answers carry.

Small requests come by the hundred in one read event, and looking at a clock costs as much as the
rest of the counting. So requests of one kind that follow each other are timed together, as a *run*:
one reading of the clock at its beginning and one at its end, and each gets its share. A read event
ends a run, so waiting between events is never counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from penstock_broker.errors import ErrorCode
from penstock_broker.metrics import Counter, Histogram, Metrics
from penstock_broker.wire.fields import ArrayOf, Struct, StructType

_ERROR_FIELD = "error_code"


class RequestMetrics:
    """The counters of one (API, version), made when the first request comes; the histograms are
    shared by all versions."""

    __slots__ = ("_errors", "_local", "_metrics", "_name", "_requests", "_version")

    def __init__(self, metrics: Metrics, name: str, version: int) -> None:
        self._metrics = metrics
        self._name = name
        self._version = version
        self._requests: Counter | None = None
        self._local: Histogram | None = None
        self._errors: dict[int, Counter] = {}

    def count(self, requests: int, seconds: float) -> None:
        """So many requests were looked at, in so many seconds altogether."""
        if self._requests is None or self._local is None:
            self._requests = self._metrics.requests.labels(self._name, str(self._version))
            self._local = self._metrics.local_seconds.labels(self._name)
        self._requests.value += requests
        self._local.observe_many(seconds / requests, requests)

    def count_wait(self, seconds: float) -> None:
        """A request was answered after it had waited for so long."""
        self._metrics.remote_seconds.labels(self._name).observe(seconds)

    def count_errors(self, response: Struct) -> None:
        """Count every error code that an answer carries."""
        find = _finder(type(response))
        if find is not None:
            for code in find(response):
                self.count_error(code)

    def count_error(self, code: int) -> None:
        """Count one error."""
        counter = self._errors.get(code)
        if counter is None:
            name = _NAMES.get(code, str(code))
            counter = self._errors[code] = self._metrics.request_errors.labels(self._name, name)
        counter.value += 1


class RequestClock:
    """Times requests in runs (see above). One per dispatcher."""

    __slots__ = ("_length", "_running", "_since")

    def __init__(self) -> None:
        self._running: RequestMetrics | None = None
        self._length = 0
        self._since = 0.0

    def begin(self, kind: RequestMetrics, requests: int = 1) -> None:
        """A request of this kind is being looked at; with 0 :meth:`add` says how many."""
        if kind is not self._running:
            self._turn(kind)
        self._length += requests

    def add(self, requests: int) -> None:
        """So many more of the kind that is being looked at."""
        self._length += requests

    def rest(self) -> None:
        """There are no more requests: the read event is over."""
        if self._running is not None:
            self._turn(None)

    def _turn(self, kind: RequestMetrics | None) -> None:
        now = perf_counter()
        running, length = self._running, self._length
        if running is not None and length:
            running.count(length, now - self._since)
        self._running, self._length, self._since = kind, 0, now


_NAMES = {int(code): code.name for code in ErrorCode}

Finder = Callable[[Any], Iterator[int]]
_finders: dict[type[Struct], Finder | None] = {}


def _finder(cls: type[Struct]) -> Finder | None:
    """Yields the error codes (not 0) of a message of this class, wherever they are in it."""
    if cls not in _finders:
        _finders[cls] = _make_finder(cls)
    return _finders[cls]


def _make_finder(cls: StructType) -> Finder | None:
    has_own = any(field.name == _ERROR_FIELD for field in cls.fields)
    nested: list[tuple[str, bool, Finder]] = []
    for field in cls.fields:
        is_array = isinstance(field.type, ArrayOf)
        kind = field.type.element if isinstance(field.type, ArrayOf) else field.type
        finder = _make_finder(kind) if isinstance(kind, StructType) else None
        if finder is not None:
            nested.append((field.name, is_array, finder))
    if not nested:
        return _own_code if has_own else None

    def find(message: Any) -> Iterator[int]:
        if has_own and message.error_code:
            yield message.error_code
        for name, is_array, finder in nested:
            value = getattr(message, name)
            if value is None:
                continue
            if not is_array:
                yield from finder(value)
            elif finder is _own_code:
                yield from [item.error_code for item in value if item.error_code]
            else:
                for item in value:
                    yield from finder(item)

    return find


def _own_code(message: Any) -> Iterator[int]:
    if message.error_code:
        yield message.error_code
