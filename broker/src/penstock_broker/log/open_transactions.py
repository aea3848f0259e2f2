"""The transactions of one partition that are open, and those whose end is not visible yet.

The last stable offset follows from it: nothing at or above the first record of an undecided
transaction may be given to a read_committed consumer. A transaction whose marker has been written
but does not count yet (it is above the high watermark) still holds it back, because a crash may
take the marker away.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted, as the index of aborted transactions has it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """That of the marker."""
    last_stable_offset: int
    """The end of what was decided when the marker had been written: entries behind this one are
    of no concern to a reader of offsets below."""


class OpenTransactions:
    """Fed with batches in the order of the log."""

    __slots__ = ("begun", "ended")

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}
        """The first offset of each open transaction, by producer id; the oldest first."""
        self.ended: deque[tuple[int, int]] = deque()
        """First offset and marker of those whose end may not count yet."""

    def begin(self, producer_id: int, offset: int) -> None:
        """Note a transactional batch."""
        self.begun.setdefault(producer_id, offset)

    def end(self, producer_id: int, offset: int, *, is_commit: bool) -> AbortedTransaction | None:
        """Note a marker; the entry for the index, if it aborts something."""
        first = self.begun.pop(producer_id, None)
        if first is None:
            return None
        self.ended.append((first, offset))
        if is_commit:
            return None
        stable = next(iter(self.begun.values()), offset + 1)
        return AbortedTransaction(producer_id, first, offset, stable)

    def drop_ended(self, high_watermark: int) -> None:
        """Drop ended transactions whose markers are below the high watermark: they no longer hold
        back the last stable offset."""
        ended = self.ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def first_unstable(self, high_watermark: int) -> int | None:
        """The offset of the first record that is undecided; None where all is decided."""
        self.drop_ended(high_watermark)
        ended = self.ended
        first = next(iter(self.begun.values())) if self.begun else None
        if ended:
            held = min(first for first, _ in ended)
            return held if first is None else min(first, held)
        return first
