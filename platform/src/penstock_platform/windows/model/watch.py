"""Which windows of a chain a sensor still has to look at, however long the chain is.

A chain grows forever, and one window that waits (for its landing, for evidence) must not make
every look read all windows behind it again. So a watch keeps the places that wait by name, and
where the unread rest begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Windows that wait at once. With more, those behind are read when some of these are done.
WAITING_MAX = 1000


@dataclass(frozen=True, slots=True)
class Watch:
    """``waiting``: places in the chain, ascending. ``unread``: the first place never looked at.
    ``looked``: the place at which the last look ended, where the next one continues."""

    waiting: tuple[int, ...] = ()
    unread: int = 0
    looked: int = -1

    def turn(self, most: int) -> tuple[int, ...]:
        """The waiting places whose turn it is: at most so many, those looked at last come last."""
        after = [n for n in self.waiting if n > self.looked]
        before = [n for n in self.waiting if n <= self.looked]
        return tuple([*after, *before][:most])

    @property
    def space(self) -> int:
        """How many more may wait before the rest of the chain is left unread."""
        return max(0, WAITING_MAX - len(self.waiting))

    def after(self, looks: Mapping[int, bool]) -> Watch:
        """The watch after looks at these places, each with whether it waits still.

        Places from ``unread`` on must have been read without a gap.
        """
        unread = self.unread
        while unread in looks:
            unread += 1
        kept = {n for n in self.waiting if looks.get(n, True)}
        kept |= {n for n in range(self.unread, unread) if looks[n]}
        turn = [n for n in looks if n < self.unread]
        looked = turn[-1] if turn else self.looked
        return Watch(tuple(sorted(kept)), unread, looked)

    def to_json(self) -> dict[str, Any]:
        return {"waiting": list(self.waiting), "unread": self.unread, "looked": self.looked}

    @classmethod
    def from_json(cls, raw: Any) -> Watch:
        """The reverse of ``to_json``; whatever cannot be read starts the chain over."""
        try:
            return cls(
                tuple(sorted(int(n) for n in raw["waiting"])),
                int(raw["unread"]),
                int(raw["looked"]),
            )
        except (KeyError, TypeError, ValueError):
            return cls()


def rotated(names: Sequence[str], first: str) -> list[str]:
    """``names`` in their order, beginning with ``first`` where it is one of them."""
    if first not in names:
        return list(names)
    place = list(names).index(first)
    return [*names[place:], *names[:place]]
