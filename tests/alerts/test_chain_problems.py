"""What each problem of a chain, or of what carries all chains, says: whole, as it is alerted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from penstock_platform.alerts.model.chain_health import (
    CAUSES,
    OF_A_TOPIC,
    ChainFacts,
    Health,
    Kind,
    Parsed,
    PlatformFacts,
    Problem,
    WaitingWindow,
    freeze_allowance,
    judge_chain,
    judge_platform,
    source_of,
)
from penstock_platform.alerts.model.incident_states import SERVICES
from penstock_platform.clock import from_iso
from penstock_platform.kafka.model import TopicRef
from penstock_platform.reconciliation.model.recreation import LostTopic
from penstock_platform.retention.model.log import Disk
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window
from penstock_platform.topics.model.declaration import parse_topic

MINUTE = timedelta(minutes=1)
KINDS = (
    "not_frozen empty_chain chain_unreadable topic_absent topic_deleted topic_recreated"
    " landing_late landing_abandoned retention_held quarantine_share broker_unanswered"
    " store_unanswered dagster_unanswered daemon_stale definitions_broken disk_at_risk"
    " service_down alerts_stale alerts_undelivered"
)
FIRST = make_window({0: (0, 1000), 1: (0, 20)})
SECOND = make_window({0: (1000, 1001), 1: (20, 20)}, previous=FIRST)
THIRD = make_window({0: (1001, 1001), 1: (20, 20)}, previous=SECOND)
REF = FIRST.ref
OTHER = TopicRef(REF.cluster_id, REF.topic, "another")
SPEC = parse_topic(
    {
        "metadata": {"name": "orders"},
        "land": {"window": "minutely"},
        "schema": {"file": "x.json"},
        "retention": {"keep": "7d"},
        "quarantine": {"max_share": 0.05},
    }
)
FINE = ChainFacts("orders", SPEC, REF, (REF.topic_id,), EPOCH, FIRST, stored=1020)
CLOSED = from_iso(FIRST.closed_at)
NOW = CLOSED + MINUTE


def judged(now=NOW, **changes):
    return judge_chain(replace(FINE, **changes), now)


def only(now=NOW, **changes):
    (problem,) = judged(now, **changes).problems
    return problem


def asked(**facts):
    health = judge_platform(PlatformFacts(**facts))
    return health.problems


def test_kinds_are_names_for_good():
    """They are in the keys of open incidents."""
    assert [str(kind) for kind in Kind] == KINDS.split()
    assert list(OF_A_TOPIC) == list(Kind)[:10]
    assert set(CAUSES.values()) <= set(SERVICES)
    assert CAUSES == {Kind.BROKER_UNANSWERED: "broker", Kind.STORE_UNANSWERED: "store"}
    assert source_of(Kind.NOT_FROZEN, "orders") == "health/orders/not_frozen"
    assert source_of(Kind.BROKER_UNANSWERED) == "health/broker_unanswered"
    assert Problem(Kind.NOT_FROZEN, "x", "orders").source == "health/orders/not_frozen"


def test_a_problem_is_critical_and_alerted_at_once_unless_it_says_otherwise():
    problem = Problem(Kind.NOT_FROZEN, "x")
    assert (problem.topic, problem.severity, problem.command) == ("", "critical", "")
    assert (problem.details, problem.patience) == ({}, timedelta())


def test_what_is_good_is_what_was_judged_and_has_no_problem_in_order():
    health = Health((Problem(Kind.NOT_FROZEN, "x", "t"),), frozenset(Kind), "t")
    assert health.good == tuple(sorted(f"health/t/{k}" for k in Kind if k is not Kind.NOT_FROZEN))
    assert Health((), frozenset({Kind.DISK_AT_RISK})).good == ("health/disk_at_risk",)


def test_a_topic_that_the_cluster_does_not_have():
    health = judged(ref=None, incarnations=())
    assert health.problems == (
        Problem(
            Kind.TOPIC_ABSENT,
            "orders is declared and the cluster does not have it",
            "orders",
            severity="error",
            patience=5 * MINUTE,
        ),
    )
    assert health.judged == {Kind.TOPIC_ABSENT, Kind.TOPIC_DELETED, Kind.TOPIC_RECREATED}
    assert health.topic == "orders"


def test_a_topic_that_was_deleted():
    assert only(ref=None, incarnations=("old", "new")) == Problem(
        Kind.TOPIC_DELETED,
        "orders was deleted from the cluster; its windows until 2026-11-20-00:00 hold 1,020 "
        "offsets, and those that were landed are safe in the lake; all others are lost with it",
        "orders",
        details={"topic_id": "new"},
    )
    lost = LostTopic("orders", "new", "w", 7)
    assert str(lost) in only(ref=None, lost=lost).summary


def test_a_topic_that_was_recreated():
    problem = only(ref=OTHER, incarnations=("older", "old"), newest=None)
    assert problem == Problem(
        Kind.TOPIC_RECREATED,
        "orders was deleted and recreated: its chain belongs to topic id old, the broker now "
        "has another; none of its records was in a window; the new topic's records are in no "
        "window",
        "orders",
        command="penstock window begin orders",
        details={"topic_id": "another", "chain_of": "old"},
    )
    assert judged(ref=OTHER, incarnations=()).problems == (), "no chain was begun yet"


def test_a_chain_that_cannot_be_continued():
    assert only(unreadable="place 3 is missing") == Problem(
        Kind.CHAIN_UNREADABLE,
        "orders: its chain of windows cannot be continued: place 3 is missing",
        "orders",
    )


def test_a_chain_that_is_not_frozen():
    assert only(CLOSED + 4 * MINUTE, unfrozen=1234) == Problem(
        Kind.NOT_FROZEN,
        "orders: no window is frozen since 2026-11-20T00:01:00Z; 2 windows are overdue, 1,234 "
        "records are in no window",
        "orders",
        command="penstock status",
        details={"since": "2026-11-20T00:01:00Z", "windows_due": 2, "records": 1234},
        patience=MINUTE,
    )


@pytest.mark.parametrize(
    "due,said", [(998, "998 w"), (999, "999 w"), (1000, "1,000 windows or more are")]
)
@pytest.mark.parametrize("spec", [SPEC, None])
def test_windows_that_are_due_are_counted_up_to_a_thousand(due, said, spec):
    problem = only(CLOSED + (due + 2) * MINUTE, spec=spec)
    assert f"; {said}" in problem.summary
    assert ("or more" in problem.summary) is (due == 1000)


def test_of_what_was_not_said_nothing_is_known():
    facts = ChainFacts("orders", ref=REF)
    assert judge_chain(facts, NOW).problems == ()
    assert (facts.stored, facts.unfrozen, facts.unreadable, facts.unanswered) == (0, 0, "", False)
    assert WaitingWindow(FIRST) == WaitingWindow(FIRST, 0, False, "")


def test_a_topic_with_one_record_and_no_window():
    assert only(start=None, newest=None, stored=1, incarnations=()) == Problem(
        Kind.EMPTY_CHAIN,
        "orders holds 1 records and no window was ever frozen; is it declared with land, and is "
        "window_sensor on?",
        "orders",
        command="penstock status",
        details={"records": 1},
        patience=5 * MINUTE,
    )
    begun = only(EPOCH + 3 * MINUTE, newest=None, stored=1)
    assert begun.kind is Kind.EMPTY_CHAIN
    assert begun.summary == (
        "orders: no window was ever frozen since 2026-11-20T00:00:00Z; one window is overdue"
    )


def test_a_window_of_an_hour_may_wait_ten_minutes_without_declarations_too():
    hourly = make_window({0: (0, 1)}, length=timedelta(hours=1))
    closed = from_iso(hourly.closed_at)
    facts = {"newest": hourly, "spec": None}
    assert judged(closed + 69 * MINUTE, **facts).problems == ()
    assert only(closed + 70 * MINUTE, **facts).details["windows_due"] == 1
    assert judged(closed, **facts).problems == ()


@pytest.mark.parametrize(
    "length,allowance",
    [(MINUTE / 2, 2), (MINUTE, 2), (2 * MINUTE, 4), (5 * MINUTE, 10), (6 * MINUTE, 10)],
)
def test_a_window_may_be_unfrozen_for_two_of_its_lengths(length, allowance):
    assert freeze_allowance(length) == allowance * MINUTE


def waiting(*windows, **options):
    return {"waiting": [WaitingWindow(w, **options) for w in windows], "newest": THIRD}


def test_a_landing_that_was_given_up():
    given_up = waiting(FIRST, attempts=5, abandoned=True)
    assert only(**given_up) == Problem(
        Kind.LANDING_ABANDONED,
        "orders: window 2026-11-20-00:00 is not landed and not tried again after 5 attempts",
        "orders",
        command="penstock window rerun orders 2026-11-20-00:00",
        details={"windows": [FIRST.name]},
    )
    several = only(**waiting(FIRST, SECOND, THIRD, attempts=5, abandoned=True, error="CAST"))
    assert several.summary == (
        "orders: window 2026-11-20-00:00 and 2 more is not landed and not tried again after 5 "
        "attempts: CAST"
    )
    assert several.details["windows"] == [FIRST.name, SECOND.name, THIRD.name]
    many = only(**waiting(*[FIRST] * 102, abandoned=True))
    assert len(many.details["windows"]) == 100
    assert " and 101 more is" in many.summary


def test_a_landing_that_takes_too_long():
    late = from_iso(FIRST.frozen_at) + 30 * MINUTE + timedelta(seconds=1.5)
    [problem] = [
        p for p in judged(late, **waiting(FIRST, SECOND)).problems if p.kind is Kind.LANDING_LATE
    ]
    assert problem == Problem(
        Kind.LANDING_LATE,
        "orders: window 2026-11-20-00:00 was frozen 1801s ago and its landing has no result",
        "orders",
        severity="error",
        details={"windows": [FIRST.name]},
    )
    both = judged(late + 9 * MINUTE, **waiting(FIRST, SECOND, THIRD)).problems
    [problem] = [p for p in both if p.kind is Kind.LANDING_LATE]
    assert "window 2026-11-20-00:00 and 2 more was frozen 2341s ago" in problem.summary
    assert problem.details["windows"] == [FIRST.name, SECOND.name, THIRD.name]
    two = judged(late + MINUTE, **waiting(FIRST, SECOND)).problems
    assert " and 1 more was" in next(p for p in two if p.kind is Kind.LANDING_LATE).summary
    many = judged(late, **waiting(*[FIRST] * 102)).problems
    found = next(p for p in many if p.kind is Kind.LANDING_LATE)
    assert len(found.details["windows"]) == 100


def test_a_window_that_outlives_its_policy():
    week = timedelta(days=7)
    now = CLOSED + week * 1.1 + timedelta(minutes=1, seconds=59)
    [problem] = [
        p for p in judged(now, oldest_in_log=FIRST).problems if p.kind is Kind.RETENTION_HELD
    ]
    assert problem == Problem(
        Kind.RETENTION_HELD,
        "orders: window 2026-11-20-00:00 is in the log still, closed 11089m ago and to be kept "
        "for 7d; the sweep holds it or does not run",
        "orders",
        severity="error",
        command="penstock window show orders 2026-11-20-00:00",
        details={"window": FIRST.name},
    )


def test_a_quarantine_above_the_declared_share():
    assert only(parsed=Parsed("w", 1_900, 101)) == Problem(
        Kind.QUARANTINE_SHARE,
        "orders: 101 of 2,001 records of window w do not keep to the contract (5.0%, declared at "
        "most 5.0%)",
        "orders",
        severity="error",
        command="penstock window show orders w",
        details={"window": "w", "quarantined": 101},
    )
    assert Parsed("w", 3, 1).share == 0.25
    assert Parsed("w", 0, 0).share == 0.0
    assert Parsed("w", 0, 1).share == 1.0


@pytest.mark.parametrize(
    "name,kind,text",
    [
        ("broker", Kind.BROKER_UNANSWERED, "the broker does not answer, nothing is frozen"),
        ("store", Kind.STORE_UNANSWERED, "the object store does not answer, nothing is frozen"),
        ("dagster", Kind.DAGSTER_UNANSWERED, "Dagster does not answer, nothing is seen to run"),
        ("definitions", Kind.DEFINITIONS_BROKEN, "the definitions do not load, nothing runs"),
    ],
)
def test_a_service_that_does_not_answer(name, kind, text):
    command, patience = "penstock status", MINUTE
    if name == "definitions":  # waiting repairs no file
        command, patience = "penstock validate", timedelta()
    found = Problem(kind, f"{text}: why", command=command, patience=patience)
    assert asked(**{name: "why"}) == (found,)
    well = judge_platform(PlatformFacts(**{name: ""}))
    assert (well.problems, well.judged) == ((), {kind})


def test_daemons_that_stopped_reporting():
    assert asked(heartbeats={"B": 121.4, "A": None, "C": 120.0}) == (
        Problem(
            Kind.DAEMON_STALE,
            "Dagster's daemon has stopped reporting: A (never), B (121 s ago); nothing is launched",
            command="penstock status",
            details={"daemons": ["A", "B"]},
            patience=MINUTE,
        ),
    )
    assert asked(heartbeats={}) == ()


def test_disks_that_are_nearly_full():
    full = {"b": Disk(2000, 100), "a": Disk(1000, 99), "c": Disk(1000, 100)}
    assert asked(disks=full) == (
        Problem(
            Kind.DISK_AT_RISK,
            "little disk is left for a: 99 of 1,000 bytes; b: 100 of 2,000 bytes",
            severity="error",
            details={"disks": ["a", "b"]},
        ),
    )


@pytest.mark.parametrize("seconds,stale", [(180.0, False), (180.6, True), (0.0, False)])
def test_a_sensor_that_does_not_look(seconds, stale):
    health = judge_platform(PlatformFacts(looked=seconds))
    assert health.judged == {Kind.ALERTS_STALE}
    text = "alert_sensor has not looked for 181 s: no chain is watched"
    found = Problem(Kind.ALERTS_STALE, text, command="penstock status")
    assert health.problems == ((found,) if stale else ())


def test_alerts_that_are_not_delivered():
    assert asked(undelivered={"z": "", "b": "refused"}) == (
        Problem(
            Kind.ALERTS_UNDELIVERED,
            "alerts are not delivered: refused; z",
            command="penstock alert test",
        ),
    )
    health = judge_platform(PlatformFacts(undelivered={}))
    assert (health.problems, health.judged) == ((), {Kind.ALERTS_UNDELIVERED})


def test_services_that_do_not_run():
    assert asked(down={"z": "failed", "b": "starting"}) == (
        Problem(
            Kind.SERVICE_DOWN,
            "services do not run: b: starting; z: failed",
            command="penstock status",
            details={"services": ["b", "z"]},
            patience=MINUTE,
        ),
    )
    health = judge_platform(PlatformFacts(down={}))
    assert (health.problems, health.judged) == ((), {Kind.SERVICE_DOWN})


def test_everything_that_was_asked_is_judged_at_once():
    facts = PlatformFacts(
        "x", "x", "x", "x", {"D": None}, {"d": Disk(1000, 1)}, 999.0, {"c": "x"}, {"s": "x"}
    )
    health = judge_platform(facts)
    platform = {kind for kind in Kind if kind not in OF_A_TOPIC}
    assert {p.kind for p in health.problems} == health.judged == platform
    assert health.good == ()
