"""Equation 2: claims that repeat, overlap, lie or reach into other windows; malformed events."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_events import (
    FROZEN_MS,
    LATE,
    OWN,
    WHOLE,
    WINDOW,
    A,
    B,
    account,
    event,
    found_of,
    judged,
    records,
    sum_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.audit_events import (
    APPENDS_PER_SECOND_MAX,
    MalformedEvent,
    PlacedEvent,
    incredible,
    parse_event,
)
from penstock_platform.reconciliation.model.claims import (
    Claims,
    claimed_since,
    producers_of,
    tails,
)


def test_tiers_count_claims_and_what_of_them_is_stored():
    result = judged(records(*[r for r in OWN if r[0] != 12]), [WHOLE])
    assert (result.expected, result.found) == (10, 9)
    assert result.detail["stored"] == 9


def test_a_digest_needs_the_tail_of_the_window_before():
    producers = producers_of("orders", [WHOLE])
    assert claimed_since(WINDOW, producers) == {0: 8}
    assert tails(WINDOW, producers) == (OffsetRange(0, 8, 10),)
    across = producers_of("orders", [event(A, 1, account((0, 8, 25, 1)))])
    assert tails(WINDOW, across) == (), "judged where it ends"
    without = judged(records(*[r for r in OWN if r[0] >= 10]), [WHOLE])
    assert without.detail["digests_unjudged"] == 1
    assert judged(records(*OWN), [WHOLE]).detail["digests_judged"] == 1


def test_repeated_claims_are_summed_once():
    """The same rows in two events (a claim is a fact, not a quantity), overlapping ones too."""
    claims = Claims.of([(8, 20, 5), (8, 20, 5), (12, 14, 1)])
    assert len(claims) == 2
    assert claims.merged().pairs() == [(8, 20)]
    twice = [WHOLE, event(A, 2, account((0, 8, 20, sum_of(A, range(8, 20)))))]
    result = judged(records(*OWN), twice)
    assert (result.expected, result.found, result.detail["digests_judged"]) == (10, 10, 1)


@pytest.mark.parametrize("sequence", [2**62, 2**63 - 1, -5])
def test_a_stamp_with_an_impossible_sequence_counts_as_none(sequence):
    result = judged(records((10, A, sequence)), [])
    assert found_of(result) == {"unstamped": (None, [(10, 11)])}


def test_a_forged_number_costs_no_memory():
    """Event 1, then event 2^62: the numbers between are counted, not listed."""
    [producer] = producers_of("orders", [event(A, 1), event(A, 2**62)]).values()
    assert producer.lost_events == ((2, 2**62),)
    rows = [(10, A, 10), (11, A, 2**61)]
    events = [event(A, 1, account((0, 10, 12, sum_of(A, (10, 2**61))))), event(A, 2**62)]
    result = judged(records(*rows), events, after=LATE)
    assert {f.kind for f in result.findings} == {"lost_event"}


LOG_ENDS = {0: 20}


@pytest.mark.parametrize(
    ("claim", "believed"),
    [
        ((0, 20, 20 + 60 * APPENDS_PER_SECOND_MAX, 1), True),
        ((0, 20, 21 + 60 * APPENDS_PER_SECOND_MAX, 1), False),
        ((1, 0, 1, 1), False),
    ],
)
def test_a_claim_is_believed_as_far_as_a_log_can_have_grown(claim, believed):
    placed = PlacedEvent(3, 9, event(A, 1, account(claim), sent_at_ms=FROZEN_MS))
    wrong = incredible(placed, WINDOW, LOG_ENDS)
    assert (wrong is None) is believed
    if wrong is not None:
        assert (wrong.partition, wrong.offset, wrong.incarnation) == (3, 9, A)
        assert wrong.source == f"a on h, incarnation {A}"
        assert "orders" in wrong.reason
    assert incredible(placed, WINDOW, None) is None, "nothing is known of the log"


def test_a_claim_is_believed_further_the_later_it_comes():
    claim = (0, 20, 21 + 60 * APPENDS_PER_SECOND_MAX, 1)
    late = event(A, 1, account(claim), sent_at_ms=FROZEN_MS + 1000)
    assert incredible(PlacedEvent(0, 0, late), WINDOW, LOG_ENDS) is None
    other = replace(account(claim), topic_id="another")
    early = event(A, 1, other, sent_at_ms=FROZEN_MS)
    assert incredible(PlacedEvent(0, 0, early), WINDOW, LOG_ENDS) is None, "not of this topic"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_an_event_or_named_as_malformed(data):
    found = parse_event(1, 2, b'{"incarnation":"77","host":"' + data)
    assert isinstance(found, MalformedEvent)
    assert (found.partition, found.offset, found.incarnation) == (1, 2, 77)
    assert found.source.endswith("incarnation 77")
    assert len(found.reason) <= 300 and found.source.isprintable()


def test_the_source_of_a_malformed_event_is_named_where_it_can_be_read():
    whole = WHOLE.to_bytes()
    cut = parse_event(0, 0, whole[: len(whole) // 2])
    assert (cut.incarnation, cut.application, cut.host) == (A, "a", "h")
    assert parse_event(0, 0, None).source == "an unknown source"
    assert parse_event(0, 0, b'{"incarnation": "%d"}' % 10**30).incarnation is None
    assert parse_event(0, 0, b"\xff" * 100_000).source == "an unknown source"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2**62 - 1), st.integers(1, 2**62)), max_size=8
    ),
    st.integers(1, 2**63 - 1),
)
def test_whatever_is_claimed_is_judged_without_allocating_its_span(claims, number):
    accounts = account(*((p, s, min(s + n, 2**62), 1) for p, s, n in claims))
    false = [event(B, number, accounts), event(B, 1)]
    result = judged(records(*OWN), [WHOLE, *false], log_ends={0: 20, 1: 0})
    wanted = {(f.kind, f.incarnation) for f in result.findings}
    assert all(incarnation == str(B) for _, incarnation in wanted)


def test_a_claim_that_ends_where_the_window_starts_brings_no_tail():
    producers = producers_of("orders", [event(A, 1, account((0, 3, 10, 1), (0, 10, 12, 1)))])
    assert claimed_since(WINDOW, producers) == {0: 10}
    assert tails(WINDOW, producers) == ()
