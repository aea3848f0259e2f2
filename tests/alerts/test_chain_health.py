"""What stops a chain is named, and what could not be judged is not called good."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from penstock_platform.alerts.model.chain_health import (
    DUE_COUNTED_MAX,
    OF_A_TOPIC,
    ChainFacts,
    Kind,
    Parsed,
    PlatformFacts,
    Problem,
    WaitingWindow,
    confirm,
    freeze_allowance,
    judge_chain,
    judge_platform,
    source_of,
)
from penstock_platform.clock import from_iso
from penstock_platform.kafka.model import TopicRef
from penstock_platform.retention.model.log import Disk
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window
from penstock_platform.topics.model.declaration import parse_topic

MINUTE = timedelta(minutes=1)
FIRST = make_window({0: (0, 100), 1: (0, 20)}, topic="shop.orders")
REF = TopicRef(FIRST.cluster_id, FIRST.topic, FIRST.topic_id)
SPEC = parse_topic(
    {
        "metadata": {"name": "shop.orders"},
        "land": {"window": "minutely"},
        "schema": {"file": "x.json"},
        "retention": {"keep": "7d"},
        "quarantine": {"max_share": 0.05},
    }
)
FINE = ChainFacts(
    "shop.orders", SPEC, REF, (REF.topic_id,), EPOCH, FIRST, stored=120, oldest_in_log=FIRST
)
CLOSED = from_iso(FIRST.closed_at)


def kinds(facts, now=CLOSED + MINUTE):
    return [problem.kind for problem in judge_chain(facts, now).problems]


def only(facts, now=CLOSED + MINUTE):
    (problem,) = judge_chain(facts, now).problems
    return problem


def test_a_chain_that_continues_is_well_and_proven_so():
    health = judge_chain(FINE, CLOSED + MINUTE)
    assert health.problems == ()
    assert health.judged == frozenset(OF_A_TOPIC)
    assert source_of(Kind.NOT_FROZEN, "shop.orders") in health.good
    assert len(health.good) == len(OF_A_TOPIC)


@pytest.mark.parametrize(("minutes", "late"), [(2.9, 0), (3, 1), (3.9, 1), (4, 2), (63, 61)])
def test_a_window_is_overdue_two_of_its_lengths_after_its_close(minutes, late):
    found = judge_chain(FINE, CLOSED + minutes * MINUTE).problems
    assert [p.details["windows_due"] for p in found if p.kind is Kind.NOT_FROZEN] == (
        [late] if late else []
    )


def test_what_is_overdue_is_said_with_its_number_and_its_records():
    one = only(replace(FINE, unfrozen=7), CLOSED + 3 * MINUTE)
    assert one.summary == (
        "shop.orders: no window is frozen since 2026-11-20T00:01:00Z; one window is overdue, "
        "7 records are in no window"
    )
    assert (one.topic, one.severity, one.patience) == ("shop.orders", "critical", MINUTE)
    assert one.details["records"] == 7
    assert "2 windows are overdue" in only(FINE, CLOSED + 4 * MINUTE).summary
    assert "records" not in only(FINE, CLOSED + 4 * MINUTE).summary
    many = only(replace(FINE, oldest_in_log=None), CLOSED + 3000 * MINUTE)
    assert f"{DUE_COUNTED_MAX:,} windows or more" in many.summary


@pytest.mark.parametrize(
    ("length", "allowance"),
    [(MINUTE, 2 * MINUTE), (3 * MINUTE, 6 * MINUTE), (60 * MINUTE, 10 * MINUTE)],
)
def test_the_allowance_grows_with_the_window_and_has_bounds(length, allowance):
    assert freeze_allowance(length) == allowance


@pytest.mark.parametrize(
    ("minutes", "late"), [(2.9, []), (3, [Kind.NOT_FROZEN]), (4, [Kind.NOT_FROZEN])]
)
def test_without_declarations_a_windows_length_is_the_chains_own(minutes, late):
    facts = replace(FINE, spec=None)
    assert kinds(facts, CLOSED + minutes * MINUTE) == late


def test_windows_due_are_counted_without_declarations_too():
    facts = replace(FINE, spec=None)
    assert only(facts, CLOSED + 5 * MINUTE).details["windows_due"] == 3
    assert only(facts, CLOSED + 5000 * MINUTE).details["windows_due"] == DUE_COUNTED_MAX


def test_a_chain_that_never_began():
    never = replace(FINE, newest=None, oldest_in_log=None, unfrozen=120)
    assert kinds(never, EPOCH + 2 * MINUTE) == []
    problem = only(never, EPOCH + 3 * MINUTE)
    assert problem.kind is Kind.EMPTY_CHAIN
    assert "no window was ever frozen since 2026-11-20T00:00:00Z" in problem.summary
    assert kinds(replace(never, stored=0), EPOCH + 3 * MINUTE) == [Kind.NOT_FROZEN]
    # Its start is not decided: the sensor never looked.
    unseen = replace(never, start=None, incarnations=())
    assert kinds(unseen) == [Kind.EMPTY_CHAIN]
    assert "holds 120 records" in only(unseen).summary
    assert kinds(replace(unseen, stored=0)) == []
    assert kinds(replace(never, spec=None, start=EPOCH)) == []


def test_a_topic_without_land_has_no_chain():
    spec = parse_topic({"metadata": {"name": "shop.orders"}})
    health = judge_chain(replace(FINE, spec=spec, newest=None), CLOSED + 9 * MINUTE)
    assert (health.problems, health.judged) == ((), frozenset())


def test_what_could_not_be_asked_is_neither_good_nor_bad():
    health = judge_chain(replace(FINE, unanswered=True, ref=None), CLOSED + 9 * MINUTE)
    assert (health.problems, health.good) == ((), ())


def test_a_topic_that_is_gone_or_another_one():
    gone = judge_chain(replace(FINE, ref=None), CLOSED + 9 * MINUTE)
    (problem,) = gone.problems
    assert problem.kind is Kind.TOPIC_DELETED
    assert "its windows until 2026-11-20-00:00 hold 120 offsets" in problem.summary
    assert source_of(Kind.NOT_FROZEN, "shop.orders") not in gone.good
    assert source_of(Kind.TOPIC_RECREATED, "shop.orders") in gone.good

    other = TopicRef(REF.cluster_id, REF.topic, "another")
    problem = only(replace(FINE, ref=other))
    assert problem.kind is Kind.TOPIC_RECREATED
    assert f"topic id {REF.topic_id}, the broker now has another" in problem.summary
    assert problem.command == "penstock window begin shop.orders"
    assert kinds(replace(FINE, ref=other, incarnations=("another", REF.topic_id))) == [
        Kind.TOPIC_RECREATED
    ], "the newest incarnation counts"
    assert kinds(replace(FINE, incarnations=("older", REF.topic_id))) == []
    assert "none of its records" in only(replace(FINE, ref=None, newest=None)).summary

    absent = only(replace(FINE, ref=None, incarnations=(), newest=None))
    assert (absent.kind, absent.severity) == (Kind.TOPIC_ABSENT, "error")
    assert absent.patience == 5 * MINUTE


def test_a_chain_that_cannot_be_read():
    health = judge_chain(replace(FINE, unreadable="place 3 is missing"), CLOSED + 9 * MINUTE)
    assert [p.kind for p in health.problems] == [Kind.CHAIN_UNREADABLE]
    assert "place 3 is missing" in health.problems[0].summary
    assert health.judged == {
        Kind.TOPIC_ABSENT,
        Kind.TOPIC_DELETED,
        Kind.TOPIC_RECREATED,
        Kind.CHAIN_UNREADABLE,
    }


def test_a_landing_that_takes_long_and_one_that_was_given_up():
    frozen = from_iso(FIRST.frozen_at)
    steady = replace(FINE, spec=None, waiting=[WaitingWindow(FIRST)])

    def landing(facts, now):
        return [p for p in judge_chain(facts, now).problems if "landing" in p.kind]

    assert landing(steady, frozen + 30 * MINUTE) == []
    (late,) = landing(steady, frozen + 31 * MINUTE)
    assert (late.kind, late.severity) == (Kind.LANDING_LATE, "error")
    assert "was frozen 31m ago" in late.summary
    hourly = make_window({0: (0, 1)}, topic="shop.orders", length=timedelta(hours=1))
    frozen = from_iso(hourly.frozen_at)
    slow = replace(steady, waiting=[WaitingWindow(hourly)])
    assert landing(slow, frozen + timedelta(hours=3)) == []
    assert landing(slow, frozen + timedelta(hours=3, seconds=1))[0].kind is Kind.LANDING_LATE

    second = make_window({0: (100, 101), 1: (20, 20)}, previous=FIRST)
    tried = [
        WaitingWindow(FIRST),
        WaitingWindow(second, attempts=5, abandoned=True, error="CAST"),
    ]
    (given_up,) = landing(replace(FINE, waiting=tried), CLOSED + MINUTE)
    assert given_up.kind is Kind.LANDING_ABANDONED
    assert given_up.summary == (
        f"shop.orders: window {second.window} is not landed and not tried again after 5 attempts: "
        "CAST"
    )
    assert given_up.command == f"penstock window rerun shop.orders {second.window}"
    assert given_up.details["windows"] == [second.window]
    two = [replace(w, abandoned=True) for w in tried]
    assert (
        f"window {FIRST.window} and 1 more is"
        in landing(replace(FINE, waiting=two), CLOSED)[0].summary
    )


def test_retention_beyond_its_policy():
    def held(facts, age):
        found = judge_chain(facts, CLOSED + age).problems
        return [p for p in found if p.kind is Kind.RETENTION_HELD]

    week, hours = timedelta(days=7), timedelta(hours=1)
    assert not held(FINE, week * 1.1)
    (problem,) = held(FINE, week * 1.1 + MINUTE)
    assert "to be kept for 7d" in problem.summary
    assert problem.command == f"penstock window show shop.orders {FIRST.window}"
    brief = SPEC.model_copy(
        update={"retention": SPEC.retention.model_copy(update={"keep": MINUTE})}
    )
    assert not held(replace(FINE, spec=brief), MINUTE + 2 * hours)
    assert held(replace(FINE, spec=brief), MINUTE + 2 * hours + MINUTE)
    assert not held(replace(FINE, spec=None), 30 * week)
    assert not held(replace(FINE, oldest_in_log=None), 30 * week)
    compacted = parse_topic(
        {
            "metadata": {"name": "shop.orders"},
            "spec": {"configs": {"cleanup.policy": "compact"}},
            "land": {},
            "retention": {"keep": "7d"},
        }
    )
    assert not held(replace(FINE, spec=compacted), 30 * week)


def test_quarantine_above_the_declared_share():
    assert kinds(replace(FINE, parsed=Parsed(FIRST.window, 95, 5))) == []
    problem = only(replace(FINE, parsed=Parsed(FIRST.window, 94, 6)))
    assert problem.kind is Kind.QUARANTINE_SHARE
    assert "6 of 100 records" in problem.summary
    assert "(6.0%, declared at most 5.0%)" in problem.summary
    assert kinds(replace(FINE, parsed=Parsed(FIRST.window, 0, 0))) == []
    assert kinds(replace(FINE, spec=None, parsed=Parsed(FIRST.window, 0, 9))) == []
    strict = SPEC.model_copy(
        update={"quarantine": SPEC.quarantine.model_copy(update={"max_share": 0.0})}
    )
    assert kinds(replace(FINE, spec=strict, parsed=Parsed(FIRST.window, 99, 1))) == [
        Kind.QUARANTINE_SHARE
    ]


def test_services_that_do_not_answer():
    health = judge_platform(PlatformFacts(broker="refused", store="", definitions="defs.yaml:5: x"))
    assert [p.kind for p in health.problems] == [Kind.BROKER_UNANSWERED, Kind.DEFINITIONS_BROKEN]
    assert health.good == (source_of(Kind.STORE_UNANSWERED),)
    assert health.problems[0].patience == MINUTE
    assert health.problems[1].patience == timedelta()
    assert "defs.yaml:5" in health.problems[1].summary
    assert judge_platform(PlatformFacts()).judged == frozenset()
    dead = judge_platform(PlatformFacts(dagster="refused", store="timed out"))
    assert {p.kind for p in dead.problems} == {Kind.DAGSTER_UNANSWERED, Kind.STORE_UNANSWERED}


def test_daemons_that_fell_silent():
    beats = {"SENSOR": 120.0, "SCHEDULER": 3.0}
    assert judge_platform(PlatformFacts(heartbeats=beats)).good == (source_of(Kind.DAEMON_STALE),)
    (problem,) = judge_platform(
        PlatformFacts(heartbeats={**beats, "SENSOR": 121.0, "BACKFILL": None})
    ).problems
    assert "BACKFILL (never), SENSOR (121 s ago)" in problem.summary
    assert problem.details["daemons"] == ["BACKFILL", "SENSOR"]
    assert problem.patience == MINUTE


@pytest.mark.parametrize(
    ("total", "free", "risk"),
    [
        (100_000_000_000, 9_999_999_999, True),
        (100_000_000_000, 10_000_000_000, False),
        (200_000_000_000, 10_000_000_000, False),
        (200_000_000_000, 9_999_999_999, True),
        (4_000_000_000_000, 399_000_000_000, False),
        (50_000_000_000, 5_000_000_000, False),
        (50_000_000_000, 4_999_999_999, True),
    ],
)
def test_a_disk_is_at_risk_when_little_is_left_of_it_and_altogether(total, free, risk):
    health = judge_platform(PlatformFacts(disks={"broker": Disk(total, free)}))
    assert bool(health.problems) is risk
    assert bool(health.good) is not risk


def test_what_may_pass_by_itself_is_alerted_when_it_stays():
    patient = Problem(Kind.NOT_FROZEN, "x", "a", patience=MINUTE)
    sudden = Problem(Kind.TOPIC_DELETED, "x", "a")
    ripe, seen = confirm([patient, sudden], {}, EPOCH)
    assert ripe == [sudden]
    ripe, seen = confirm([patient], seen, EPOCH + MINUTE - timedelta(seconds=1))
    assert ripe == []
    assert confirm([patient], seen, EPOCH + MINUTE)[0] == [patient]
    _, gone = confirm([], seen, EPOCH + MINUTE)
    assert gone == {}
    assert confirm([patient], gone, EPOCH + MINUTE)[0] == []
