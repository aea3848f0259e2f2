"""The words of archived books: they are read for years, so none changes by a slip."""

from __future__ import annotations

import json

import pytest

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    FINDING_STATES,
    SEVERITY_ORDER,
    Acceptance,
    Equation,
    Finding,
    WindowState,
    applying,
)

KINDS = {
    "MISSING": "missing beyond_log_end retained_away vanished unreadable log_truncated",
    "DUPLICATE": "duplicate outside",
    "CORRUPT": "corrupt altered",
    "UNPROVEN": "hole unlanded",
    "PENDING": "unjudged pending",
    "UNAUDITED": "undigested evidence_lost unclaimed incarnation_silent unstamped lost_event",
    None: "unacknowledged client_failure",
}
SEVERITY = (
    "MISSING MIXED CORRUPT DUPLICATE UNPROVEN PENDING UNAUDITED FROZEN LANDED ACCEPTED BALANCED"
    " RETIRED"
)


def test_the_states_and_their_order():
    assert " ".join(SEVERITY_ORDER) == SEVERITY
    assert all(state.name == state.value for state in WindowState)


def test_the_equations():
    assert [str(equation) for equation in Equation] == [
        "stored_equals_landed",
        "produced_equals_stored",
        "parsed_plus_quarantined_equals_landed",
    ]
    assert applying(contract=True) == tuple(Equation)
    assert applying(contract=False) == tuple(Equation)[:2]


@pytest.mark.parametrize("state", KINDS)
def test_the_kinds_of_findings_and_what_they_make_of_a_window(state):
    assert {kind for kind, made in FINDING_STATES.items() if made == state} == set(
        KINDS[state].split()
    )


def test_an_acceptance_as_it_is_archived():
    found = (Finding("missing", (OffsetRange(0, 1, 3),)), Finding("lost_event", (), "7", "why", 2))
    acceptance = Acceptance("topic/4", "ann", "known", "2026-11-20T00:05:00Z", found)
    assert json.loads(acceptance.to_bytes()) == {
        "v": 1,
        "window_id": "topic/4",
        "by": "ann",
        "reason": "known",
        "accepted_at": "2026-11-20T00:05:00Z",
        "findings": [
            {
                "kind": "missing",
                "ranges": [{"partition": 0, "start": 1, "end": 3}],
                "incarnation": None,
                "detail": "",
                "records": 0,
            },
            {"kind": "lost_event", "ranges": [], "incarnation": "7", "detail": "why", "records": 2},
        ],
    }
