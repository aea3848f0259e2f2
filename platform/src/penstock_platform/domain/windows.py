"""A window: the frozen vector of half-open offset ranges of one topic, a place in its chain.

Format v1 is canonical JSON (sorted keys, no spaces, UTF-8). ``previous`` carries the SHA-256 of
the object before, so the chain proves itself: a window that was altered, left out or put in
between no longer fits its successor. Objects are create-only; nothing is ever replaced.

Not promised: that ``closed_at`` divides the records by time. The offsets are the truth.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime

from penstock_platform.domain.ranges import OffsetRange

WINDOW_VERSION = 1


class WindowFormatError(ValueError):
    """A window object that cannot be read: says which key and why."""


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
    def closed_time(self) -> datetime:
        return datetime.fromisoformat(self.closed_at)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

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
