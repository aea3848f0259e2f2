"""What an alert about a window says of each kind of finding: words, lists, key, severity."""

from __future__ import annotations

import pytest

from penstock_platform.alerts.model.incidents import observe
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    FINDING_STATES,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.testing.windows import make_window
from penstock_platform.windows.model.window import rerun_command

LANDED, PRODUCED, PARSED = Equation
S = WindowState
WINDOW = make_window({0: (0, 1000)})
SPAN = "orders 2026-11-20 00:00-00:01"
KEY = "audit:prod:orders:2026-11-20-00:00"


def found(kind, *ranges, **options):
    return Finding(kind, tuple(OffsetRange(*r) for r in ranges), **options)


def incident(state, *findings, equation=LANDED, **options):
    result = EquationResult(equation, state, 1000, 963, findings)
    return observe("prod", WINDOW, result, **options).incident


SAID = {
    "missing": "missing in the lake",
    "beyond_log_end": "lost at the log's end",
    "retained_away": "deleted before they were landed",
    "vanished": "vanished from the table after they were proven; the log no longer has them",
    "unreadable": "in data files that cannot be read",
    "altered": "changed in the table after they were proven",
    "unjudged": "not judged",
    "pending": "pending",
    "log_truncated": "lost by the log",
    "duplicate": "duplicated in the lake",
    "outside": "landed in the wrong window",
    "corrupt": "in claims whose digest differs",
    "hole": "in unexplained holes",
    "unlanded": "not compared",
    "unclaimed": "without evidence",
    "incarnation_silent": "without evidence (producer stopped)",
    "unstamped": "from clients that are not audited",
    "lost_event": "lost with a producer's events",
    "undigested": "whose digest could not be judged",
    "evidence_lost": "unreadable events of producers",
}
LISTED = {
    "missing": "missing unreadable vanished beyond_log_end retained_away log_truncated hole",
    "duplicates": "duplicate outside",
    "corrupt": "corrupt altered",
    "unaudited": "unclaimed incarnation_silent unstamped",
}


def test_every_kind_that_matters_has_its_words():
    assert set(SAID) == {kind for kind, state in FINDING_STATES.items() if state is not None}


@pytest.mark.parametrize("kind", SAID)
def test_the_summary_names_each_kind_in_words_and_the_details_its_offsets(kind):
    made = incident(S.MISSING, found(kind, (0, 5, 7)))
    assert made.summary == f"{SPAN}: 2 records {SAID[kind]} (partition 0 offsets 5-6)"
    assert made.records == 2
    lists = {key for key in LISTED if made.details.get(key) == [[0, 5, 7]]}
    assert lists == {key for key, kinds in LISTED.items() if kind in kinds.split()}
    assert made.details.get("records_not_listed") == (None if lists else 2)


@pytest.mark.parametrize(
    "equation,where", [(LANDED, "in the lake"), (PRODUCED, "in the log"), (PARSED, "in silver")]
)
def test_missing_and_duplicate_records_are_said_where_they_are_so(equation, where):
    made = incident(
        S.MIXED, found("missing", (0, 5, 6)), found("duplicate", (0, 7, 8)), equation=equation
    )
    assert made.summary == (
        f"{SPAN}: 1 record missing {where} (partition 0 offset 5); "
        f"1 record duplicated {where} (partition 0 offset 7)"
    )
    assert made.class_ == str(equation)


def test_findings_of_one_kind_are_one_sentence_and_one_list():
    made = incident(
        S.UNAUDITED,
        found("unclaimed", (0, 5, 7), incarnation="9"),
        found("unclaimed", (0, 7, 9), incarnation="10"),
        found("lost_event", incarnation="10", records=1234),
        found("unstamped", (0, 20, 21)),
    )
    assert made.summary == (
        f"{SPAN}: 4 records without evidence (partition 0 offsets 5-8); "
        "1,234 records lost with a producer's events; "
        "1 record from clients that are not audited (partition 0 offset 20)"
    )
    assert made.details["unaudited"] == [[0, 5, 9], [0, 20, 21]]
    assert made.details["incarnations"] == ["10", "9"]
    assert made.records == 4 + 1234 + 1


def test_many_producers_are_named_in_order():
    names = [str(number) for number in range(40, 20, -1)]
    made = incident(S.UNAUDITED, *(found("unclaimed", (0, 1, 2), incarnation=n) for n in names))
    assert made.details["incarnations"] == sorted(names)


def test_what_only_informs_is_not_in_the_alert():
    gave_up = found("client_failure", records=50)
    made = incident(S.MISSING, found("missing", (0, 5, 6)), gave_up)
    assert made.records == 1
    assert "client" not in made.summary
    alone = incident(S.MISSING, gave_up)
    assert alone.summary == f"{SPAN}: stored_equals_landed is MISSING"
    assert alone.records == 0
    assert alone.dedup_key == KEY


def test_a_lost_tail_has_the_key_of_its_first_offset_and_other_damage_that_of_its_window():
    tail = [found("beyond_log_end", (1, 7, 9), (0, 50, 60)), found("beyond_log_end", (0, 40, 45))]
    assert incident(S.MISSING, *tail).dedup_key == "audit:prod:orders:log-end:0-40"
    assert incident(S.MISSING, *tail, found("missing", (0, 1, 2))).dedup_key == KEY


@pytest.mark.parametrize(
    "state,declared,severity",
    [
        (S.MISSING, "ERROR", "critical"),
        (S.UNPROVEN, "ERROR", "error"),
        (S.UNAUDITED, "ERROR", "warning"),
        (S.MISSING, "WARN", "warning"),
        (S.UNPROVEN, "WARN", "warning"),
    ],
)
def test_the_severity_is_that_of_the_state_unless_the_topic_only_warns(state, declared, severity):
    made = incident(state, found("missing", (0, 1, 2)), severity=declared)
    assert made.severity == severity


@pytest.mark.parametrize("count,left_out", [(100, None), (101, 1), (102, 2)])
def test_records_that_are_not_listed_are_counted(count, left_out):
    made = incident(S.MISSING, found("missing", *((0, 2 * n, 2 * n + 1) for n in range(count))))
    assert len(made.details["missing"]) == 100
    assert made.details.get("records_not_listed") == left_out


def test_details_without_content_are_left_out():
    made = incident(S.MISSING, found("missing", (0, 1, 2)))
    assert set(made.details) == {
        *("state", "window", "window_id", "expected", "found", "missing", "show", "rerun")
    }
    assert made.details["rerun"] == rerun_command("orders", WINDOW.window)
    full = incident(S.MISSING, found("missing", (0, 1, 2)), owners=("ann", "bob"), manifest="m")
    assert (full.details["owner"], full.details["manifest"]) == ("ann, bob", "m")


@pytest.mark.parametrize("state", S)
def test_what_is_fine_pending_or_bad(state):
    result = EquationResult(LANDED, state, 1, 1, (found("missing", (0, 1, 2)),))
    seen = observe("prod", WINDOW, result, at="2026-11-20T00:09:00Z")
    assert seen.source == f"orders/{WINDOW.window_id}/stored_equals_landed"
    assert seen.pending is (state is S.PENDING)
    fine = state in (S.BALANCED, S.ACCEPTED, S.RETIRED)
    assert (seen.incident is None) is (fine or seen.pending)
    assert seen.at == ("" if seen.pending else "2026-11-20T00:09:00Z")
    tolerant = observe("prod", WINDOW, result, accept_unaudited=True)
    assert (tolerant.incident is None) is (fine or seen.pending or state is S.UNAUDITED)
