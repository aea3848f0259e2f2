"""Claims on offsets that exist twice: before a log was cut there, and after it grew again.

A claim names offsets, not leader epochs. Where two windows hold other records at the same offsets,
a claim belongs to the one whose records have its producer and its digest; for the other it says
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock_client.audit import Claim
from penstock_platform.ranges import OffsetRange, intersect
from penstock_platform.reconciliation.model.audit_events import PlacedEvent
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.windows.model.truncation import Cut, lost_ranges
from penstock_platform.windows.model.window import Window


def shared_ranges(one: Window, other: Window, cuts: Sequence[Cut]) -> tuple[OffsetRange, ...]:
    """The offsets at which both windows hold records, not the same ones; in either order."""
    earlier, later = (one, other) if one.sequence < other.sequence else (other, one)
    return intersect(lost_ranges(earlier, cuts), later.ranges)


def claims_within(
    events: Sequence[PlacedEvent], topic: str, shared: Sequence[OffsetRange]
) -> list[OffsetRange]:
    """The offsets of all claims on the topic that touch these ranges."""
    return [
        OffsetRange(claim.partition, claim.start, claim.end)
        for placed in events
        for account in placed.event.topics
        if account.topic == topic
        for claim in account.claims
        if _touches(claim, shared)
    ]


def without_claims_of(
    events: Sequence[PlacedEvent],
    topic: str,
    shared: Sequence[OffsetRange],
    records: Sequence[Mapping[int, StoredRecords]],
) -> tuple[PlacedEvent, ...]:
    """The events without the claims that touch ``shared`` and are met by ``records``, which are
    the other window's and of those before it."""

    def kept(claim: Claim, incarnation: int) -> bool:
        return not (_touches(claim, shared) and _met(claim, incarnation, records))

    return tuple(
        replace(
            placed,
            event=replace(
                placed.event,
                topics=tuple(
                    account
                    if account.topic != topic
                    else replace(
                        account,
                        claims=tuple(
                            c for c in account.claims if kept(c, placed.event.incarnation)
                        ),
                    )
                    for account in placed.event.topics
                ),
            ),
        )
        for placed in events
    )


def _touches(claim: Claim, shared: Sequence[OffsetRange]) -> bool:
    return any(
        r.partition == claim.partition and claim.start < r.end and r.start < claim.end
        for r in shared
    )


def _met(claim: Claim, incarnation: int, records: Sequence[Mapping[int, StoredRecords]]) -> bool:
    """Whether these records are the claim's: every offset, its producer, and its digest."""
    offsets = 0
    digest = 0
    for found in (part.get(claim.partition) for part in records):
        if found is not None:
            inside = (found.offset >= claim.start) & (found.offset < claim.end)
            own = found.take(inside & (found.incarnation == incarnation)).in_order()
            offsets += len(own)
            digest += int(own.digest.sum(dtype=np.uint64))
    return offsets == claim.end - claim.start and digest % 2**64 == claim.digest
