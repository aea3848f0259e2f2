"""Why a connection is not read from: a set of reasons, and it is read from while there is none.

The reasons come and go in any order and each by its own event: a quota mutes a connection while a
long request holds it and its answers pile up. So the state of the reading side is the set of those
that hold, and there is no table as for sending (``sending.py``): with four reasons it would have
sixteen states and say of each event only that it adds or takes away its reason.

                begins                                    ends
    MUTED       a quota, or too many new connections      a timer
    MEMORY      no space for a large frame                a frame of another connection is done with
    HELD        a request that takes long                 it is answered
    BACKLOG     the peer does not read its answers, or    few enough are left
                too many requests are unanswered
"""

from __future__ import annotations

from enum import Enum, auto


class Stop(Enum):
    """A reason not to read from a connection."""

    MUTED = auto()
    MEMORY = auto()
    HELD = auto()
    BACKLOG = auto()


WAITS_FOR_US = frozenset((Stop.MUTED, Stop.MEMORY, Stop.HELD))
"""The reasons that a peer can do nothing about: its silence is not held against it."""
