"""What the sending side of a connection waits for: one state, and a table of what follows.

Two things may be waited for at a time, the peer and the disk, so they are not flags that each
code path resets as it likes: code that is done with one of them notes so, and the table knows
whether the other is still to come. The table is total: an event that means nothing in a state, as
a turn that comes round after its connection has begun to wait for its peer, leaves it as it is.
"""

from __future__ import annotations

from enum import Enum, auto


class Sending(Enum):
    """A connection sends only in ``READY``."""

    READY = auto()
    """Nothing is waited for."""
    FULL = auto()
    """The peer's socket or transport buffer is full: wait until it takes more."""
    READING = auto()
    """A thread reads records that are not in the page cache."""
    READING_FULL = auto()
    """Both."""
    TURN = auto()
    """It has used up its turn: other connections send before it continues."""


class Event(Enum):
    """What happens to the sending side."""

    TOOK_ENOUGH = auto()
    """The peer takes no more."""
    TAKES_MORE = auto()
    """The peer takes more again."""
    READ_BEGAN = auto()
    """A thread has been asked to read."""
    READ_ENDED = auto()
    """It has read."""
    TURN_OVER = auto()
    """Enough has been sent for one turn."""
    NEXT_TURN = auto()
    """The others have had theirs."""


_EVENTS = tuple(Event)
# The columns are in the order of Event.
_ROWS = {
    Sending.READY: (
        Sending.FULL, Sending.READY, Sending.READING, Sending.READY, Sending.TURN, Sending.READY,
    ),
    Sending.FULL: (
        Sending.FULL, Sending.READY, Sending.READING_FULL, Sending.FULL, Sending.FULL, Sending.FULL,
    ),
    Sending.READING: (
        Sending.READING_FULL, Sending.READING, Sending.READING, Sending.READY, Sending.READING,
        Sending.READING,
    ),
    Sending.READING_FULL: (
        Sending.READING_FULL, Sending.READING, Sending.READING_FULL, Sending.FULL,
        Sending.READING_FULL, Sending.READING_FULL,
    ),
    Sending.TURN: (
        Sending.FULL, Sending.TURN, Sending.READING, Sending.TURN, Sending.TURN, Sending.READY,
    ),
}  # fmt: skip

NEXT: dict[tuple[Sending, Event], Sending] = {
    (state, event): row[number]
    for state, row in _ROWS.items()
    for number, event in enumerate(_EVENTS)
}
"""The state that follows."""

WAITS_FOR_PEER = frozenset((Sending.FULL, Sending.READING_FULL))
