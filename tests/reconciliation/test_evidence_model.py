"""Equation 2 against a model of producers whose every mishap is known."""

from __future__ import annotations

from dataclasses import replace

from evidence_events import (
    GRACE,
    digest,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from produced_history import cut_into_windows, random_history

from penstock_platform.clock import from_iso
from penstock_platform.reconciliation.model.evidence import Circumstances, produced_equals_stored


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_every_mishap_of_a_random_history_is_found_in_its_window(seed):
    model = random_history(seed)
    events, runs = model.events(digest)
    ends = {p: len(log) for p, log in model.log.items()}
    windows, bounds = cut_into_windows(model)
    found: dict = {}
    claimed = 0
    for n, window in enumerate(windows):
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
        for i, p, s, e, *_ in runs
        if any((p, o) in corrupt for o in range(s, e))
        and not any((p, o) in model.expected.get("missing", ()) for o in range(s, e))
        for o in range(s, e)
    }
    assert found.pop("corrupt", set()) == wrong, f"seed {seed}"
    assert found.pop("undigested", set()) == model.undigested(runs, bounds), f"seed {seed}"
    unclaimed = found.pop("unclaimed", set()) | found.pop("incarnation_silent", set())
    assert unclaimed == loose, f"seed {seed}"
    assert found == model.expected, f"seed {seed}"
