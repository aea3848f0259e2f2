"""Logs that were cut below what was frozen (a power cut, an unclean election, a restored disk).

A leader epoch ends where the next one begins. Where an epoch that was frozen up to offset 100 ends
at 60 today, offsets 60 to 99 were lost, and records at these offsets now are other records. The
chain steps back to 60, so that the new records are in a window too, and the windows before keep
their own records: in the lake, or nowhere.

(KIP-101, KIP-320: OffsetForLeaderEpoch answers the largest epoch up to the one asked for, and its
end; -1 where the log knows of none.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock_platform.kafka.model import PartitionOffsets
from penstock_platform.ranges import OffsetRange, merge
from penstock_platform.windows.model.window import ChainError, StartOffset, Truncation, Window


@dataclass(frozen=True, slots=True)
class Cut:
    """A truncation that the chain recorded: windows before ``sequence`` lost what they hold of
    this partition from ``offset`` on, up to ``previous_end``."""

    sequence: int
    partition: int
    offset: int
    previous_end: int


def chain_ends(newest: Window | None, starts: Mapping[int, StartOffset]) -> dict[int, StartOffset]:
    """Where the chain ends, or is to begin, in each partition, and the leader epoch known there."""
    if newest is None:
        return dict(starts)
    return {p.p: StartOffset(p.p, p.end, p.leader_epoch) for p in newest.partitions}


def epochs_to_ask(
    ends: Mapping[int, StartOffset], offsets: Mapping[int, PartitionOffsets]
) -> dict[int, int]:
    """The leader epochs whose ends have to be asked for, by partition: those that changed.

    Raises ChainError where a partition's epoch went back: a stale leader answers, or the log was
    restored from an older copy, and nothing that it says may be frozen.
    """
    changed: dict[int, int] = {}
    for p, end in ends.items():
        now = offsets[p].leader_epoch if p in offsets else -1
        if min(now, end.leader_epoch) < 0 or now == end.leader_epoch:
            continue
        if now < end.leader_epoch:
            raise ChainError(
                f"partition {p}: its leader epoch went back from {end.leader_epoch} to {now}: a "
                "stale leader answers, or the log was restored from an older copy. Nothing is "
                f"frozen until a leader of epoch {end.leader_epoch} or later answers (each "
                "election or restart of the broker raises it)"
            )
        changed[p] = end.leader_epoch
    return changed


def truncations_of(
    ends: Mapping[int, StartOffset],
    offsets: Mapping[int, PartitionOffsets],
    epoch_ends: Mapping[int, int],
) -> dict[int, Truncation]:
    """The partitions whose log was cut below ``ends``.

    ``epoch_ends``: where the epochs of ``epochs_to_ask`` end today, -1 where the log knows of no
    such epoch; then, and where the epoch is the same, the log's end says it.
    """
    found: dict[int, Truncation] = {}
    for p, end in ends.items():
        if p not in offsets:
            continue
        limit = epoch_ends.get(p, -1)
        if limit < 0:
            limit = offsets[p].high_watermark
        if limit < end.offset:
            found[p] = Truncation(end.leader_epoch, limit, end.offset)
    return found


def cuts_in(windows: Iterable[Window]) -> list[Cut]:
    """The truncations that these windows record, in their order."""
    return [
        Cut(window.sequence, p.p, p.truncated.offset, p.truncated.previous_end)
        for window in windows
        for p in window.partitions
        if p.truncated is not None
    ]


def lost_ranges(window: Window, cuts: Sequence[Cut]) -> tuple[OffsetRange, ...]:
    """The offsets of the window that its log lost after it was frozen; other records may be
    there now, and belong to a later window."""
    lost = [
        OffsetRange(p.p, max(p.start, cut.offset), p.end)
        for p in window.partitions
        for cut in cuts
        if cut.partition == p.p and cut.sequence > window.sequence and cut.offset < p.end
    ]
    return merge(lost)


def ends_in_log(window: Window, cuts: Sequence[Cut]) -> dict[int, int]:
    """Where the window's own records end in the log, by partition: at the first later cut."""
    return {
        p.p: min(
            [
                p.end,
                *(c.offset for c in cuts if c.partition == p.p and c.sequence > window.sequence),
            ]
        )
        for p in window.partitions
    }
