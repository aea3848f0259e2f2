"""One incarnation of a topic name: which topic id, since when, and where its chain begins.

Recorded once, when a topic is first frozen or when a person begins a new chain, and never decided
again: a crash before the first window, or a changed declaration, moves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from penstock_platform.archive.model import canonical
from penstock_platform.clock import from_iso, to_iso
from penstock_platform.kafka.model import PartitionOffsets
from penstock_platform.windows.model.window import ChainError, StartOffset

INCARNATION_VERSION = 1


@dataclass(frozen=True, slots=True)
class Incarnation:
    """Incarnation object v1. ``starts``: where the chain begins; a partition that is not there
    begins at 0. ``land_start``: what the declaration said then. ``first``: no other incarnation of
    the name had a chain before."""

    topic_id: str
    begun_at: datetime
    starts: tuple[StartOffset, ...] = ()
    land_start: str = "earliest"
    first: bool = True

    def start_offsets(self) -> dict[int, StartOffset]:
        return {start.p: start for start in self.starts}

    def to_bytes(self) -> bytes:
        raw = {
            "v": INCARNATION_VERSION,
            "topic_id": self.topic_id,
            "begun_at": to_iso(self.begun_at),
            "starts": [asdict(start) for start in self.starts],
            "land_start": self.land_start,
            "first": self.first,
        }
        return canonical(raw)

    @classmethod
    def from_bytes(cls, data: bytes, key: str) -> Incarnation:
        """Raises ChainError, which names the key, for anything but a whole v1."""
        try:
            raw = json.loads(data)
            if raw["v"] != INCARNATION_VERSION:
                raise ChainError(f"{key}: incarnation version {raw['v']}: this code reads 1")
            return cls(
                topic_id=str(raw["topic_id"]),
                begun_at=from_iso(raw["begun_at"]),
                starts=tuple(StartOffset(**start) for start in raw["starts"]),
                land_start=str(raw["land_start"]),
                first=bool(raw["first"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ChainError(f"{key} is not an incarnation object: {error!r}") from error


def first_starts(
    land_start: str,
    offsets: Mapping[int, PartitionOffsets],
    found: Mapping[int, int | None] | None = None,
) -> tuple[StartOffset, ...]:
    """Where the chain of an adopted topic begins, by its declaration's ``land.start``.

    ``earliest``: the log's first offset. ``latest``: its last stable offset. A timestamp:
    ``found``, the first offset stamped at or after it, by partition; without one, the last stable
    offset.
    """
    starts: list[StartOffset] = []
    for p, o in sorted(offsets.items()):
        if land_start == "earliest":
            offset = o.log_start
        elif land_start == "latest":
            offset = o.last_stable
        else:
            at = (found or {}).get(p)
            offset = o.last_stable if at is None else max(o.log_start, min(at, o.last_stable))
        starts.append(StartOffset(p, offset, o.leader_epoch))
    return tuple(starts)
