"""Which leader epoch wrote which offsets: (epoch, first offset), both growing (KIP-101).

Format of ``leader-epoch-checkpoint`` in the partition's directory: the checkpoint format of
``checkpoint.py`` with lines ``epoch start_offset``. The batches carry their epoch, so the list can
be made again from the log.
"""

from __future__ import annotations

from bisect import bisect_right

NO_EPOCH = -1


class LeaderEpochs:
    """The epochs of one log."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    @property
    def latest(self) -> int:
        """The newest epoch that wrote anything; -1 for none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        """All of (epoch, first offset)."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, offset: int) -> bool:
        """A batch of ``epoch`` was written at ``offset``; whether that begins a new epoch."""
        if epoch <= self.latest:
            return False
        while self._starts and self._starts[-1] >= offset:
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(offset)
        return True

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote ``offset``; -1 where it is not known."""
        number = bisect_right(self._starts, offset) - 1
        return self._epochs[number] if number >= 0 else NO_EPOCH

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the largest epoch not above ``epoch``, and where it ended.

        An epoch before all that are known ended, at the latest, where the first of them begins
        (as Apache Kafka answers); (-1, -1) for a log that knows none.
        """
        number = bisect_right(self._epochs, epoch) - 1
        if number < 0:
            return (epoch, self._starts[0]) if self._starts else (NO_EPOCH, -1)
        is_last = number + 1 == len(self._starts)
        return self._epochs[number], log_end_offset if is_last else self._starts[number + 1]

    def truncate_to(self, end_offset: int) -> None:
        """Remove epochs that began at or after ``end_offset``."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()

    def advance_to(self, start_offset: int) -> None:
        """Remove epochs that ended at or before ``start_offset``, the new start of the log."""
        number = bisect_right(self._starts, start_offset) - 1
        if number > 0:
            del self._epochs[:number], self._starts[:number]
        if self._starts and self._starts[0] < start_offset:
            self._starts[0] = start_offset
