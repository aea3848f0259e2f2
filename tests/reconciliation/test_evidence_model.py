"""Equation 2 against a model of producers whose every mishap is known."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from evidence_events import (
    GRACE,
    account,
    digest,
    event,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_platform.clock import from_iso
from penstock_platform.reconciliation.model.claims import (
    StoredRecords,
)
from penstock_platform.reconciliation.model.evidence import Circumstances, produced_equals_stored
from penstock_platform.testing.windows import make_window


@dataclass
class Model:
    """Producers into two partitions, mishaps at random; what must be found is written down."""

    rng: random.Random
    log: dict = field(default_factory=lambda: {0: [], 1: []})
    claims: list = field(default_factory=list)  # (incarnation, partition, offset, sequence)
    failed: dict = field(default_factory=dict)
    expected: dict = field(default_factory=dict)

    def expect(self, kind, partition, offset):
        self.expected.setdefault(kind, set()).add((partition, offset))

    def produce(self, incarnation, sequence):
        partition = self.rng.randrange(2)
        log = self.log[partition]
        offset = len(log)
        fate = self.rng.random()
        if fate < 0.03:  # acknowledged; the record was then lost, and its place taken by a stranger
            log.append((-1, -1, None))
            self.claims.append((incarnation, partition, offset, sequence))
            self.expect("missing", partition, offset)
            self.expect("unstamped", partition, offset)
        elif fate < 0.06:  # stored, the answer lost, stored again, acknowledged
            log += [(incarnation, sequence, None)] * 2
            self.claims.append((incarnation, partition, offset + 1, sequence))
            self.expect("duplicate", partition, offset)
        elif fate < 0.09:  # stored; the client got an error
            log.append((incarnation, sequence, None))
            self.failed.setdefault(incarnation, []).append((sequence, sequence + 1, "timed out"))
            self.expect("unacknowledged", partition, offset)
        elif fate < 0.12:  # stored; the producer never reported it
            log.append((incarnation, sequence, None))
            self.expect("loose", partition, offset)
        elif fate < 0.14:  # acknowledged; changed on the disk
            log.append((incarnation, sequence, 12345))
            self.claims.append((incarnation, partition, offset, sequence))
            self.expect("corrupt", partition, offset)
        elif fate < 0.16:
            log.append((-1, -1, None))
            self.expect("unstamped", partition, offset)
        else:
            log.append((incarnation, sequence, None))
            self.claims.append((incarnation, partition, offset, sequence))

    def events(self, digest_of):
        """The claims as runs of consecutive offsets, cut at random, in events that are shuffled."""
        runs = []
        for incarnation, partition, offset, sequence in sorted(self.claims):
            last = runs[-1] if runs else None
            joins = last and last[:2] == [incarnation, partition] and last[3] == offset
            if joins and self.rng.random() < 0.7:
                last[3] = offset + 1
                last[4] += digest_of(incarnation, sequence)
            else:
                runs.append(
                    [incarnation, partition, offset, offset + 1, digest_of(incarnation, sequence)]
                )
        found = [
            event(i, 1, account(failed=f), uuid=f"failed-{i}") for i, f in self.failed.items()
        ] + [
            event(i, 1, account((p, s, e, d % 2**64)), uuid=f"run-{n}")
            for n, (i, p, s, e, d) in enumerate(runs)
        ]
        self.rng.shuffle(found)
        return found, runs

    def undigested(self, runs, bounds):
        """What is left in a window of claims that lost a record in the window before."""
        lost = self.expected.get("missing", set())
        found = set()
        for _, p, start, end, _ in runs:
            low = max(b for b in bounds[p][:3] if b < end)
            here = {(p, o) for o in range(max(start, low), end)}
            if any((p, o) in lost for o in range(start, end)) and not here & lost:
                found |= here
        return found

    def stored(self):
        return {
            p: StoredRecords.of(
                range(len(log)),
                [i for i, _, _ in log],
                [s for _, s, _ in log],
                [0 if i < 0 else digest(i, s) if d is None else d for i, s, d in log],
            )
            for p, log in self.log.items()
        }


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_every_mishap_of_a_random_history_is_found_in_its_window(seed):
    model = Model(random.Random(seed))
    sequences = {101: 0, 102: 0, 103: 0}
    for _ in range(model.rng.randrange(20, 200)):
        incarnation = model.rng.choice(sorted(sequences))
        model.produce(incarnation, sequences[incarnation])
        sequences[incarnation] += 1
    events, runs = model.events(digest)
    ends = {p: len(log) for p, log in model.log.items()}
    cuts = {p: sorted(model.rng.randrange(end + 1) for _ in range(2)) for p, end in ends.items()}
    bounds = {p: [0, *cuts[p], ends[p]] for p in ends}
    found: dict = {}
    claimed = 0
    window = None
    for n in range(3):
        window = make_window({p: (b[n], b[n + 1]) for p, b in bounds.items()}, previous=window)
        at = from_iso(window.frozen_at)
        late = [replace(e, sent_at_ms=0) for e in events]
        circumstances = Circumstances(at + GRACE, GRACE, log_ends=ends)
        result = produced_equals_stored(window, model.stored(), late, circumstances)
        claimed += result.expected
        for f in result.findings:
            for r in f.ranges:
                offsets = {(r.partition, o) for o in range(r.start, r.end)}
                low, high = bounds[r.partition][n : n + 2]
                assert f.kind == "corrupt" or (low <= r.start and r.end <= high)
                found.setdefault(f.kind, set()).update(offsets)
    assert claimed == len(model.claims)
    corrupt = model.expected.pop("corrupt", set())
    loose = model.expected.pop("loose", set())
    # a claim with a changed record is corrupt as a whole, unless a record of it is missing
    wrong = {
        (p, o)
        for i, p, s, e, _ in runs
        if any((p, o) in corrupt for o in range(s, e))
        and not any((p, o) in model.expected.get("missing", ()) for o in range(s, e))
        for o in range(s, e)
    }
    assert found.pop("corrupt", set()) == wrong, f"seed {seed}"
    assert found.pop("undigested", set()) == model.undigested(runs, bounds), f"seed {seed}"
    unclaimed = found.pop("unclaimed", set()) | found.pop("incarnation_silent", set())
    assert unclaimed == loose, f"seed {seed}"
    assert found == model.expected, f"seed {seed}"
