"""What a person accepted covers what was found then: no other kind, producer, offset or growth."""

from __future__ import annotations

import pytest

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    Acceptance,
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.retention.model.proof import SweepCandidate, unproven_reason
from penstock_platform.testing.windows import make_window

WINDOW = make_window({0: (0, 100)})
S = WindowState


def finding(kind="unclaimed", *spans, incarnation="7", records=0):
    ranges = tuple(OffsetRange(*span) for span in spans)
    return Finding(kind, ranges, incarnation, records=records)


def accepted(*findings):
    return Acceptance(WINDOW.window_id, "me", "why", "2026-11-20T00:00:00Z", findings)


FOUND = finding("unclaimed", (0, 10, 20), (1, 5, 6))
LOST = finding("lost_event", records=3)


@pytest.mark.parametrize(
    "later,covered",
    [
        (FOUND, True),
        (finding("unclaimed", (0, 10, 20)), True),
        (finding("unclaimed", (0, 12, 15)), True),
        (finding("unclaimed", (0, 10, 21)), False),
        (finding("unclaimed", (0, 9, 20)), False),
        (finding("unclaimed", (2, 10, 20)), False),
        (finding("unclaimed", (0, 10, 20), (0, 40, 41)), False),
        (finding("unclaimed", (0, 10, 20), incarnation="8"), False),
        (finding("unclaimed", (0, 10, 20), incarnation=None), False),
        (finding("incarnation_silent", (0, 10, 20)), False),
        (LOST, True),
        (finding("lost_event", records=2), True),
        (finding("lost_event", records=4), False),
        (finding("lost_event", records=3, incarnation="8"), False),
        (finding("client_failure", records=1), False),
    ],
)
def test_an_acceptance_covers_what_was_found_and_nothing_that_grew(later, covered):
    assert accepted(FOUND, LOST).covers(later) is covered


def test_two_acceptances_of_one_kind_cover_their_sum():
    word = accepted(finding("unclaimed", (0, 0, 5)), finding("unclaimed", (0, 5, 10)))
    assert word.covers(finding("unclaimed", (0, 0, 10)))
    assert not word.covers(finding("unclaimed", (0, 0, 11)))


def judged(landed=S.BALANCED, produced=S.BALANCED, first=(), second=()):
    results = [
        EquationResult(Equation.STORED_EQUALS_LANDED, landed, 100, 100, tuple(first)),
        EquationResult(Equation.PRODUCED_EQUALS_STORED, produced, 100, 100, tuple(second)),
    ]
    book = Book.of(WINDOW, results, made_at="2026-11-20T00:02:00Z", code_version="t")
    return results[0], book


def reason(landed, book, *acceptances):
    return unproven_reason(SweepCandidate(WINDOW, landed, book, acceptances), False)


@pytest.mark.parametrize("state", [S.MISSING, S.UNPROVEN, S.PENDING, S.CORRUPT])
def test_an_unbalanced_result_that_names_no_finding_is_never_accepted(state):
    """There is nothing in it that a person could have looked at."""
    informs = finding("unacknowledged", (0, 0, 100))
    for findings in ((), (informs,)):
        landed, book = judged(landed=state, first=findings)
        assert reason(landed, book, accepted(FOUND, informs)) == f"stored = landed is {state}"
        landed, book = judged(produced=state, second=findings)
        assert reason(landed, book, accepted(FOUND, informs)) == f"produced = stored is {state}"


def test_each_finding_that_matters_has_to_be_accepted():
    gone = finding("missing", (0, 3, 4), incarnation=None)
    landed, book = judged(landed=S.MISSING, first=(gone, FOUND))
    assert reason(landed, book, accepted(gone)) == "stored = landed is MISSING"
    assert reason(landed, book, accepted(gone), accepted(FOUND)) is None
    landed, book = judged(produced=S.UNAUDITED, second=(FOUND,))
    assert reason(landed, book, accepted(FOUND)) is None
    assert reason(landed, book) == "produced = stored is UNAUDITED"
