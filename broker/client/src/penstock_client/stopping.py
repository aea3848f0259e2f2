"""SIGINT and SIGTERM as a request to stop, which long commands look at, and which waits end for.

A handler that raised would raise anywhere, also in a delivery callback under librdkafka. So the
handler only notes the signal, and raises ``Stopped`` in the one place where a process may wait
without an end: reading input (a quiet pipe). A second signal ends the process at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal came while input was read."""


class Stop:
    """Whether to stop. Calling it answers; ``wait`` sleeps, and returns early for a signal.

    ``also``: a further reason to stop, asked at every call.
    """

    def __init__(self, also: Callable[[], bool] = lambda: False) -> None:
        self._also = also
        self._event = threading.Event()
        self._reading = False
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None or self._also()

    @property
    def name(self) -> str:
        """The signal's name, or empty."""
        return signal.Signals(self.signal).name if self.signal is not None else ""

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as shells have it; 0 without one."""
        return 128 + self.signal if self.signal is not None else 0

    def wait(self, seconds: float) -> None:
        self._event.wait(seconds)

    def request(self, signum: int) -> None:
        """Note a signal; raises Stopped where input is being read."""
        if self.signal is not None:  # asked twice: no more waiting for anything
            signal.signal(signum, signal.SIG_DFL)
            signal.raise_signal(signum)
        self.signal = signum
        self._event.set()
        if self._reading:
            raise Stopped

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around a read that may wait without an end. Raises Stopped if a signal came before."""
        self._reading = True
        try:
            if self.signal is not None:
                raise Stopped
            yield
        finally:
            self._reading = False


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """A Stop that SIGINT and SIGTERM request. In the main thread; the handlers are put back."""
    stop = Stop()

    def handle(signum: int, _frame: FrameType | None) -> None:
        stop.request(signum)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {signum: signal.signal(signum, handle) for signum in SIGNALS}
    try:
        yield stop
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
