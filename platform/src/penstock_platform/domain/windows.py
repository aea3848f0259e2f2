"""A window: the frozen vector of half-open offset ranges of one topic, a place in its chain.

Format v1 is canonical JSON (sorted keys, no spaces, UTF-8). ``previous`` carries the SHA-256 of
the object before, so the chain proves itself: a window that was altered, left out or put in
between no longer fits its successor. Objects are create-only; nothing is ever replaced.

Not promised: that ``closed_at`` divides the records by time. The offsets are the truth.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime

from penstock_platform.domain.clock import to_iso
from penstock_platform.domain.cron import CronWindow
from penstock_platform.domain.ranges import OffsetRange

WINDOW_VERSION = 1


class WindowFormatError(ValueError):
    """A window object that cannot be read: says which key and why."""


class ChainError(RuntimeError):
    """A chain that does not prove itself, or offsets that cannot continue it."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What the broker says of one partition now. ``leader_epoch`` is -1 where it tells none."""

    partition: int
    log_start: int
    last_stable: int
    high_watermark: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class TopicRef:
    """One incarnation of a topic: the same name recreated has another ``topic_id``."""

    cluster_id: str
    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class WindowPartition:
    """One partition's share of a window, and what the broker said of it when it was frozen."""

    p: int
    start: int
    end: int
    log_start: int
    high_watermark: int
    leader_epoch: int

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
    v: int = WINDOW_VERSION

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
        raw["partitions"] = [
            {name: getattr(partition, name) for name in _PARTITION_FIELDS}
            for partition in self.partitions
        ]
        raw["previous"] = asdict(self.previous) if self.previous else None
        return json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()

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
            partitions = tuple(WindowPartition(**p) for p in raw.pop("partitions"))
            link = PreviousWindow(**previous) if previous else None
            return cls(partitions=partitions, previous=link, **raw)
        except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise WindowFormatError(f"not a window object: {error!r}") from error


_FIELDS = tuple(field.name for field in fields(Window))
_PARTITION_FIELDS = tuple(field.name for field in fields(WindowPartition))


def plan_freeze(
    ref: TopicRef,
    newest: Window | None,
    due: Sequence[CronWindow],
    offsets: Mapping[int, PartitionOffsets],
    *,
    max_records: int,
    frozen_at: datetime,
    code_version: str,
    stamped_cuts: Mapping[str, Mapping[int, int | None]] | None = None,
    reaches_newest: bool = True,
) -> Iterator[Window]:
    """The windows of ``due``, oldest first, each continuing the one before; ``newest`` or a start.

    Per partition a window starts where the one before ended. The first window of a topic starts at
    the log start; a partition added later starts at 0, so that nothing of it can be passed over.
    The newest window ends at the last stable offset. An older one, frozen late, ends where the
    broker's own stamps say (``stamped_cuts``: window key to partition to the first offset stamped
    at or after the close, None for none; only for LogAppendTime), else takes what there is up to
    ``max_records``, shared out in proportion. Producers' timestamps have no say: a single record
    from the future would stop the chain. ``reaches_newest`` is False when ``due`` was cut short.

    Raises ChainError when a partition of the window before is not among ``offsets``.
    """
    previous = newest
    for number, window in enumerate(due):
        starts = _starts(previous, offsets)
        available = {p: max(start, offsets[p].last_stable) for p, start in starts.items()}
        if reaches_newest and number == len(due) - 1:
            ends = available
        elif stamped_cuts is not None:
            ends = _cut_by_stamps(starts, available, stamped_cuts.get(window.key, {}))
        else:
            ends = _cut_by_bound(starts, available, max_records)
        previous = Window(
            cluster_id=ref.cluster_id,
            topic=ref.topic,
            topic_id=ref.topic_id,
            sequence=previous.sequence + 1 if previous else 0,
            window=window.key,
            opened_at=to_iso(window.opens),
            closed_at=to_iso(window.closes),
            frozen_at=to_iso(frozen_at),
            partitions=tuple(_partition(offsets[p], starts[p], ends[p]) for p in sorted(starts)),
            previous=PreviousWindow(previous.sequence, previous.sha256) if previous else None,
            code_version=code_version,
        )
        yield previous


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
    ends = {partition.p: partition.end for partition in previous.partitions}
    starts = {partition.p: partition.start for partition in window.partitions}
    if any(starts.get(p) != end for p, end in ends.items()):
        raise ChainError(f"{at} does not begin where window {previous.sequence} ended")


def _starts(previous: Window | None, offsets: Mapping[int, PartitionOffsets]) -> dict[int, int]:
    if previous is None:
        return {p: o.log_start for p, o in offsets.items()}
    ends = {partition.p: partition.end for partition in previous.partitions}
    if lost := sorted(set(ends) - set(offsets)):
        raise ChainError(
            f"{previous.topic}: the broker no longer tells of partitions {lost} of window "
            f"{previous.sequence}; nothing is frozen until it does"
        )
    return {p: ends.get(p, 0) for p in offsets}


def _cut_by_bound(
    starts: Mapping[int, int], available: Mapping[int, int], max_records: int
) -> dict[int, int]:
    total = sum(available[p] - start for p, start in starts.items())
    if total <= max_records:
        return dict(available)
    return {p: s + (available[p] - s) * max_records // total for p, s in starts.items()}


def _cut_by_stamps(
    starts: Mapping[int, int], available: Mapping[int, int], cuts: Mapping[int, int | None]
) -> dict[int, int]:
    ends = {}
    for p, start in starts.items():
        cut = cuts.get(p)
        ends[p] = available[p] if cut is None else max(start, min(available[p], cut))
    return ends


def _partition(offsets: PartitionOffsets, start: int, end: int) -> WindowPartition:
    return WindowPartition(
        p=offsets.partition,
        start=start,
        end=end,
        log_start=offsets.log_start,
        high_watermark=offsets.high_watermark,
        leader_epoch=offsets.leader_epoch,
    )
