"""A value that is kept in a file, written by threads, so that the event loop waits for no disk.

The event loop *offers* a value, which replaces all before it, and gets a ticket; any
thread *saves* for a ticket, and returns when that value or a newer one is on the disk. A thread
that comes while another writes waits, and mostly finds its work done: any number of changes that
are made during one write share the next.

A write that fails refuses everything that was offered since the last good one, where each value is
made from the one before (``builds``): their tickets raise, and the owner continues from what was
saved (:meth:`Saver.take_back`). Else it fails alone, and the next one writes the newest value.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

_log = logging.getLogger(__name__)

Value = TypeVar("Value")


class Ticket(NamedTuple):
    """A value that was offered."""

    line: int
    """Values that were made one from the other, without a refusal between them."""
    number: int


class Saver(Generic[Value]):
    """Writes values with ``write``, which replaces a file. Offered to in one thread only."""

    def __init__(
        self, write: Callable[[Value], None], saved: Value, *, name: str, builds: bool = False
    ) -> None:
        """``saved`` is what the file holds; ``name`` says which that is."""
        self._write = write
        self._name = name
        self._builds = builds
        self._lock = threading.Lock()
        self._saved: tuple[int, Value] = (0, saved)
        self._offered = self._saved
        self._error: OSError | None = None
        self._line = 0
        self._saved_in_line: list[int] = []  # the last number saved, of each line that has ended

    @property
    def saved(self) -> Value:
        """What is on the disk; never older than a ticket for which :meth:`save` has returned."""
        return self._saved[1]

    @property
    def offered(self) -> Value:
        """The newest value."""
        return self._offered[1]

    def offer(self, value: Value) -> Ticket:
        """Take a newer value."""
        number = self._offered[0] + 1
        self._offered = (number, value)
        return Ticket(self._line, number)

    def save(self, ticket: Ticket) -> None:
        """Return when the value of a ticket is on the disk; in any thread.

        OSError: it is refused, with all that were offered in its line and not saved before.
        """
        with self._lock:
            if ticket.line < self._line:
                if ticket.number > self._saved_in_line[ticket.line]:
                    raise OSError(errno.EIO, "a change before it could not be saved")
                return
            if ticket.number <= self._saved[0]:
                return
            if self._error is not None:
                raise OSError(self._error.errno or errno.EIO, str(self._error))
            offered = self._offered
            try:
                self._write(offered[1])
            except OSError as error:
                if self._builds:
                    self._error = error
                    self._restore()
                raise
            self._saved = offered

    def _restore(self) -> None:
        """The failed write may have put its file in place before the error."""
        try:
            self._write(self._saved[1])
        except OSError as error:
            _log.error("%s may hold a change that was refused: %s", self._name, error)

    def take_back(self, ticket: Ticket) -> None:
        """The ticket was refused: offers continue from what was saved. In the thread of offers."""
        if ticket.line == self._line:  # else another ticket of its line has been here before
            with self._lock:  # no writer is active: the queue is empty
                self._saved_in_line.append(self._saved[0])
                self._offered = (self._offered[0], self._saved[1])
                self._line += 1
                self._error = None
