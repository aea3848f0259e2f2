"""Which windows of a chain hold an offset, found by asking for few of them.

Between two truncations of a partition the ends of its windows only grow, so each such stretch of
the chain is searched by halves. What a stretch holds is known without a search: it begins where
its truncation cut the log, and ends where the next one says that the window before ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from penstock_platform.windows.model.truncation import Cut
from penstock_platform.windows.model.window import Window


def windows_holding(
    window_at: Callable[[int], Window],
    newest: Window,
    cuts: Sequence[Cut],
    partition: int,
    offset: int,
) -> list[Window]:
    """The windows that hold the offset, in chain order: several where the log was cut and grew
    again. ``cuts`` are all of the chain, oldest first; ``window_at`` is asked about
    log2(windows) times for each stretch that holds the offset."""
    own = [cut for cut in cuts if cut.partition == partition]
    firsts = [0, *(cut.sequence for cut in own)]
    begins = [0, *(cut.offset for cut in own)]
    lasts = [*(cut.sequence for cut in own), newest.sequence + 1]
    ends = [*(cut.previous_end for cut in own), _end(newest, partition)]
    found: list[Window] = []
    for first, begin, last, end in zip(firsts, begins, lasts, ends, strict=True):
        if first == last or not begin <= offset < end:
            continue
        sequence = bisect_right(
            range(last), offset, first, last, key=lambda n: _end(window_at(n), partition)
        )
        window = window_at(sequence)
        if any(r.partition == partition and offset in r for r in window.ranges):
            found.append(window)
    return found


def _end(window: Window, partition: int) -> int:
    """Where the window ends in the partition; 0 for a partition that was added later."""
    return next((p.end for p in window.partitions if p.p == partition), 0)
