"""A window: the frozen vector of half-open offset ranges of one topic, a place in its chain.

One tick of the cron is one window, or several consecutive ones where it holds more records than a
window may: the same ``window`` key, parts 1, 2, 3 … and ``more`` on all but the last.

Format v1 is canonical JSON (sorted keys, no spaces, UTF-8). ``previous`` carries the SHA-256 of
the object before, so the chain proves itself: a window that was altered, left out or put in
between no longer fits its successor. Objects are create-only; nothing is ever replaced.

Not promised: that ``closed_at`` divides the records by time. The offsets define the window.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from penstock_platform.archive.model import canonical
from penstock_platform.clock import to_iso
from penstock_platform.kafka.model import PartitionOffsets, TopicRef
from penstock_platform.ranges import OffsetRange
from penstock_platform.topics.model.cron import CronWindow

WINDOW_VERSION = 1


class WindowFormatError(ValueError):
    """A window object that cannot be read: says which key and why."""


class ChainError(RuntimeError):
    """A chain that does not prove itself, or offsets that cannot continue it."""


@dataclass(frozen=True, slots=True)
class StartOffset:
    """Where a chain begins in a partition; the leader epoch of the moment that decided it."""

    p: int
    offset: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Truncation:
    """The log was cut below what was frozen: epoch ``from_epoch`` ends at ``offset`` now, and the
    window before ended at ``previous_end``, above it."""

    from_epoch: int
    offset: int
    previous_end: int


@dataclass(frozen=True, slots=True)
class WindowPartition:
    """One partition's share of a window, and what the broker said of it when it was frozen."""

    p: int
    start: int
    end: int
    log_start: int
    high_watermark: int
    leader_epoch: int
    truncated: Truncation | None = None

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.p, self.start, self.end)


@dataclass(frozen=True, slots=True)
class PreviousWindow:
    """The link of the chain: sequence and SHA-256 (hex) of the object before."""

    sequence: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Window:
    """Window object v1 (design: windows). Times are ISO 8601 in UTC with a final ``Z``."""

    cluster_id: str
    topic: str
    topic_id: str
    sequence: int
    window: str  # the Dagster partition key
    opened_at: str
    closed_at: str
    frozen_at: str
    partitions: tuple[WindowPartition, ...]
    previous: PreviousWindow | None
    code_version: str
    part: int = 1  # its place among the windows of its tick, from 1
    more: bool = False  # another window of the same tick follows
    last_truncation: int | None = None  # sequence of the newest window, up to this, with one
    v: int = WINDOW_VERSION

    @property
    def name(self) -> str:
        """The key; ``<key>#<part>`` where its tick has several windows."""
        return f"{self.window}#{self.part}" if self.more or self.part > 1 else self.window

    @property
    def ref(self) -> TopicRef:
        return TopicRef(self.cluster_id, self.topic, self.topic_id)

    @property
    def window_id(self) -> str:
        return f"{self.topic_id}/{self.sequence}"

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        return tuple(partition.range for partition in self.partitions)

    @property
    def record_count(self) -> int:
        """Offsets in the window: records, on topics without compaction or transactions."""
        return sum(len(r) for r in self.ranges)

    @property
    def complete(self) -> bool:
        """Did it reach every log's end? Then what follows it was stored after it was frozen."""
        return all(partition.end >= partition.high_watermark for partition in self.partitions)

    @property
    def closed_time(self) -> datetime:
        return datetime.fromisoformat(self.closed_at)

    def to_bytes(self) -> bytes:
        raw = {name: getattr(self, name) for name in _FIELDS}
        raw["partitions"] = [_partition_entry(partition) for partition in self.partitions]
        raw["previous"] = asdict(self.previous) if self.previous else None
        return canonical(raw)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Window:
        """Read a window object; raises WindowFormatError for anything but a whole v1."""
        try:
            raw = json.loads(data)
            if raw["v"] != WINDOW_VERSION:
                raise WindowFormatError(f"window object version {raw['v']}: this code reads 1")
            previous = raw.pop("previous")
            partitions = tuple(_partition_of(p) for p in raw.pop("partitions"))
            link = PreviousWindow(**previous) if previous else None
            return cls(partitions=partitions, previous=link, **raw)
        except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise WindowFormatError(f"not a window object: {error!r}") from error


