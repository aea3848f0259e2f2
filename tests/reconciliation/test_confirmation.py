"""Claims that are confirmed by their sums: the judgement is that on every record."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_events import GRACE, account, digest, event, records, sum_of
from held_records import HeldRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from produced_history import cut_into_windows, random_history

from penstock_platform.clock import from_iso
from penstock_platform.ranges import OffsetRange, merge
from penstock_platform.reconciliation import confirmation
from penstock_platform.reconciliation.confirmation import look_at
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.reconciliation.model.claims import producers_of, tails
from penstock_platform.reconciliation.model.confirmed import confirm, confirmable
from penstock_platform.reconciliation.model.evidence import Circumstances, produced_equals_stored
from penstock_platform.testing.windows import make_window


def findings(result):
    return sorted((f.kind, f.incarnation or "", merge(f.ranges), f.detail) for f in result.findings)


def looked_at(reader, windows, events, circumstances):
    producers = producers_of(windows[-1].topic, events)
    wanted = [*tails(windows[-1], producers), *windows[-1].ranges]
    looked, confirmed = look_at(reader, windows, wanted, producers)
    return produced_equals_stored(windows[-1], looked, events, circumstances, confirmed)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_the_judgement_is_that_on_every_record(seed, over, lost_event):
    history = random_history(seed)
    events, _ = history.events(digest)
    if lost_event:  # a number is left out, and what it said with it
        events = [replace(e, number=2 * n + 1) for n, e in enumerate(events[1:])]
    windows, _ = cut_into_windows(history)
    ends = {p: len(log) for p, log in history.log.items()}
    for n, window in enumerate(windows):
        at = from_iso(window.frozen_at) + (GRACE if over else GRACE / 2)
        circumstances = Circumstances(at, GRACE, log_ends=ends)
        reader = HeldRecords(history.stored())
        wanted = [*tails(window, producers_of(window.topic, events)), *window.ranges]
        all_of_them = reader.by_partition(list(reader.rows(windows, wanted)))
        every = produced_equals_stored(window, all_of_them, events, circumstances)
        found = looked_at(reader, windows[: n + 1], events, circumstances)
        assert findings(found) == findings(every), f"seed {seed}"
        assert replace(found, findings=()) == replace(every, findings=()), f"seed {seed}"


A, B = 111, 222
WINDOW = make_window({0: (0, 20)})
AT = from_iso(WINDOW.frozen_at)
STORED = [(o, A, o) for o in range(12)] + [(o, B, o) for o in range(12, 20)]


def claimed(*claims, number=1, incarnation=A, sequences=None):
    """An event whose claims are right, on sequences that are the offsets."""
    spans = [(start, end) for start, end in claims] if sequences is None else sequences
    return event(
        incarnation,
        number,
        account(*((0, s, e, sum_of(incarnation, range(s, e))) for s, e in claims), sequences=spans),
    )


def confirmed_of(stored, *events, window=WINDOW):
    producers = producers_of(window.topic, events)
    table = confirmable(window, producers)
    held = confirm(table, HeldRecords(records(*stored)).sums([window], table))
    return {
        (incarnation, start, end)
        for (incarnation, _), claims in held.claims.items()
        for start, end in zip(claims.start.tolist(), claims.end.tolist(), strict=True)
    }, held


def test_right_claims_are_confirmed_and_no_record_of_theirs_is_brought():
    events = [claimed((0, 5), (5, 12)), claimed((12, 20), incarnation=B)]
    found, held = confirmed_of(STORED, *events)
    assert found == {(A, 0, 5), (A, 5, 12), (B, 12, 20)}
    assert held.sequences == {A: (0, 11), B: (12, 19)}
    assert held.remaining(WINDOW.ranges) == ()
    reader = HeldRecords(records(*STORED))
    result = looked_at(reader, [WINDOW], events, Circumstances(AT, GRACE, log_ends={0: 20}))
    assert result.state is WindowState.BALANCED
    assert (result.expected, result.detail["stored"], result.detail["digests_judged"]) == (
        20,
        20,
        3,
    )
    assert reader.brought == 0


@pytest.mark.parametrize(
    "stored",
    [
        STORED[1:],
        [(0, A, 7), *STORED[1:]],
        [(0, B, 0), *STORED[1:]],
        [*STORED, (3, A, 3)],
        [*STORED, (3, B, 3)],
    ],
    ids=["a record is gone", "another record", "another producer's", "a row twice", "one beside"],
)
def test_a_claim_that_does_not_hold_is_not_confirmed(stored):
    found, held = confirmed_of(stored, claimed((0, 5), (5, 12)))
    assert found == {(A, 5, 12)}
    assert held.remaining(WINDOW.ranges) == (OffsetRange(0, 0, 5), OffsetRange(0, 12, 20))


@pytest.mark.parametrize(
    "event_of_a",
    [
        claimed((0, 5), (4, 12), sequences=[(0, 13)]),
        claimed((0, 4), (4, 12), sequences=[(0, 11)]),
        claimed((0, 4), (4, 12), sequences=[(0, 13)]),
    ],
    ids=["overlapping", "a sequence acknowledged twice", "one that no claim has"],
)
def test_claims_that_sums_cannot_judge_are_not_confirmed(event_of_a):
    assert confirmed_of(STORED, event_of_a)[0] == set()


def test_claims_of_two_producers_on_one_offset_are_not_confirmed():
    events = [claimed((0, 5), (6, 12)), claimed((4, 5), (12, 20), incarnation=B)]
    assert confirmed_of(STORED, *events)[0] == {(A, 6, 12), (B, 12, 20)}


def test_claims_that_end_elsewhere_are_not_this_windows():
    later = make_window({0: (5, 10)}, previous=make_window({0: (0, 5)}))
    assert confirmed_of(STORED, claimed((0, 5), (5, 10), (10, 12)), window=later)[0] == {(A, 5, 10)}


def test_a_claim_from_the_window_before_is_confirmed_with_that_windows_records():
    before = make_window({0: (0, 5)})
    window = make_window({0: (5, 12)}, previous=before)
    events = [claimed((2, 9), (9, 12))]
    reader = HeldRecords(records(*STORED))
    result = looked_at(reader, [before, window], events, Circumstances(AT, GRACE))
    assert result.state is WindowState.BALANCED
    assert reader.brought == 0
    _, held = confirmed_of(STORED, *events, window=window)
    assert held.claims.keys() == {(A, 0)}


def test_a_copy_of_a_confirmed_record_is_found_with_its_original():
    stored = [*STORED[:12], (12, A, 3), *STORED[13:]]
    events = [claimed((0, 12)), claimed((13, 20), incarnation=B)]
    reader = HeldRecords(records(*stored))
    result = looked_at(reader, [WINDOW], events, Circumstances(AT, GRACE))
    assert findings(result) == [
        ("duplicate", str(A), (OffsetRange(0, 12, 13),), "a sequence that is stored elsewhere too")
    ]
    assert reader.brought == 2


@pytest.mark.parametrize("over", [False, True])
def test_more_records_than_can_be_looked_at_are_due_and_then_unaudited(monkeypatch, over):
    """Neither missing nor balanced: they were not looked at."""
    monkeypatch.setattr(confirmation, "REMAINING_MAX", 7)
    events = [claimed((0, 12))]
    at = AT + (GRACE if over else GRACE / 2)
    reader = HeldRecords(records(*STORED))
    result = looked_at(reader, [WINDOW], events, Circumstances(at, GRACE))
    assert result.state is (WindowState.UNAUDITED if over else WindowState.PENDING)
    (found,) = result.findings
    assert (found.kind, found.ranges) == (
        "unclaimed" if over else "pending",
        (OffsetRange(0, 12, 20),),
    )
    assert result.detail["stored"] == 20
    # claimed, and not looked at: neither missing nor judged
    wrong = [(0, A, 9), *STORED[1:]]
    reader = HeldRecords(records(*wrong))
    result = looked_at(reader, [WINDOW], events, Circumstances(at, GRACE))
    assert {f.kind for f in result.findings} == (
        {"unclaimed", "undigested"} if over else {"pending", "unjudged"}
    )
    assert result.found == result.expected == 12
