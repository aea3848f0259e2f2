"""The book: states of equations and windows, what is taken over, and its bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.domain.books import (
    FINDING_STATES,
    SEVERITY_ORDER,
    Book,
    BookFormatError,
    Equation,
    EquationResult,
    Finding,
    WindowState,
    overall_state,
    state_of_findings,
)
from penstock_platform.domain.ranges import OffsetRange
from penstock_platform.testing.windows import make_window

WINDOW = make_window({0: (0, 10)})
LANDED, PRODUCED, PARSED = Equation
S = WindowState


def result(equation, state=S.BALANCED, *findings, **detail):
    return EquationResult(equation, state, 10, 10, findings, detail)


def book(*results, window=WINDOW, **options):
    return Book.of(window, results, made_at="2026-11-20T00:02:00Z", code_version="test", **options)


def test_every_state_has_its_place_in_the_order_of_severity():
    assert sorted(SEVERITY_ORDER) == sorted(WindowState)


@pytest.mark.parametrize(
    "results,state",
    [
        ([], S.FROZEN),
        ([result(PRODUCED)], S.FROZEN),
        ([result(LANDED)], S.LANDED),
        ([result(LANDED), result(PARSED)], S.LANDED),
        ([result(LANDED), result(PRODUCED)], S.BALANCED),
        ([result(LANDED), result(PRODUCED), result(PARSED)], S.BALANCED),
        ([result(LANDED), result(PRODUCED, S.PENDING)], S.PENDING),
        ([result(LANDED), result(PRODUCED, S.UNAUDITED)], S.UNAUDITED),
        ([result(LANDED, S.MISSING), result(PRODUCED, S.PENDING)], S.MISSING),
        ([result(LANDED), result(PRODUCED), result(PARSED, S.DUPLICATE)], S.DUPLICATE),
        ([result(LANDED, S.DUPLICATE), result(PRODUCED, S.CORRUPT)], S.CORRUPT),
        ([result(LANDED, S.UNPROVEN), result(PRODUCED, S.UNAUDITED)], S.UNPROVEN),
    ],
)
def test_a_window_is_as_bad_as_its_worst_equation(results, state):
    assert overall_state(results) is state
    assert book(*results).state is state


@given(st.sets(st.sampled_from(sorted(FINDING_STATES))))
def test_findings_make_states_and_two_kinds_of_damage_are_mixed(kinds):
    state = state_of_findings(Finding(kind, (OffsetRange(0, 0, 1),)) for kind in kinds)
    states = {FINDING_STATES[kind] for kind in kinds} - {None}
    damage = states & {S.MISSING, S.DUPLICATE, S.CORRUPT}
    if len(damage) > 1:
        assert state is S.MIXED
    elif damage:
        assert {state} == damage
    elif S.PENDING in states:
        assert state in (S.PENDING, S.UNPROVEN)
    elif not states:
        assert state is S.BALANCED


def test_a_book_is_read_back_whole():
    finding = Finding("missing", (OffsetRange(0, 1, 3),), "123", "why")
    made = book(
        result(LANDED, S.MISSING, finding, rows=8),
        result(PRODUCED, S.PENDING, Finding("pending", (), records=4)),
        result(PARSED, parsed=7, quarantined=1),
        snapshots={"lake.bronze.orders": 5},
        evidence={"events": 3},
    )
    assert Book.from_bytes(made.to_bytes()) == made
    assert made.tiers == {
        "stored": 10,
        "landed": 10,
        "produced": 10,
        "parsed": 7,
        "quarantined": 1,
    }
    assert [f.count for f in made.findings] == [2, 4]
    raw = json.loads(made.to_bytes())
    for change in ({"v": 2}, {"state": "FINE"}, {"x": 1}, {"equations": 3}):
        with pytest.raises(BookFormatError):
            Book.from_bytes(json.dumps({**raw, **change}).encode())


def test_what_was_not_judged_now_is_taken_over_from_the_book_before():
    first = book(result(LANDED), result(PARSED), snapshots={"t": 1}, evidence={"events": 1})
    second = book(result(PRODUCED), earlier=first)
    assert second.state is S.BALANCED
    assert [r.equation for r in second.equations] == [LANDED, PRODUCED, PARSED]
    assert second.snapshots == {"t": 1}
    third = book(result(LANDED, S.MISSING), earlier=second)
    assert third.state is S.MISSING
    assert third.result(PRODUCED).balanced


def test_nothing_is_taken_over_from_another_windows_book():
    other = make_window({0: (0, 11)})
    assert book(result(PRODUCED), window=other, earlier=book(result(LANDED))).state is S.FROZEN