_FIELDS = tuple(field.name for field in fields(Window))
_PARTITION_FIELDS = tuple(f.name for f in fields(WindowPartition) if f.name != "truncated")


def _partition_entry(partition: WindowPartition) -> dict[str, object]:
    entry: dict[str, object] = {name: getattr(partition, name) for name in _PARTITION_FIELDS}
    if partition.truncated is not None:
        entry["truncated"] = asdict(partition.truncated)
    return entry


def _partition_of(entry: Mapping[str, Any]) -> WindowPartition:
    cut = entry.get("truncated")
    return WindowPartition(**{**entry, "truncated": Truncation(**cut) if cut else None})


@dataclass(frozen=True, slots=True)
class FreezePlan:
    """What a freeze works with, beside the chain's end and the ticks that are due.

    ``starts``: where the chain begins, by partition, for its first window; a partition that is not
    there begins at 0. ``stamped_cuts``: window key to partition to the first offset stamped at or
    after the close, None for none; only for LogAppendTime. ``reaches_newest`` is False when the
    ticks were cut short. ``truncations``: partitions whose log was cut below the chain's end.
    """

    ref: TopicRef
    offsets: Mapping[int, PartitionOffsets]
    max_records: int
    frozen_at: datetime
    code_version: str
    starts: Mapping[int, StartOffset] = field(default_factory=dict)
    stamped_cuts: Mapping[str, Mapping[int, int | None]] | None = None
    reaches_newest: bool = True
    truncations: Mapping[int, Truncation] = field(default_factory=dict)


def plan_freeze(
    plan: FreezePlan, newest: Window | None, due: Sequence[CronWindow]
) -> Iterator[Window]:
    """The windows of ``due``, oldest first, each continuing the one before; ``newest`` or a start.

    Per partition a window starts where the one before ended; a partition added later starts at 0,
    so that nothing of it can be passed over; one whose log was cut starts at the cut. No window
    holds more than ``max_records``. The newest tick reaches the last stable offset, in as many
    windows as that takes. An older one, frozen late, ends where the broker's own stamps say, else
    takes one window of what there is, shared out in proportion. Producers' timestamps have no
    say: a single record from the future would stop the chain. A tick that ``newest`` left
    unfinished comes first in ``due``.

    Raises ChainError when a partition of the window before is not among ``offsets``.
    """
    previous, truncations = newest, plan.truncations
    for number, tick in enumerate(due):
        last = plan.reaches_newest and number == len(due) - 1
        target: dict[int, int] | None = None
        while True:
            starts = _starts(previous, plan, truncations)
            target = target or _tick_ends(plan, tick, starts, last=last)
            ends = _share(starts, target, plan.max_records)
            previous = _window(
                plan,
                previous,
                tick,
                starts=starts,
                ends=ends,
                truncations=truncations,
                more=ends != target,
            )
            yield previous
            truncations = {}
            if not previous.more:
                break


def _window(
    plan: FreezePlan,
    previous: Window | None,
    tick: CronWindow,
    *,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    truncations: Mapping[int, Truncation],
    more: bool,
) -> Window:
    sequence = previous.sequence + 1 if previous else 0
    before = previous.last_truncation if previous else None
    return Window(
        cluster_id=plan.ref.cluster_id,
        topic=plan.ref.topic,
        topic_id=plan.ref.topic_id,
        sequence=sequence,
        window=tick.key,
        opened_at=to_iso(tick.opens),
        closed_at=to_iso(tick.closes),
        frozen_at=to_iso(plan.frozen_at),
        partitions=tuple(
            _partition(plan.offsets[p], starts[p], ends[p], truncations.get(p))
            for p in sorted(starts)
        ),
        previous=PreviousWindow(previous.sequence, previous.sha256) if previous else None,
        code_version=plan.code_version,
        part=previous.part + 1 if previous is not None and previous.more else 1,
        more=more,
        last_truncation=sequence if truncations else before,
    )


