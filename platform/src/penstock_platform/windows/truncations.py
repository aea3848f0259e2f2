"""Which offsets of a window the log has lost since it was frozen, though it was not asked to.

The chain says it once the next window is frozen; until then, the brokers' leader epochs do. Other
records may be at these offsets now: they belong to a later window, and are never read for this
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock_platform.kafka.model import PartitionOffsets
from penstock_platform.ranges import OffsetRange, merge
from penstock_platform.windows.freezer import truncations
from penstock_platform.windows.model.truncation import lost_ranges
from penstock_platform.windows.model.window import StartOffset, Window
from penstock_platform.windows.store import WindowStore

if TYPE_CHECKING:
    from penstock_platform.connections import Connections


def lost_from_log(
    penstock: Connections, window: Window, offsets: Mapping[int, PartitionOffsets]
) -> tuple[OffsetRange, ...]:
    """The window's offsets above which its log was cut; ``offsets`` are the log's now.

    Asks the brokers only where a leader epoch changed since the freeze. Raises ClusterError
    without an answer, ChainError where an epoch went back.
    """
    ends = {p.p: StartOffset(p.p, p.end, p.leader_epoch) for p in window.partitions if p.range}
    now = truncations(penstock.kafka, window.topic, ends, offsets)
    starts = {p.p: p.start for p in window.partitions}
    found = [OffsetRange(p, max(starts[p], c.offset), c.previous_end) for p, c in now.items()]
    return merge([*found, *lost_ranges(window, WindowStore.of(penstock).cuts(window.ref))])
