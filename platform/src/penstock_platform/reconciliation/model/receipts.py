"""A receipt: what one landing attempt that committed put into a table.

Format v1 is canonical JSON like the window's. A receipt names the window object by its SHA-256,
so it proves which offsets were landed, and the table's snapshot by id and attempt. It counts only
while that snapshot is the window's newest content commit: a later attempt supersedes it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from penstock_platform.archive.model import canonical
from penstock_platform.kafka.model import TopicRef
from penstock_platform.windows.model.window import Window

RECEIPT_VERSION = 1


class ReceiptFormatError(ValueError):
    """A receipt that cannot be read: says which key and why."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Receipt v1. ``digest`` is 16 hex digits or empty; ``counts`` holds further row counts, such
    as ``quarantined`` for silver. ``landed_at`` is ISO 8601 in UTC with a final ``Z``."""

    table: str
    cluster_id: str
    topic: str
    topic_id: str
    sequence: int
    window: str
    window_sha256: str
    attempt_id: str
    snapshot_id: int
    rows: int
    size_bytes: int
    seconds: float
    landed_at: str
    code_version: str
    digest: str = ""
    ranges: tuple[tuple[int, int, int], ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    v: int = RECEIPT_VERSION

    @property
    def ref(self) -> TopicRef:
        return TopicRef(self.cluster_id, self.topic, self.topic_id)

    @classmethod
    def of(
        cls,
        window: Window,
        *,
        table: str,
        attempt_id: str,
        snapshot_id: int,
        rows: int,
        size_bytes: int,
        seconds: float,
        landed_at: str,
        code_version: str,
        digest: str = "",
        counts: dict[str, int] | None = None,
    ) -> Receipt:
        """The receipt of one attempt to land ``window`` in ``table``."""
        return cls(
            table=table,
            cluster_id=window.cluster_id,
            topic=window.topic,
            topic_id=window.topic_id,
            sequence=window.sequence,
            window=window.window,
            window_sha256=window.sha256,
            attempt_id=attempt_id,
            snapshot_id=snapshot_id,
            rows=rows,
            size_bytes=size_bytes,
            seconds=seconds,
            landed_at=landed_at,
            code_version=code_version,
            digest=digest,
            ranges=tuple((r.partition, r.start, r.end) for r in window.ranges),
            counts=dict(counts or {}),
        )

    def to_bytes(self) -> bytes:
        return canonical(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Receipt:
        """Read a receipt; raises ReceiptFormatError for anything but a whole v1."""
        try:
            raw = json.loads(data)
            if raw["v"] != RECEIPT_VERSION:
                raise ReceiptFormatError(f"receipt version {raw['v']}: this code reads 1")
            ranges = tuple((int(p), int(s), int(e)) for p, s, e in raw.pop("ranges"))
            return cls(ranges=ranges, **raw)
        except (KeyError, TypeError, ValueError) as error:
            raise ReceiptFormatError(f"not a receipt: {error!r}") from error
