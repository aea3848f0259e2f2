"""One window, monitoring events and stored records for it, and what equation 2 finds."""

from __future__ import annotations

from datetime import timedelta

from penstock_client.audit import Claim, FailedRecords, TopicAccount
from penstock_platform.clock import from_iso
from penstock_platform.reconciliation.model.claims import (
    StoredRecords,
)
from penstock_platform.reconciliation.model.evidence import Circumstances, produced_equals_stored
from penstock_platform.reconciliation.model.unjudged import EvidenceGaps
from penstock_platform.testing.events import make_event
from penstock_platform.testing.windows import make_window

GRACE = timedelta(minutes=15)
BEFORE = make_window({0: (0, 10)})
WINDOW = make_window({0: (10, 20)}, previous=BEFORE)
FROZEN = from_iso(WINDOW.frozen_at)
FROZEN_MS = round(FROZEN.timestamp() * 1000)
A, B = 111, 222


def event(incarnation, number, *accounts, final=False, sent_at_ms=FROZEN_MS - 5000, uuid=None):
    return make_event(incarnation, number, *accounts, sent_at_ms=sent_at_ms, final=final, uuid=uuid)


def account(*claims, sequences=(), failed=(), topic="orders"):
    return TopicAccount(
        topic=topic,
        claims=tuple(Claim(*claim) for claim in claims),
        sequences=tuple(sequences),
        failed=tuple(FailedRecords(*f) for f in failed),
    )


def digest(incarnation, sequence):
    return (incarnation * 0x9E3779B97F4A7C15 + sequence * 0xC2B2AE3D27D4EB4F) % 2**64


def sum_of(incarnation, sequences):
    return sum(digest(incarnation, s) for s in sequences) % 2**64


def records(*rows):
    """Rows (offset, incarnation, sequence) of partition 0; incarnation -1: no header."""
    return {
        0: StoredRecords.of(
            [r[0] for r in rows],
            [r[1] for r in rows],
            [r[2] for r in rows],
            [digest(r[1], r[2]) if r[1] > 0 else 0 for r in rows],
        )
    }


def judged(stored, events, *, after=timedelta(seconds=10), log_ends=None, unlanded=(), gaps=None):
    gaps = gaps or EvidenceGaps()
    return produced_equals_stored(
        WINDOW, stored, events, Circumstances(FROZEN + after, GRACE, log_ends, unlanded, gaps)
    )


def found_of(result):
    """Findings as {kind: (incarnation, [(start, end)])}; what has no offsets, its record count."""
    return {
        f.kind: (
            f.incarnation,
            [(r.start, r.end) for r in f.ranges] if f.ranges else f.records,
        )
        for f in result.findings
    }


OWN = [(o, A, o) for o in range(8, 20)]  # incarnation A's records 8-19; its sequences likewise
WHOLE = event(A, 1, account((0, 8, 20, sum_of(A, range(8, 20))), sequences=[(8, 20)]))
LATE = GRACE + timedelta(seconds=1)
