"""When an open incident is alerted again, what it says then, and what its end says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock_platform.alerts.model.incident_states import (
    OUTAGE_QUIET,
    SAID_RANGES_MAX,
    STOPS_MAX,
    Incident,
    Incidents,
    Observation,
    advance,
    answered,
    failure,
    outage,
    to_alert,
)
from penstock_platform.testing.clock import EPOCH

MINUTE = timedelta(minutes=1)


def alerts_of(*calls, at=EPOCH):
    """What each call of observations alerts, as (action, summary)."""
    incidents, said = Incidents(), []
    for observations in calls:
        incidents, alerts = advance(incidents, observations, at)
        said.append([(a["event_action"], a["payload"]["summary"]) for a in alerts])
    return said


def damage(records, *ranges, source="a", kind="missing", key="k"):
    details = {kind: [list(r) for r in ranges]}
    name = f"{records} records"
    return Observation(
        source, Incident(key, name, "error", "s", "c", "audit", "x", records, details)
    )


def stopped(*names):
    return [outage("prod", "broker", name, stops=name) for name in names]


def test_a_failure_as_it_is_alerted():
    observation = failure(
        "prod",
        "landing/orders",
        component="orders",
        summary="no broker",
        group="landing",
        class_="timeout",
        severity="warning",
        details={"error": "x"},
        links=[("http://x", "run")],
        at="2026-11-20T00:00:30Z",
    )
    assert (observation.source, observation.at) == ("landing/orders", "2026-11-20T00:00:30Z")
    _, [alert] = advance(Incidents(), [observation], EPOCH)
    assert alert == {
        "event_action": "trigger",
        "dedup_key": "landing:prod:landing/orders",
        "payload": {
            "summary": "no broker",
            "severity": "warning",
            "source": "prod/orders",
            "component": "orders",
            "group": "landing",
            "class": "timeout",
            "timestamp": "2026-11-20T00:00:00Z",
            "custom_details": {"error": "x"},
        },
        "links": [{"href": "http://x", "text": "run"}],
    }
    plain = failure("prod", "s", component="c", summary="x").incident
    assert (plain.group, plain.class_, plain.severity) == ("run", "failure", "error")
    assert (plain.details, plain.links, plain.records, plain.stops) == ({}, (), 0, ())


def test_an_outage_as_it_is_alerted():
    observation = outage(
        "prod",
        "store",
        "run/7",
        stops="landings",
        error="refused",
        links=[("http://x", "run")],
        at="2026-11-20T00:00:30Z",
    )
    assert (observation.source, observation.at) == ("run/7", "2026-11-20T00:00:30Z")
    incidents, [alert] = advance(Incidents(), [observation], EPOCH)
    assert alert == {
        "event_action": "trigger",
        "dedup_key": "outage:prod:store",
        "payload": {
            "summary": "the object store does not answer: refused",
            "severity": "critical",
            "source": "prod/store",
            "component": "store",
            "group": "outage",
            "class": "store",
            "timestamp": "2026-11-20T00:00:00Z",
            "custom_details": {"stops": ["landings"]},
        },
        "links": [{"href": "http://x", "text": "run"}],
    }
    later = EPOCH + MINUTE
    _, [end] = advance(incidents, [Observation("run/7")], later)
    assert (end["event_action"], end["dedup_key"]) == ("resolve", "outage:prod:store")
    assert end["payload"]["summary"] == "resolved: the object store does not answer: refused"
    assert end["payload"]["timestamp"] == "2026-11-20T00:01:00Z"
    assert end["payload"]["custom_details"] == {
        "stops": ["landings"],
        "open_since": "2026-11-20T00:00:00Z",
    }


def test_a_resolve_has_no_state_that_is_over_and_no_command():
    details = {"state": "MISSING", "rerun_from": "the log", "rerun": "run", "show": "s"}
    found = Incident("k", "lost", "error", "s", "c", "audit", "x", 3, details)
    resolve = to_alert(found, "resolve", EPOCH, "noon")
    assert resolve["payload"]["custom_details"] == {"show": "s", "open_since": "noon"}
    trigger = to_alert(found, "trigger", EPOCH)
    assert set(trigger["payload"]["custom_details"]) == {"state", "rerun_from", "rerun", "show"}


def test_an_outage_is_said_again_each_time_that_what_it_stops_has_doubled():
    said = alerts_of(*(stopped(f"s{n:02}") for n in range(17)))
    assert [number for number, alerts in enumerate(said, 1) if alerts] == [1, 2, 4, 8, 16]


def test_what_one_call_finds_stopped_is_one_alert_that_counts_all_of_it():
    """Three are said; five are not twice as many, six are."""
    incidents, alerts = advance(Incidents(), stopped("a", "b", "c"), EPOCH)
    assert [a["event_action"] for a in alerts] == ["trigger"]
    assert alerts[0]["payload"]["custom_details"]["stops"] == ["a", "b", "c"]
    incidents, alerts = advance(incidents, stopped("d"), EPOCH)
    assert alerts == []
    incidents, alerts = advance(incidents, stopped("e"), EPOCH)
    assert alerts == []
    incidents, alerts = advance(incidents, stopped("f"), EPOCH)
    assert [a["payload"]["custom_details"]["stops"] for a in alerts] == [list("abcdef")]
    incidents, alerts = advance(incidents, stopped("f", "a"), EPOCH)
    assert alerts == []


def test_what_an_outage_stops_is_named_up_to_a_bound():
    incidents, _ = advance(Incidents(), stopped(*(f"s{n:03}" for n in range(STOPS_MAX + 5))), EPOCH)
    [known] = incidents.open.values()
    assert known.incident.stops == tuple(f"s{n:03}" for n in range(STOPS_MAX))
    assert len(known.sources) == STOPS_MAX + 5


def test_the_end_says_what_was_said_last():
    """Neither what it had shrunk to, nor what it had been before it grew."""
    five, nine, three = (damage(n, (0, 0, n)) for n in (5, 9, 3))
    said = alerts_of([five], [nine], [three], [Observation("a")])
    assert said == [
        [("trigger", "5 records")],
        [("trigger", "9 records")],
        [],
        [("resolve", "resolved: 9 records")],
    ]


def test_more_records_than_ever_said_are_said_once():
    said = alerts_of(*([damage(n)] for n in (5, 7, 6, 7, 8, 8)))
    assert [bool(alerts) for alerts in said] == [True, True, False, False, True, False]


@pytest.mark.parametrize("kind", ["missing", "duplicates", "corrupt", "unaudited"])
def test_offsets_that_were_never_said_are_said_though_they_are_fewer(kind):
    said = alerts_of(
        [damage(5, (0, 0, 5), kind=kind)],
        [damage(2, (0, 3, 5), kind=kind)],
        [damage(2, (0, 4, 6), kind=kind)],
        [damage(6, (0, 0, 6), kind=kind)],
        [damage(1, (1, 0, 1), kind=kind)],
        [damage(3, (0, 0, 1), (1, 0, 1), kind=kind)],
    )
    assert [bool(alerts) for alerts in said] == [True, False, True, True, True, False]


def test_beyond_the_offsets_that_can_be_kept_only_the_number_counts():
    many = [(0, 2 * n, 2 * n + 1) for n in range(SAID_RANGES_MAX)]
    elsewhere = (7, 0, 1)
    kept = alerts_of([damage(500, *many[:-1])], [damage(500, elsewhere)])
    assert [bool(alerts) for alerts in kept] == [True, True]
    full = alerts_of([damage(500, *many)], [damage(500, elsewhere)], [damage(501, elsewhere)])
    assert [bool(alerts) for alerts in full] == [True, False, True]
    between = alerts_of([damage(500, *many)], [damage(1, (0, 1, 2))], [damage(500, elsewhere)])
    assert [bool(alerts) for alerts in between] == [True, False, False], (
        "what is not said is not kept"
    )


def test_an_older_judgement_takes_nothing_back_and_a_later_one_of_the_same_moment_does():
    incidents, _ = advance(Incidents(), [damage(5)], EPOCH + MINUTE)
    for at, actions in (
        ("2026-11-20T00:00:59Z", []),
        ("2026-11-20T00:01:00Z", ["resolve"]),
        ("", ["resolve"]),
    ):
        _, alerts = advance(incidents, [Observation("a", at=at)], EPOCH + 2 * MINUTE)
        assert [a["event_action"] for a in alerts] == actions


def test_a_judgement_that_comes_late_does_not_make_the_source_bad_longer_ago():
    incidents, _ = advance(Incidents(), [damage(5)], EPOCH + 9 * MINUTE)
    late = Observation("a", damage(5).incident, at="2026-11-20T00:00:00Z")
    incidents, _ = advance(incidents, [late], EPOCH + 10 * MINUTE)
    [known] = incidents.open.values()
    assert known.sources == {"a": "2026-11-20T00:09:00Z"}
    assert known.opened_at == "2026-11-20T00:09:00Z"


def test_a_source_whose_damage_is_another_incidents_leaves_the_first():
    said = alerts_of(
        [damage(5, key="x"), damage(5, key="x", source="b")],
        [damage(5, key="y")],
        [Observation("b"), Observation("a")],
    )
    assert [[action for action, _ in alerts] for alerts in said] == [
        ["trigger"],
        ["trigger"],
        ["resolve", "resolve"],
    ]


def test_of_triggers_and_resolves_of_several_incidents_each_last_one_is_sent():
    said = alerts_of(
        [damage(1), damage(2), damage(1, key="z", source="c"), damage(3)],
        [Observation("a"), damage(1), Observation("c")],
    )
    assert said == [
        [("trigger", "1 records"), ("trigger", "3 records")],
        [
            ("resolve", "resolved: 3 records"),
            ("trigger", "1 records"),
            ("resolve", "resolved: 1 records"),
        ],
    ]


@pytest.mark.parametrize("quiet,well", [(OUTAGE_QUIET, True), (OUTAGE_QUIET - MINUTE, False)])
def test_the_services_answer_proves_what_was_long_not_tried(quiet, well):
    incidents, _ = advance(
        Incidents(),
        [*stopped("a"), damage(1, source="q"), outage("prod", "spark", "z", stops="z")],
        EPOCH,
    )
    now = EPOCH + quiet
    proven = answered(incidents, "broker", now)
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert proven == ([Observation("a", at=stamp)] if well else [])


def test_other_versions_and_other_documents_are_refused():
    incidents, _ = advance(Incidents(), [*stopped("a"), damage(3, (0, 1, 2))], EPOCH)
    document = incidents.document()
    assert document["v"] == 2
    assert Incidents.from_document(document) == incidents
    for wrong, said in (
        ({**document, "v": 1}, "incidents of version 1: this code reads 2"),
        ({"open": {}}, "incidents of version None: this code reads 2"),
        ({"v": 2}, "not incidents"),
        ({"v": 2, "open": []}, "not incidents"),
        ({"v": 2, "open": {"k": {"incident": 3}}}, "not incidents"),
    ):
        with pytest.raises(ValueError, match=said):
            Incidents.from_document(wrong)
