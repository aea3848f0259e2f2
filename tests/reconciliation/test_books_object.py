"""The book: states of equations and windows, what is taken over, and its bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    FINDING_STATES,
    SEVERITY_ORDER,
    Acceptance,
    Book,
    BookFormatError,
    Equation,
    EquationResult,
    Finding,
    WindowState,
    accepted_equations,
    applying,
    overall_state,
    state_of_findings,
    state_on,
)
from penstock_platform.testing.windows import make_window

WINDOW = make_window({0: (0, 10)})
LANDED, PRODUCED, PARSED = Equation
S = WindowState


def result(equation, state=S.BALANCED, *findings, landing="", **detail):
    return EquationResult(equation, state, 10, 10, findings, detail, landing)


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
    for change in ({"v": 1}, {"state": "FINE"}, {"x": 1}, {"equations": 3}, {"applies": ["four"]}):
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


ALL = applying(contract=True)


@pytest.mark.parametrize(
    "results,state",
    [
        ([result(LANDED)], S.LANDED),
        ([result(LANDED), result(PARSED)], S.LANDED),
        ([result(LANDED), result(PRODUCED)], S.PENDING),
        ([result(LANDED), result(PRODUCED, S.UNAUDITED)], S.PENDING),
        ([result(LANDED, S.MISSING), result(PRODUCED)], S.MISSING),
        ([result(LANDED), result(PRODUCED), result(PARSED)], S.BALANCED),
    ],
)
def test_a_topic_with_a_contract_is_not_balanced_before_it_is_parsed(results, state):
    made = book(*results, applies=ALL)
    assert made.state is state
    assert ("never judged" in " ".join(made.unjudged)) == (len(results) < 3)


@pytest.mark.parametrize("stale", Equation)
@pytest.mark.parametrize("found", [S.BALANCED, S.UNAUDITED, S.PENDING, S.MISSING, S.CORRUPT])
def test_a_result_about_an_older_landing_never_balances(stale, found):
    results = [
        result(e, found if e is stale else S.BALANCED, landing="old" if e is stale else "new")
        for e in Equation
    ]
    made = book(*results, applies=ALL, landing="new")
    assert made.state is (found if found in (S.MISSING, S.CORRUPT) else S.PENDING)
    assert made.unjudged == (f"{stale} was judged on an older landing",)
    assert made.judged(stale) is None
    assert made.result(stale) is not None
    again = book(result(stale, landing="new"), earlier=made)
    assert again.state is S.BALANCED
    assert not again.unjudged


def test_a_new_landing_makes_what_was_found_before_it_stale():
    before = book(*(result(e, landing="a") for e in Equation), applies=ALL, landing="a")
    assert before.state is S.BALANCED
    landed = book(result(LANDED, landing="b"), earlier=before, landing="b")
    assert landed.state is S.PENDING
    assert [landed.judged(e) is None for e in Equation] == [False, True, True]


def test_a_late_result_about_an_older_landing_does_not_replace_one_about_the_newest():
    newest = book(result(LANDED, S.MISSING, landing="b"), landing="b")
    late = book(result(LANDED, landing="a"), result(PRODUCED, landing="a"), earlier=newest)
    assert late.result(LANDED).state is S.MISSING
    assert late.landing == "b"
    assert late.state is S.MISSING


def test_an_accepted_equation_does_not_hide_another_that_is_not_judged():
    lost = Finding("missing", (OffsetRange(0, 1, 3),))
    word = Acceptance("w", "ann", "known", "2026-11-20T00:05:00Z", (lost,))
    made = book(result(LANDED, S.MISSING, lost), result(PRODUCED), applies=ALL, acceptances=[word])
    assert made.state is S.PENDING
    assert made.accepts(LANDED)
    assert not made.accepts(PARSED)
    whole = book(result(PARSED), earlier=made, acceptances=[word])
    assert whole.state is S.ACCEPTED


def test_an_unbalanced_result_without_findings_is_not_accepted():
    word = Acceptance("w", "ann", "known", "2026-11-20T00:05:00Z", ())
    made = book(result(LANDED, S.MISSING), result(PRODUCED), acceptances=[word])
    assert made.state is S.MISSING
    assert made.accepted is None


def test_a_book_from_before_the_newest_landing_is_pending_at_the_best():
    whole = book(result(LANDED), result(PRODUCED))
    assert state_on(None, "") is S.FROZEN
    assert state_on(whole, "") is S.BALANCED
    assert state_on(whole, "newer") is S.PENDING
    assert state_on(book(result(LANDED, S.MISSING)), "newer") is S.MISSING


def test_proven_at_is_when_the_rows_in_the_lake_were_judged():
    first = book(result(LANDED))
    assert first.proven_at == first.made_at
    later = Book.of(
        WINDOW,
        [result(PRODUCED)],
        made_at="2026-11-20T00:09:00Z",
        code_version="t",
        earlier=first,
    )
    assert later.proven_at == first.made_at


LOST = Finding("missing", (OffsetRange(0, 1, 3),))
TWICE = Finding("duplicate", (OffsetRange(0, 5, 6),))
INFORMS = Finding("unacknowledged", (OffsetRange(0, 7, 9),), "77")


def word(*findings, by="ann"):
    return Acceptance("w", by, "known", "2026-11-20T00:05:00Z", findings)


def test_an_acceptance_is_read_back_whole_and_written_in_one_way():
    made = word(LOST, Finding("lost_event", (), "12", "why", 3))
    assert Acceptance.from_bytes(made.to_bytes()) == made
    raw = json.loads(made.to_bytes())
    assert made.to_bytes() == json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()
    for change in ({"surprise": 1}, {"findings": 3}, {"findings": [{"kind": "missing"}]}):
        with pytest.raises(BookFormatError, match="not an acceptance"):
            Acceptance.from_bytes(json.dumps({**raw, **change}).encode())
    for broken in (b"{", b"{}"):
        with pytest.raises(BookFormatError, match="not an acceptance"):
            Acceptance.from_bytes(broken)
    with pytest.raises(BookFormatError, match="acceptance version 2: this code reads 1"):
        Acceptance.from_bytes(json.dumps({**raw, "v": 2}).encode())


def test_a_book_is_written_in_one_way_and_names_its_window():
    made = book(result(LANDED, S.MISSING, LOST, rows=8), result(PRODUCED))
    raw = json.loads(made.to_bytes())
    assert made.to_bytes() == json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()
    assert made.ref == WINDOW.ref
    assert made.window_id == WINDOW.window_id
    with pytest.raises(BookFormatError, match="book version 1: this code reads 2"):
        Book.from_bytes(json.dumps({**raw, "v": 1}).encode())
    for key in raw:
        part = {name: value for name, value in raw.items() if name != key}
        with pytest.raises(BookFormatError, match="not a book"):
            Book.from_bytes(json.dumps(part).encode())


def test_what_a_later_book_does_not_say_is_what_the_one_before_said():
    first = book(
        result(LANDED),
        applies=ALL,
        tiers={"seen": 3},
        proofs={"bronze": {"rows": 1}},
        snapshots={"bronze": 1},
        evidence={"events": 1},
    )
    again = book(result(PRODUCED), earlier=first)
    assert again.applies == ALL
    assert again.tiers == {"seen": 3, "stored": 10, "landed": 10, "produced": 10}
    assert (again.proofs, again.snapshots, again.evidence) == (
        {"bronze": {"rows": 1}},
        {"bronze": 1},
        {"events": 1},
    )
    more = book(
        earlier=again,
        tiers={"landed": 9},
        proofs={"silver": {"rows": 2}},
        snapshots={"silver": 2},
        evidence={"events": 5},
    )
    assert more.tiers == {"seen": 3, "stored": 10, "landed": 9, "produced": 10}
    assert more.proofs == {"bronze": {"rows": 1}, "silver": {"rows": 2}}
    assert more.snapshots == {"bronze": 1, "silver": 2}
    assert more.evidence == {"events": 5}


def test_a_window_whose_rows_were_never_judged_was_not_proven():
    assert book(result(PRODUCED)).proven_at == ""


def test_an_equation_without_a_result_is_neither_judged_nor_accepted():
    made = book(result(LANDED))
    assert made.judged(PARSED) is None
    assert not made.accepts(LANDED)


def test_who_accepted_what_is_in_the_book():
    made = book(
        result(LANDED, S.MISSING, LOST),
        result(PRODUCED, S.DUPLICATE, TWICE),
        acceptances=[word(LOST), word(TWICE, by="bob")],
    )
    assert made.state is S.ACCEPTED
    assert made.accepted == {
        "by": "bob",
        "reason": "known",
        "accepted_at": "2026-11-20T00:05:00Z",
        "equations": "stored_equals_landed,produced_equals_stored",
    }
    assert (made.accepts(LANDED), made.accepts(PRODUCED), made.accepts(PARSED)) == (
        True,
        True,
        False,
    )


@pytest.mark.parametrize(
    "findings,words,accepted",
    [
        ([LOST], [[LOST]], True),
        ([LOST], [[TWICE]], False),
        ([LOST, TWICE], [[LOST]], False),
        ([LOST, TWICE], [[LOST, TWICE]], True),
        ([LOST, TWICE], [[LOST], [TWICE]], True),
        ([LOST], [[TWICE], [LOST]], True),
        ([LOST, INFORMS], [[LOST]], True),
        ([INFORMS], [[INFORMS]], False),
    ],
)
def test_an_equation_is_accepted_when_every_finding_that_matters_is(findings, words, accepted):
    results = [result(LANDED, S.MIXED, *findings), result(PRODUCED)]
    found = accepted_equations(results, [word(*them) for them in words])
    assert found == ({LANDED} if accepted else set())


def test_a_stale_result_of_an_equation_that_does_not_apply_leaves_nothing_pending():
    """The topic had a contract once."""
    results = [result(LANDED, landing="b"), result(PRODUCED, landing="b"), result(PARSED)]
    assert book(*results, landing="b").state is S.BALANCED
    assert book(*results, applies=ALL, landing="b").state is S.PENDING


def test_of_two_results_about_older_landings_the_later_counts():
    first = book(result(LANDED, landing="a"), landing="c")
    assert first.state is S.PENDING
    assert book(result(LANDED, S.MISSING, LOST, landing="b"), earlier=first).state is S.MISSING