def check_link(previous: Window | None, window: Window) -> None:
    """Raises ChainError unless ``window`` continues ``previous`` (None: is a first window)."""
    at = f"window {window.window_id} ({window.topic} {window.window})"
    if previous is None:
        if window.sequence != 0 or window.previous is not None:
            raise ChainError(f"{at}: the windows before it are missing")
        return
    link = PreviousWindow(previous.sequence, previous.sha256)
    if window.ref != previous.ref or window.sequence != previous.sequence + 1:
        raise ChainError(f"{at} does not follow window {previous.window_id}")
    if window.previous != link:
        raise ChainError(f"{at}: its hash of window {previous.sequence} is not that window's")
    if not _continues_tick(previous, window):
        continues = "continues" if previous.more else "ends there"
        raise ChainError(
            f"{at} is part {window.part} of its tick; the tick of window {previous.sequence} "
            f"before it ({previous.name}) {continues}"
        )
    if window.last_truncation != (
        window.sequence if any(p.truncated for p in window.partitions) else previous.last_truncation
    ):
        raise ChainError(f"{at} names window {window.last_truncation} as its last truncation")
    ends = {partition.p: partition.end for partition in previous.partitions}
    entries = {partition.p: partition for partition in window.partitions}
    if not all(p in entries and _joins(end, entries[p]) for p, end in ends.items()):
        raise ChainError(f"{at} does not begin where window {previous.sequence} ended")


def _continues_tick(previous: Window, window: Window) -> bool:
    if previous.more:
        return window.window == previous.window and window.part == previous.part + 1
    return window.window != previous.window and window.part == 1


def _joins(end: int, partition: WindowPartition) -> bool:
    """A partition continues where the window before ended; only a truncation steps back, to where
    it says."""
    cut = partition.truncated
    if cut is None:
        return partition.start == end
    return cut.previous_end == end and partition.start == cut.offset < end


def _starts(
    previous: Window | None, plan: FreezePlan, truncations: Mapping[int, Truncation]
) -> dict[int, int]:
    offsets = plan.offsets
    cuts = {p: cut.offset for p, cut in truncations.items()}
    if previous is None:
        begin = {p: start.offset for p, start in plan.starts.items()}
        return {p: cuts.get(p, begin.get(p, 0)) for p in offsets}
    ends = {partition.p: partition.end for partition in previous.partitions}
    if lost := sorted(set(ends) - set(offsets)):
        raise ChainError(
            f"{previous.topic}: the broker no longer lists partitions {lost} of window "
            f"{previous.sequence}; nothing is frozen until it does"
        )
    return {p: cuts.get(p, ends.get(p, 0)) for p in offsets}


def _tick_ends(
    plan: FreezePlan, tick: CronWindow, starts: Mapping[int, int], *, last: bool
) -> dict[int, int]:
    """Where the tick ends, in however many windows."""
    available = {p: max(start, plan.offsets[p].last_stable) for p, start in starts.items()}
    if last:
        return available
    if plan.stamped_cuts is not None:
        return _cut_by_stamps(starts, available, plan.stamped_cuts.get(tick.key, {}))
    return _share(starts, available, plan.max_records)


def _share(starts: Mapping[int, int], ends: Mapping[int, int], max_records: int) -> dict[int, int]:
    """The ends of one window of at most ``max_records``, each partition's share in proportion.

    Shares are differences of rounded sums, so that they add up to the bound exactly and a window
    is never empty while there is something to hold.
    """
    total = sum(ends[p] - start for p, start in starts.items())
    if total <= max_records:
        return dict(ends)
    shared: dict[int, int] = {}
    before = 0
    for p, start in starts.items():
        after = before + ends[p] - start
        shared[p] = start + after * max_records // total - before * max_records // total
        before = after
    return shared


def _cut_by_stamps(
    starts: Mapping[int, int], available: Mapping[int, int], cuts: Mapping[int, int | None]
) -> dict[int, int]:
    ends = {}
    for p, start in starts.items():
        cut = cuts.get(p)
        ends[p] = available[p] if cut is None else max(start, min(available[p], cut))
    return ends


def _partition(
    offsets: PartitionOffsets, start: int, end: int, truncated: Truncation | None
) -> WindowPartition:
    return WindowPartition(
        p=offsets.partition,
        start=start,
        end=end,
        log_start=offsets.log_start,
        high_watermark=offsets.high_watermark,
        leader_epoch=offsets.leader_epoch,
        truncated=truncated,
    )


def rerun_command(topic: str, window: str) -> str:
    """The command that lands a window again and checks it again."""
    return f"penstock window rerun {topic} {window}"
