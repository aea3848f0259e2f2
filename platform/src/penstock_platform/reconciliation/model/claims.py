"""Producers' claims and stored records as sorted arrays, ready to be compared.

A claim is a run of consecutive offsets of one partition, all acknowledged to one incarnation. The
stored records of a window come from bronze, once equation 1 has shown that bronze is the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from penstock_client.audit import MonitoringEvent, TopicAccount
from penstock_platform.ranges import OffsetRange, Offsets, Spans
from penstock_platform.reconciliation.model.audit_events import source_text
from penstock_platform.windows.model.window import Window

Digests = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """Records of one partition as parallel arrays, in any order.

    ``incarnation`` is 0 (or negative) where a record carries no audit header; ``digest`` is
    ``penstock_client.record_digest`` of the record, modulo 2^64.
    """

    offset: Offsets
    incarnation: Offsets
    sequence: Offsets
    digest: Digests

    @classmethod
    def none(cls) -> StoredRecords:
        return cls.of((), (), (), ())

    @classmethod
    def of(
        cls,
        offset: Sequence[int] | Offsets,
        incarnation: Sequence[int] | Offsets,
        sequence: Sequence[int] | Offsets,
        digest: Sequence[int] | Digests,
    ) -> StoredRecords:
        """From sequences or arrays. Raises ValueError when their lengths differ."""
        arrays = (
            np.asarray(offset, dtype=np.int64),
            np.asarray(incarnation, dtype=np.int64),
            np.asarray(sequence, dtype=np.int64),
            np.asarray(digest, dtype=np.uint64),
        )
        if len({array.shape for array in arrays}) != 1:
            raise ValueError(f"arrays of different lengths: {[a.size for a in arrays]}")
        return cls(*arrays)

    @classmethod
    def joined(cls, parts: Sequence[StoredRecords]) -> StoredRecords:
        """Those of all the parts, of which there is at least one."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([p.offset for p in parts]),
            np.concatenate([p.incarnation for p in parts]),
            np.concatenate([p.sequence for p in parts]),
            np.concatenate([p.digest for p in parts]),
        )

    def __len__(self) -> int:
        return int(self.offset.size)

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> StoredRecords:
        """The records of a mask, or at some indices."""
        return StoredRecords(
            self.offset[chosen],
            self.incarnation[chosen],
            self.sequence[chosen],
            self.digest[chosen],
        )

    def in_order(self) -> StoredRecords:
        """By offset, each offset once (a row that is twice in the table is equation 1's)."""
        if len(self) > 1 and not np.all(self.offset[1:] > self.offset[:-1]):
            _, first = np.unique(self.offset, return_index=True)
            return self.take(first)
        return self


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims of one incarnation in one partition as parallel arrays, sorted by start."""

    start: Offsets
    end: Offsets
    digest: Digests

    @classmethod
    def of(cls, claims: Iterable[tuple[int, int, int]]) -> Claims:
        rows = sorted(set(claims))
        return cls(
            np.fromiter((r[0] for r in rows), np.int64, len(rows)),
            np.fromiter((r[1] for r in rows), np.int64, len(rows)),
            np.fromiter((r[2] for r in rows), np.uint64, len(rows)),
        )

    @classmethod
    def none(cls) -> Claims:
        return cls.of(())

    def __len__(self) -> int:
        return int(self.start.size)

    def without(self, others: Claims) -> Claims:
        """Those that do not begin where one of the others does."""
        if not len(others):
            return self
        kept = ~np.isin(self.start, others.start)
        return Claims(self.start[kept], self.end[kept], self.digest[kept])

    def merged(self) -> Spans:
        """The claimed offsets."""
        return Spans.merge(self.start, self.end)


@dataclass(frozen=True, slots=True)
class Producer:
    """What one incarnation's events say of one topic.

    ``numbers`` are those of the events read, each once, sorted. ``sequences`` are acknowledged,
    ``failed`` given up; ``failed_at`` holds the latter as (first, end, reason, sent at, in ms).
    ``source`` names the producer: its application and host.
    """

    incarnation: int
    source: str
    numbers: tuple[int, ...]
    final: bool
    last_sent_at_ms: int
    in_flight: int
    claims: Mapping[int, Claims]
    sequences: Spans
    failed: Spans
    failed_at: tuple[tuple[int, int, str, int], ...]

    @property
    def lost_events(self) -> tuple[tuple[int, int], ...]:
        """Numbers left out between the first and the last that were read, as half-open ranges."""
        return tuple((a + 1, b) for a, b in pairwise(self.numbers) if b - a > 1)


def producers_of(
    topic: str, events: Iterable[MonitoringEvent], topic_id: str | None = None
) -> dict[int, Producer]:
    """The incarnations of these events by their id. An event that is read twice counts once.

    ``topic_id``: accounts of another id say nothing of this topic; those without one do.
    """
    by_incarnation: dict[int, list[MonitoringEvent]] = {}
    seen: set[str] = set()
    for event in events:
        if event.uuid not in seen:
            seen.add(event.uuid)
            by_incarnation.setdefault(event.incarnation, []).append(event)
    return {i: _producer(topic, topic_id, i, found) for i, found in by_incarnation.items()}


def claimed_since(window: Window, producers: Mapping[int, Producer]) -> dict[int, int]:
    """How far back records are needed to judge the window: per partition the least start of the
    claims that end in it, at most the window's own start."""
    since = {r.partition: r.start for r in window.ranges}
    for producer in producers.values():
        for r in window.ranges:
            if (claims := producer.claims.get(r.partition)) is None:
                continue
            ending = claims.start[(claims.end > r.start) & (claims.end <= r.end)]
            if ending.size:
                since[r.partition] = min(since[r.partition], int(ending.min()))
    return since


def tails(window: Window, producers: Mapping[int, Producer]) -> tuple[OffsetRange, ...]:
    """The offsets before the window whose records are needed beside its own."""
    since = claimed_since(window, producers)
    return tuple(
        OffsetRange(r.partition, since[r.partition], r.start)
        for r in window.ranges
        if since[r.partition] < r.start
    )


def _producer(
    topic: str, topic_id: str | None, incarnation: int, events: Sequence[MonitoringEvent]
) -> Producer:
    accounts: list[tuple[MonitoringEvent, TopicAccount]] = [
        (event, account)
        for event in events
        for account in event.topics
        if account.topic == topic
        and (topic_id is None or account.topic_id is None or account.topic_id == topic_id)
    ]
    rows: dict[int, list[tuple[int, int, int]]] = {}
    for _, account in accounts:
        for claim in account.claims:
            rows.setdefault(claim.partition, []).append((claim.start, claim.end, claim.digest))
    newest = max(accounts, key=lambda pair: pair[0].number, default=None)
    return Producer(
        incarnation=incarnation,
        source=source_text(incarnation, events[-1].application, events[-1].host),
        numbers=tuple(sorted({event.number for event in events})),
        final=any(event.final for event in events),
        last_sent_at_ms=max(event.sent_at_ms for event in events),
        in_flight=newest[1].in_flight if newest else 0,
        claims={partition: Claims.of(found) for partition, found in rows.items()},
        sequences=Spans.of(s for _, account in accounts for s in account.sequences),
        failed=Spans.of((f.first, f.end) for _, account in accounts for f in account.failed),
        failed_at=tuple(
            (f.first, f.end, f.error, event.sent_at_ms)
            for event, account in accounts
            for f in account.failed
        ),
    )
