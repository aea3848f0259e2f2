"""``heal: auto``: what is landed again without a person, how often, and what never is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from penstock_platform.clock import to_iso
from penstock_platform.landing.model.healing import (
    HEALS_MAX,
    decide_heal,
    repairable,
    sound_since,
)
from penstock_platform.landing.model.retries import Action, Attempt, Cause, Phase
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    Acceptance,
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
    state_of_findings,
)
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window
from penstock_platform.topics.model.declaration import bronze_table, silver_table

NOW = EPOCH + timedelta(days=1)
WINDOW = make_window({0: (0, 10)})
ONE = (OffsetRange(0, 3, 5),)
PARSED = Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED


def ended(minutes_ago: float, cause: Cause | None = None, run_id: str = "r") -> Attempt:
    return Attempt(run_id, Phase.ENDED, NOW - timedelta(minutes=minutes_ago), cause=cause)


def book(
    *findings: Finding,
    equation: Equation = Equation.STORED_EQUALS_LANDED,
    at: str = "",
    detail: dict[str, Any] | None = None,
) -> Book:
    result = EquationResult(
        equation, state_of_findings(findings), 10, 10, tuple(findings), detail or {}
    )
    return Book.of(WINDOW, [result], made_at=at, code_version="test")


# --- what is damage that a landing repairs


@pytest.mark.parametrize(
    "found,repaired",
    [
        (book(Finding("missing", ONE)), True),
        (book(Finding("altered", ONE)), True),
        (book(Finding("duplicate", ONE)), True),
        (book(Finding("unreadable", ONE)), True),
        (
            book(Finding("missing", ONE), equation=Equation.PARSED_PLUS_QUARANTINED_EQUALS_LANDED),
            True,
        ),
        (book(Finding("missing", ONE), equation=Equation.PRODUCED_EQUALS_STORED), False),
        (book(Finding("retained_away", ONE)), False),
        (book(Finding("missing", ONE), detail={"rerun_from": "nothing"}), False),
        (book(Finding("unjudged", ())), False),
        (book(), False),
    ],
    ids=lambda value: (
        value if isinstance(value, bool) else value.findings and value.findings[0].kind
    ),
)
def test_only_what_a_landing_repairs_is_healed(found: Book, repaired: bool) -> None:
    assert bool(repairable(found)) is repaired


def test_what_a_person_accepted_is_left_alone() -> None:
    found = Finding("missing", ONE)
    accepted = Acceptance(WINDOW.window_id, "ann", "known", "2026-11-20T00:00:00Z", (found,))
    result = EquationResult(Equation.STORED_EQUALS_LANDED, WindowState.MISSING, 10, 8, (found,))
    for acceptances, repaired in (((), True), ((accepted,), False)):
        made = Book.of(WINDOW, [result], made_at="", code_version="t", acceptances=acceptances)
        assert bool(repairable(made)) is repaired


def test_a_window_is_sound_since_its_newest_book_without_damage() -> None:
    good, bad = book(at="2"), book(Finding("missing", ONE), at="3")
    assert sound_since([book(at="1"), good, bad, bad]) == "2"
    assert sound_since([bad]) == ""
    assert sound_since([bad, book(at="9")]) == "9"
    assert sound_since([]) == ""


# --- when


def test_damage_is_landed_again_at_once_and_then_at_growing_intervals() -> None:
    assert decide_heal([], NOW).action is Action.START
    assert decide_heal([ended(4)], NOW).action is Action.PAUSE
    assert decide_heal([ended(4)], NOW).until == NOW + timedelta(minutes=1)
    assert decide_heal([ended(5)], NOW).action is Action.START
    assert decide_heal([ended(59), ended(70)], NOW).action is Action.PAUSE
    assert decide_heal([ended(60), ended(70)], NOW).action is Action.START


def test_it_is_never_a_loop() -> None:
    tries = [ended(10_000 + n) for n in range(HEALS_MAX)]
    assert decide_heal(tries, NOW).action is Action.ABANDONED
    assert decide_heal(tries, NOW + timedelta(days=365)).attempts == HEALS_MAX


def test_an_outage_counts_as_no_attempt_and_is_waited_for() -> None:
    away = [ended(n, Cause.OUTSIDE) for n in range(1, 20)]
    assert decide_heal(away, NOW).action is Action.PAUSE
    assert decide_heal(away, NOW + timedelta(minutes=5)).action is Action.START
    assert decide_heal([*away, *(ended(100 + n) for n in range(HEALS_MAX))], NOW).action is (
        Action.ABANDONED
    )


def test_a_run_under_way_is_waited_for() -> None:
    queued = Attempt("r", Phase.QUEUED, NOW - timedelta(days=1))
    assert decide_heal([queued, ended(500)], NOW).action is Action.UNDER_WAY


# --- the sensor


@pytest.fixture
def healing(stage: Callable[..., Any]) -> Any:
    made = stage(heal="auto")
    made.create_topics()
    made.pass_time(30)
    made.tick("window_sensor")
    return made


@pytest.mark.parametrize("table", [bronze_table, silver_table])
def test_a_damaged_window_is_landed_again_by_itself(healing: Any, table: Any) -> None:
    sound = healing.landed(40)
    window = healing.landed(40)
    assert healing.tick("heal_sensor").run_requests == []
    healing.penstock.lake.put(table(healing.topic), window.window_id, {0: [41, 42]})
    healing.run("reverify")
    (request,) = healing.tick("heal_sensor").run_requests
    assert request.partition_key == window.window != sound.window
    assert request.job_name == healing.plan.landing_job
    healing.run(request.job_name, partition_key=request.partition_key, tags=request.tags)
    newest = healing.penstock.books.newest_book(window.ref, window.sequence)
    assert newest.state is WindowState.BALANCED
    assert healing.tick("heal_sensor").run_requests == []


def test_a_run_of_a_person_is_waited_for(healing: Any) -> None:
    window = healing.landed(40)
    healing.penstock.lake.put(bronze_table(healing.topic), window.window_id, {0: [1]})
    healing.run("reverify")
    (request,) = healing.tick("heal_sensor").run_requests
    tags = {k: v for k, v in request.tags.items() if k != "penstock/heal"}
    healing.create_run(healing.plan.landing_job, tags, status=dg.DagsterRunStatus.STARTED)
    assert healing.tick("heal_sensor").run_requests == []


def test_each_attempt_is_recorded_and_the_next_one_waits(healing: Any) -> None:
    """A landing that ran and did not help: the window is not requested again at once."""
    window = healing.landed(40)
    healing.refuse_rows = lambda _window: {0: {3}}
    healing.penstock.lake.put(bronze_table(healing.topic), window.window_id, {0: [1]})
    healing.run("reverify")
    (request,) = healing.tick("heal_sensor").run_requests
    healing.run(request.job_name, partition_key=request.partition_key, tags=request.tags)
    found = healing.tick("heal_sensor")
    assert found.run_requests == []
    assert "landed again 1 times and still damaged" in found.skip_message
    assert request.tags["penstock/heal"].startswith(f"{window.topic_id}/{window.window}@")


def test_without_heal_auto_there_is_no_sensor(ready: Any) -> None:
    with pytest.raises(Exception, match="heal_sensor"):
        ready.tick("heal_sensor")


def test_times_of_books_are_in_the_subject_of_the_attempts(healing: Any) -> None:
    """Attempts at an earlier damage do not count for the next one."""
    window = healing.landed(40)
    subjects = []
    for _ in range(2):
        healing.pass_time(5)
        healing.penstock.lake.put(bronze_table(healing.topic), window.window_id, {0: [1]})
        healing.run("reverify")
        (request,) = healing.tick("heal_sensor").run_requests
        subjects.append(request.tags["penstock/heal"])
        healing.run(request.job_name, partition_key=request.partition_key, tags=request.tags)
    assert len(set(subjects)) == 2
    assert subjects[0] < subjects[1] < f"{window.topic_id}/{window.window}@{to_iso(NOW)}"
