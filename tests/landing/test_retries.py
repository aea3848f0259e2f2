"""Who owns a landing, and when one that failed is tried again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.landing.model.leases import LAPSE, RENEW, Lease, LeaseFormatError, ask, owner
from penstock_platform.landing.model.retries import (
    DONE,
    INSIDE_MAX,
    PAUSES,
    START_MAX,
    Action,
    Attempt,
    Cause,
    Decision,
    Phase,
    cause_of,
    choose_try,
    decide,
    hindered,
    outcome_text,
    parse_outcome,
    pause_after,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
OUT, IN = Cause.OUTSIDE, Cause.INSIDE


def ended(cause=OUT, ago=timedelta(hours=1), error="why", number=0):
    return Attempt(f"run-{number}", Phase.ENDED, NOW - ago, cause=cause, error=error)


def started(ago=timedelta(), renewed=None, run_id="run"):
    lease = Lease(run_id, NOW - ago, NOW - renewed) if renewed is not None else None
    return Attempt(run_id, Phase.STARTED, NOW - ago, lease)


def queued(ago=timedelta()):
    return Attempt("queued", Phase.QUEUED, NOW - ago)


# --- leases -----------------------------------------------------------------------------------


def test_a_lease_is_alive_while_it_is_renewed():
    lease = Lease("a", NOW, NOW)
    assert lease.alive(NOW + LAPSE - SECOND)
    assert not lease.alive(NOW + LAPSE)
    assert LAPSE >= 4 * RENEW, "a few renewals may be late"


def test_who_asked_first_owns_and_a_lapsed_lease_owns_nothing():
    first = Lease("b", NOW - 3 * SECOND, NOW)
    second = Lease("a", NOW - 2 * SECOND, NOW)
    assert owner([second, first], NOW) == first
    assert owner([second, replace(first, renewed_at=NOW - LAPSE)], NOW) == second
    assert owner([replace(second, renewed_at=NOW - LAPSE)], NOW) is None
    assert owner([], NOW) is None


def test_of_two_that_asked_in_one_moment_one_owns():
    leases = [Lease("b", NOW, NOW), Lease("a", NOW, NOW)]
    assert owner(leases, NOW) == owner(leases[::-1], NOW) == leases[1]


def test_asking_again_keeps_the_place_and_a_lapsed_place_is_lost():
    lease = ask("a", None, NOW)
    assert lease == Lease("a", NOW, NOW)
    later = NOW + LAPSE - SECOND
    assert ask("a", lease, later) == Lease("a", NOW, later)
    much_later = NOW + LAPSE
    assert ask("a", lease, much_later) == Lease("a", much_later, much_later)


def test_a_lease_is_read_back_and_nothing_else_is_one():
    lease = Lease("a", NOW, NOW + timedelta(microseconds=17))
    assert Lease.from_text("a", lease.to_text()) == lease
    zoned, naive = NOW.isoformat(), "2026-11-20T00:00:00"
    for text in ("", "x", zoned, f"{naive} {naive}", f"{naive} {zoned}", f"{zoned} {naive}"):
        with pytest.raises(LeaseFormatError, match="run a: "):
            Lease.from_text("a", text)


# --- one window -------------------------------------------------------------------------------


def test_a_window_without_attempts_is_landed_at_once():
    assert decide([], NOW) == Decision(Action.START, attempts=0, until=None, error="")


@pytest.mark.parametrize(
    "attempt,under_way",
    [
        (queued(ago=timedelta(days=3)), True),
        (started(ago=START_MAX - SECOND), True),
        (started(ago=START_MAX), False),
        (started(ago=timedelta(hours=5), renewed=RENEW), True),
        (started(ago=timedelta(hours=5), renewed=LAPSE - SECOND), True),
        (started(ago=timedelta(hours=5), renewed=LAPSE), False),
        (ended(), False),
    ],
)
def test_a_long_landing_is_not_followed_while_it_lives(attempt, under_way):
    assert attempt.under_way(NOW) is under_way
    assert (decide([attempt], NOW).action is Action.UNDER_WAY) is under_way
    assert (decide([ended(), attempt], NOW).action is Action.UNDER_WAY) is under_way


def test_what_is_outside_is_tried_without_limit():
    attempts = [ended(OUT) for _ in range(500)]
    assert decide(attempts, NOW).action is Action.START
    recent = [replace(attempts[0], since=NOW - PAUSES[-1] + SECOND), *attempts]
    pause = decide(recent, NOW)
    assert (pause.action, pause.until) == (Action.PAUSE, NOW + SECOND)
    assert decide(recent, NOW + SECOND).action is Action.START


def test_what_is_inside_has_an_end_and_says_why():
    fewer = [ended(IN) for _ in range(INSIDE_MAX - 1)]
    assert decide(fewer, NOW).action is Action.START
    mixed = [ended(OUT, error="away"), *fewer, ended(OUT)]
    assert decide(mixed, NOW).action is Action.START
    enough = [ended(OUT, error="away"), ended(IN, error="bad"), *fewer]
    found = decide(enough, NOW)
    assert (found.action, found.attempts, found.error) == (Action.ABANDONED, 6, "bad")
    assert decide([started(renewed=RENEW), *enough], NOW).action is Action.UNDER_WAY


def test_a_pause_counts_from_the_end_or_from_the_last_sign_of_life():
    assert decide([ended(ago=timedelta())], NOW).action is Action.START, "the first comes at once"
    two = [ended(ago=9 * SECOND), ended()]
    assert decide(two, NOW).until == NOW + SECOND
    gone = started(ago=timedelta(hours=5), renewed=LAPSE)
    found = decide([gone, *(ended() for _ in range(5))], NOW)
    assert (found.action, found.until) == (Action.PAUSE, NOW - LAPSE + pause_after(6))


def test_pauses_grow_to_a_limit():
    pauses = [pause_after(n) for n in range(40)]
    assert pauses[:3] == [timedelta(), timedelta(), 10 * SECOND]
    assert pauses == sorted(pauses)
    assert pauses[-1] == timedelta(minutes=5)


# --- a topic ----------------------------------------------------------------------------------


def test_one_at_a_time_tries_while_something_outside_hinders():
    assert hindered([], NOW) is None
    assert hindered([ended(IN), ended(OUT)], NOW) is None
    assert hindered([started(renewed=RENEW), ended(IN)], NOW) is None
    down = [ended(OUT, ago=4 * SECOND), ended(OUT), ended(OUT), ended(IN)]
    assert hindered(down, NOW) == NOW - 4 * SECOND + pause_after(3)
    assert hindered([queued(), *down], NOW) > NOW + timedelta(days=365)
    died = [started(ago=timedelta(hours=1), renewed=LAPSE), *down]
    assert hindered(died, NOW) == NOW - LAPSE + pause_after(4)


def test_the_oldest_window_tries_first_and_does_not_hold_up_the_others_forever():
    assert choose_try([]) is None
    assert choose_try([(7, 0), (5, 2), (6, 0)]) == 5
    assert choose_try([(7, 0), (5, 3), (6, 1)]) == 6
    assert choose_try([(7, 3), (5, 3), (6, 5)]) == 5


@given(st.lists(st.sampled_from([OUT, IN]), max_size=30))
def test_only_what_is_inside_is_ever_abandoned(causes):
    found = decide([ended(c, ago=timedelta(days=1)) for c in causes], NOW)
    assert (found.action is Action.ABANDONED) == (causes.count(IN) >= INSIDE_MAX)


# --- causes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name,message",
    [
        ("SparkUnavailableError", "Spark Connect does not answer"),
        ("ArchiveError", "cannot get s3://b/k at http://localhost:9000: closed"),
        ("ClusterError", "no Kafka broker answers"),
        ("SparkConnectGrpcException", "<_InactiveRpcError: StatusCode.UNAVAILABLE ..."),
        ("LandingError", "x was not landed: [OPERATION_CANCELED] Operation has been canceled"),
        ("LandingError", "org.apache.kafka.common.errors.TimeoutException: Timed out waiting"),
        ("LandingError", "Unable to execute HTTP request: Connect to localhost:9000 failed"),
        ("LandingError", "Error writing (Service: S3, Status Code: 503, Request ID: null)"),
        ("LandingError", "java.net.ConnectException: Connection refused"),
        ("OperationalError", "(sqlite3.OperationalError) database is locked"),
    ],
)
def test_services_that_are_away_are_outside(name, message):
    assert cause_of([("LostLandingError", "x"), (name, message)]) is OUT


@pytest.mark.parametrize(
    "name,message",
    [
        ("LandingError", "[CANNOT_SAFELY_CAST] cannot cast INT to STRING"),
        ("RecreatedTopicError", "window a/1 belongs to topic x"),
        ("KeyError", "'rerun'"),
        ("LandingError", "java.lang.OutOfMemoryError: Java heap space"),
        ("LandingError", "Status Code: 403"),
    ],
)
def test_data_contracts_and_defects_are_inside(name, message):
    assert cause_of([(name, message)]) is IN


def test_an_outcome_is_read_back():
    assert parse_outcome(outcome_text(IN, "one\ntwo")) == (IN, "one")
    assert parse_outcome(outcome_text(OUT, "")) == (OUT, "")
    assert len(parse_outcome(outcome_text(IN, "x" * 5000))[1]) == 300
    assert parse_outcome("")[0] is OUT, "killed: something outside ended it"
    assert parse_outcome(DONE)[0] is IN
    assert parse_outcome(outcome_text(IN, "a|b")) == (IN, "a|b")
