"""Looking at a window's records in memory, one by one: the oracle of ``SparkClaims``."""

from __future__ import annotations

import numpy as np

from penstock_platform.ranges import OffsetRange, Spans, intersect
from penstock_platform.reconciliation import confirmation
from penstock_platform.reconciliation.confirmation import Remaining
from penstock_platform.reconciliation.model.claims import StoredRecords
from penstock_platform.reconciliation.model.confirmed import ClaimSums


class HeldRecords:
    """``ClaimReader`` on records in memory, record by record. ``brought`` counts those it gives."""

    def __init__(self, stored):
        self.stored = stored
        self.brought = 0

    def rows(self, windows, ranges):
        for p, found in self.stored.items():
            inside = intersect([r for w in windows for r in w.ranges], ranges)
            for row in zip(
                found.offset.tolist(),
                found.incarnation.tolist(),
                found.sequence.tolist(),
                found.digest.tolist(),
                strict=True,
            ):
                if any(r.partition == p and row[0] in r for r in inside):
                    yield p, row

    def sums(self, windows, claims):
        sums = ClaimSums.none(len(claims))
        for n in range(len(claims)):
            p, start, end = (int(a[n]) for a in (claims.partition, claims.start, claims.end))
            for _, (offset, incarnation, sequence, made) in self.rows(
                windows, [OffsetRange(p, start, end)]
            ):
                sums.rows[n] += 1
                if incarnation == claims.incarnation[n]:
                    sums.own[n] += 1
                    sums.digest[n] = (int(sums.digest[n]) + made) % 2**64
                    if offset >= claims.window_start[n]:
                        known = sums.first[n] if sums.first[n] >= 0 else sequence
                        sums.first[n] = min(known, sequence)
                        sums.last[n] = max(sums.last[n], sequence)
        return sums

    def remaining(self, windows, ranges):
        found = list(self.rows(windows, ranges))
        stamped = [(p, row) for p, row in found if row[1] > 0]
        bare = {p: [row[0] for q, row in found if q == p and row[1] <= 0] for p in self.stored}
        unstamped = {p: Spans.of_values(np.array(o, np.int64)) for p, o in bare.items()}
        if len(stamped) > confirmation.REMAINING_MAX:
            unread = {p: [row[0] for q, row in stamped if q == p] for p in self.stored}
            spans = {p: Spans.of_values(np.array(o, np.int64)) for p, o in unread.items()}
            return Remaining({}, unstamped, spans)
        return Remaining(self.by_partition(stamped), unstamped)

    def with_sequences(self, windows, ranges, incarnation, sequence):
        keys = set(zip(incarnation.tolist(), sequence.tolist(), strict=True))
        found = [(p, row) for p, row in self.rows(windows, ranges) if row[1:3] in keys]
        return self.by_partition(found)

    def by_partition(self, found):
        self.brought += len(found)
        return {
            p: StoredRecords.of(*zip(*(row for q, row in found if q == p), strict=True))
            for p in {p for p, _ in found}
        }
