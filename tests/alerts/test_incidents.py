"""Incidents: triggered once, sent again when they grow, resolved when every source is good."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.alerts.model.incident_states import (
    OUTAGE_QUIET,
    SAID_RANGES_MAX,
    Incident,
    Incidents,
    Observation,
    advance,
    answered,
    failure,
    outage,
)
from penstock_platform.alerts.model.incidents import observe
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.reconciliation.model.recovery import RerunSource, SourceKind, with_source
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window

LANDED, PRODUCED, PARSED = Equation
S = WindowState
FIRST = make_window({3: (118000, 119000)}, topic="shop.orders")
SECOND = make_window({3: (119000, 119000)}, previous=FIRST)
LOST = Finding("missing", (OffsetRange(3, 118204, 118241),))


def seen(state=S.BALANCED, *findings, equation=LANDED, window=FIRST, **options):
    result = EquationResult(equation, state, 1000, 963, findings)
    return observe("prod", window, result, **options)


def run(incidents, *observations, at=EPOCH):
    incidents, alerts = advance(incidents, observations, at)
    incidents = Incidents.from_document(json.loads(json.dumps(incidents.document())))
    return incidents, alerts


def sent(alerts):
    return [(alert["event_action"], alert["dedup_key"]) for alert in alerts]


KEY = "audit:prod:shop.orders:2026-11-20-00:00"


def test_an_incident_is_triggered_once_and_resolved():
    incidents, alerts = run(Incidents(), seen(S.MISSING, LOST))
    assert sent(alerts) == [("trigger", KEY)]
    incidents, alerts = run(incidents, seen(S.MISSING, LOST), seen(S.MISSING, LOST))
    assert alerts == []
    later = EPOCH + timedelta(minutes=9)
    incidents, alerts = run(incidents, seen(), at=later)
    assert sent(alerts) == [("resolve", KEY)]
    assert alerts[0]["payload"]["custom_details"]["open_since"] == "2026-11-20T00:00:00Z"
    assert run(incidents, seen())[1] == []


def test_the_alert_is_pagerdutys_with_exact_offsets_and_the_rerun_command():
    _, [alert] = run(
        Incidents(),
        seen(
            S.MIXED,
            LOST,
            Finding("duplicate", (OffsetRange(3, 118300, 118301),)),
            owners=("team:shop",),
            manifest="s3://penstock/x.json",
            links=[("http://127.0.0.1:3000/assets/lake", "asset check")],
        ),
    )
    assert alert == {
        "event_action": "trigger",
        "dedup_key": KEY,
        "payload": {
            "summary": "shop.orders 2026-11-20 00:00-00:01: 37 records missing in the lake "
            "(partition 3 offsets 118204-118240); 1 record duplicated in the lake "
            "(partition 3 offset 118300)",
            "severity": "critical",
            "source": "prod/shop.orders",
            "component": "shop.orders",
            "group": "audit",
            "class": "stored_equals_landed",
            "timestamp": "2026-11-20T00:00:00Z",
            "custom_details": {
                "state": "MIXED",
                "window": "2026-11-20-00:00",
                "window_id": FIRST.window_id,
                "expected": 1000,
                "found": 963,
                "missing": [[3, 118204, 118241]],
                "duplicates": [[3, 118300, 118301]],
                "owner": "team:shop",
                "manifest": "s3://penstock/x.json",
                "show": "penstock window show shop.orders 2026-11-20-00:00",
                "rerun": "penstock window rerun shop.orders 2026-11-20-00:00",
            },
        },
        "links": [{"href": "http://127.0.0.1:3000/assets/lake", "text": "asset check"}],
    }
    json.dumps(alert)


def test_two_equations_of_a_window_are_one_incident():
    silver = Finding("outside", (OffsetRange(3, 118204, 118241),))
    incidents, alerts = run(
        Incidents(), seen(S.MISSING, LOST), seen(S.DUPLICATE, silver, equation=PARSED)
    )
    assert sent(alerts) == [("trigger", KEY)]
    incidents, alerts = run(incidents, seen())
    assert alerts == [], "silver is still bad"
    assert sent(run(incidents, seen(equation=PARSED))[1]) == [("resolve", KEY)]


def test_growth_sends_an_alert_and_shrinking_does_not():
    more = Finding("missing", (OffsetRange(3, 118204, 118250),))
    incidents, _ = run(Incidents(), seen(S.MISSING, LOST))
    incidents, alerts = run(incidents, seen(S.MISSING, more))
    assert sent(alerts) == [("trigger", KEY)]
    assert "46 records" in alerts[0]["payload"]["summary"]
    assert run(incidents, seen(S.MISSING, LOST))[1] == []


def lost(*ranges, records=0, source="a", at=""):
    """An observation of lost offsets of partition 0, [start, end) each, or of so many records."""
    incident = Incident("k", "s", "error", "s", "c", "audit", "k")
    missing = [[0, start, end] for start, end in ranges]
    size = records or sum(end - start for start, end in ranges)
    return Observation(source, replace(incident, records=size, details={"missing": missing}), at=at)


def test_what_shrinks_and_grows_again_alerts_only_beyond_the_ranges_already_sent():
    incidents, alerts = run(Incidents(), lost((0, 10)))
    assert len(alerts) == 1
    incidents, alerts = run(incidents, lost((0, 3)))
    assert alerts == [], "shrinking sends nothing"
    incidents, alerts = run(incidents, lost((0, 8)))
    assert alerts == [], "these offsets were named before"
    incidents, alerts = run(incidents, lost((0, 3), (20, 22)))
    assert len(alerts) == 1, "fewer than were said, and elsewhere"
    incidents, alerts = run(incidents, lost((0, 10), (20, 22)))
    assert len(alerts) == 1, "more than any alert said at once"
    incidents, alerts = run(incidents, lost((0, 12)), lost((20, 22)), lost((10, 12)))
    assert len(alerts) == 1, "two offsets more"
    assert alerts[0]["payload"]["custom_details"]["missing"] == [[0, 0, 12]]
    incidents, alerts = run(incidents, lost(records=12), lost(records=13), lost(records=2))
    assert len(alerts) == 1, "records without offsets count as records"
    incidents, _ = run(incidents, lost((0, 1)))
    _, [resolved] = run(incidents, Observation("a"))
    assert resolved["event_action"] == "resolve"


def test_the_offsets_that_were_said_are_bounded():
    scattered = [(2 * n, 2 * n + 1) for n in range(SAID_RANGES_MAX)]
    incidents, _ = run(Incidents(), lost(*scattered))
    assert run(incidents, lost((5000, 5001)))[1] == [], "too many to list: only their number counts"
    assert len(run(incidents, lost(*scattered, (5000, 5001)))[1]) == 1


def test_a_resolve_needs_a_judgement_made_after_the_damage_was_seen():
    early, seen_at, late = (f"2026-11-20T00:0{n}:00.5Z" for n in (1, 2, 3))
    incidents, _ = run(Incidents(), lost((0, 3), at=seen_at))
    incidents, alerts = run(incidents, Observation("a", at=early))
    assert alerts == [], "that judgement is older than the damage"
    incidents, alerts = run(incidents, lost((0, 3), at=early), Observation("a", at=early))
    assert alerts == [], "an old sighting does not make the newest one older"
    assert len(run(incidents, Observation("a", at=seen_at))[1]) == 1
    assert len(run(incidents, Observation("a", at="2026-11-20T00:02:01Z"))[1]) == 1
    assert run(incidents, Observation("a", at="2026-11-20T00:02:00Z"))[1] == []
    assert run(incidents, Observation("b", at=late))[1] == [], "another source"
    again, _ = run(incidents, lost((0, 3), at=late))
    assert run(again, Observation("a", at=seen_at))[1] == []


@pytest.mark.parametrize("kind", ["missing", "duplicates", "corrupt", "unaudited"])
def test_offsets_of_every_kind_of_damage_count_as_said(kind):
    def hurt(start, end):
        incident = Incident("k", "s", "error", "s", "c", "audit", "k")
        return Observation("a", replace(incident, details={kind: [[0, start, end]]}))

    incidents, alerts = run(Incidents(), hurt(0, 9))
    assert len(alerts) == 1
    assert run(incidents, hurt(3, 5))[1] == []
    assert len(run(incidents, hurt(8, 10))[1]) == 1


def test_an_incident_without_a_number_of_records_counts_none():
    incident = Incident("k", "s", "error", "s", "c", "run", "k")
    incidents, _ = run(Incidents(), Observation("a", incident))
    assert len(run(incidents, Observation("a", replace(incident, records=1)))[1]) == 1
    assert run(incidents, Observation("a", replace(incident, records=0)))[1] == []


@pytest.mark.parametrize("service", ["broker", "store", "spark"])
def test_each_service_has_its_own_outage(service):
    _, [alert] = run(Incidents(), down("a", "A", service))
    assert alert["dedup_key"] == f"outage:prod:{service}"
    assert alert["payload"]["summary"].endswith("does not answer")
    assert alert["payload"]["component"] == alert["payload"]["class"] == service


def test_limits_of_the_state_are_those_of_the_documentation():
    assert timedelta(minutes=15) == OUTAGE_QUIET
    assert SAID_RANGES_MAX == 500


def down(source, stops, service="store", **options):
    return outage("prod", service, source, stops=stops, **options)


def test_what_an_outage_stops_is_one_incident_with_the_list():
    incidents, alerts = run(
        Incidents(),
        down("run/reverify", "re-verification", error="connection refused"),
        down("run/prove_empty_windows", "the results of empty windows"),
        down("run/land/7", "landing of flights"),
    )
    first = alerts[0]
    assert {a["dedup_key"] for a in alerts} == {"outage:prod:store"}
    assert first["payload"]["summary"] == "the object store does not answer: connection refused"
    assert first["payload"]["severity"] == "critical"
    assert first["payload"]["custom_details"]["stops"] == [
        "landing of flights",
        "re-verification",
        "the results of empty windows",
    ]
    assert run(incidents, down("run/reverify", "re-verification"))[1] == []
    sent_alerts = len(alerts)
    for number in range(8, 40):
        incidents, alerts = run(incidents, down(f"run/land/{number}", f"landing {number}"))
        sent_alerts += len(alerts)
    assert sent_alerts <= 6, "the list is sent again when it has doubled"
    assert len(run(incidents, down("x", "y", "spark"))[1]) == 1, "another service, another incident"


def test_an_outage_ends_with_its_last_source_or_with_the_services_answer():
    incidents, _ = run(Incidents(), down("a", "A"), down("b", "B"))
    incidents, alerts = run(incidents, Observation("a"))
    assert alerts == []
    assert run(incidents, Observation("b"))[1][0]["event_action"] == "resolve"

    soon, later = EPOCH + OUTAGE_QUIET - timedelta(seconds=1), EPOCH + OUTAGE_QUIET
    assert answered(incidents, "store", soon) == []
    assert answered(incidents, "broker", later) == []
    proof = answered(incidents, "store", later)
    assert [o.source for o in proof] == ["b"]
    assert run(incidents, *proof, at=later)[1][0]["event_action"] == "resolve"
    other, _ = run(
        Incidents(), failure("prod", "b", component="store", summary="x", class_="store")
    )
    assert answered(other, "store", later) == [], "an answer proves nothing of other incidents"


def test_the_list_of_what_is_stopped_has_a_bound():
    incidents, _ = run(Incidents(), *[down(f"s{n}", f"stop {n:03}") for n in range(150)])
    (opened,) = incidents.open.values()
    assert len(opened.incident.stops) == 100
    assert len(opened.sources) == 150


def test_what_is_pending_changes_nothing():
    pending = seen(S.PENDING, Finding("pending", (OffsetRange(3, 118000, 119000),)))
    assert run(Incidents(), pending) == (Incidents(), [])
    incidents, _ = run(Incidents(), seen(S.MISSING, LOST))
    assert run(incidents, pending) == (incidents, [])


def test_unaudited_records_alert_by_the_topics_word():
    loose = Finding("incarnation_silent", (OffsetRange(3, 118990, 119000),), "77")
    options = {"equation": PRODUCED}
    _, [alert] = run(Incidents(), seen(S.UNAUDITED, loose, **options))
    payload = alert["payload"]
    assert payload["severity"] == "warning"
    assert payload["custom_details"]["unaudited"] == [[3, 118990, 119000]]
    assert payload["custom_details"]["incarnations"] == ["77"]
    assert "rerun" not in payload["custom_details"], "landing again brings no evidence"
    assert run(Incidents(), seen(S.UNAUDITED, loose, accept_unaudited=True, **options))[1] == []
    _, [alert] = run(Incidents(), seen(S.MISSING, LOST, severity="WARN"))
    assert alert["payload"]["severity"] == "warning"


def test_a_lost_tail_is_one_incident_however_many_idle_windows_see_it():
    tail = Finding("beyond_log_end", (OffsetRange(3, 119000, 119004),), "77")
    options = {"equation": PRODUCED}
    incidents, alerts = run(
        Incidents(),
        seen(S.MISSING, tail, **options),
        seen(S.MISSING, tail, window=SECOND, **options),
    )
    key = "audit:prod:shop.orders:log-end:3-119000"
    assert sent(alerts) == [("trigger", key)]
    incidents, alerts = run(incidents, seen(**options))
    assert alerts == []
    assert sent(run(incidents, seen(window=SECOND, **options))[1]) == [("resolve", key)]


def test_a_source_whose_trouble_becomes_another_moves():
    tail = Finding("beyond_log_end", (OffsetRange(3, 119000, 119004),), "77")
    incidents, _ = run(Incidents(), seen(S.MISSING, tail, equation=PRODUCED))
    _, alerts = run(incidents, seen(S.MISSING, LOST, equation=PRODUCED))
    assert sent(alerts) == [
        ("resolve", "audit:prod:shop.orders:log-end:3-119000"),
        ("trigger", KEY),
    ]


def test_other_failures_are_incidents_too():
    broken = failure(
        "prod", "landing/shop.orders/00:00", component="shop.orders", summary="no broker"
    )
    incidents, alerts = run(Incidents(), broken, broken)
    assert sent(alerts) == [("trigger", "run:prod:landing/shop.orders/00:00")]
    _, alerts = run(incidents, Observation("landing/shop.orders/00:00"))
    assert alerts[0]["payload"]["summary"] == "resolved: no broker"


def test_long_lists_are_cut_and_say_so():
    many = Finding(
        "missing", tuple(OffsetRange(3, 118000 + 2 * n, 118001 + 2 * n) for n in range(300))
    )
    _, [alert] = run(Incidents(), seen(S.MISSING, many))
    details = alert["payload"]["custom_details"]
    assert len(details["missing"]) == 100
    assert details["records_not_listed"] == 200
    assert "and 297 more ranges" in alert["payload"]["summary"]


def test_the_state_is_read_back_and_other_versions_are_refused():
    assert Incidents.from_document(None) == Incidents.from_document({}) == Incidents()
    with pytest.raises(ValueError, match="version 9"):
        Incidents.from_document({"v": 9})
    with pytest.raises(ValueError, match="not incidents"):
        Incidents.from_document({"v": 2, "open": {"k": {}}})


sources = st.sampled_from(["a", "b", "c"])
keys = st.sampled_from(["x", "y"])
sizes = st.integers(0, 3)


@given(st.lists(st.tuples(sources, st.one_of(st.none(), st.tuples(keys, sizes)), st.booleans())))
def test_at_any_time_exactly_the_bad_sources_are_in_open_incidents(history):
    incidents, bad, open_keys = Incidents(), {}, set()
    for source, wrong, pending in history:
        incident = None
        if wrong is not None:
            key, records = wrong
            incident = Incident(key, "s", "error", "s", "c", "g", "k", records)
        observation = Observation(source, incident, pending=pending and wrong is None)
        incidents, alerts = run(incidents, observation)
        if not observation.pending:
            bad.pop(source, None)
            if wrong is not None:
                bad[source] = wrong[0]
        for alert in alerts:
            if alert["event_action"] == "resolve":
                assert alert["dedup_key"] in open_keys
                open_keys.discard(alert["dedup_key"])
            else:
                open_keys.add(alert["dedup_key"])
        assert open_keys == set(incidents.open) == set(bad.values())
        for key, opened in incidents.open.items():
            assert sorted(opened.sources) == sorted(s for s, k in bad.items() if k == key)


def of(key, records, source):
    incident = Incident(key, "s", "error", "s", "c", "audit", "k", records, links=(("a", "t"),))
    return Observation(source, incident)


def test_of_triggers_that_follow_each_other_the_last_is_sent():
    assert len(run(Incidents(), of("x", 1, "a"), of("x", 2, "a"))[1]) == 1
    incidents, alerts = run(
        Incidents(),
        Observation("c", pending=True),
        of("x", 1, "a"),
        of("y", 1, "b"),
        of("x", 2, "a"),
        Observation("a"),
        of("x", 1, "a"),
    )
    assert sent(alerts) == [("trigger", "y"), ("trigger", "x"), ("resolve", "x"), ("trigger", "x")]
    assert incidents.open["x"].incident.links == (("a", "t"),), "as it was before it was kept"


def test_an_outage_that_ends_and_comes_again_names_what_each_stopped():
    incidents, alerts = run(Incidents(), down("a", "A"), Observation("a"), down("b", "B"))
    stops = [alert["payload"]["custom_details"]["stops"] for alert in alerts]
    assert stops == [["A"], ["A"], ["B"]]
    assert incidents.open["outage:prod:store"].incident.stops == ("B",)


VANISHED = Finding("vanished", (OffsetRange(3, 118204, 118241),))


def noted(source, *findings):
    result = EquationResult(LANDED, S.MISSING, 1000, 963, findings)
    _, [alert] = run(Incidents(), observe("prod", FIRST, with_source(result, source)))
    return alert["payload"]["summary"], alert["payload"]["custom_details"]


def test_what_vanished_after_its_proof_keeps_the_command_that_restores_it():
    source = RerunSource(SourceKind.SNAPSHOT, snapshot_id=77, landed_at="2026-11-20T00:01:00Z")
    summary, details = noted(source, VANISHED)
    assert "37 records vanished from the table after they were proven; the log no longer" in summary
    assert details["rerun"] == "penstock window rerun shop.orders 2026-11-20-00:00"
    assert "restores it from snapshot 77" in details["rerun_from"]


@pytest.mark.parametrize("kind", ["vanished", "altered", "missing"])
def test_without_anything_that_proves_there_is_no_command_and_the_alert_says_so(kind):
    finding = Finding(kind, VANISHED.ranges)
    summary, details = noted(RerunSource(SourceKind.NOTHING), finding)
    assert "rerun" not in details
    assert "no command brings it back" in summary
    assert "no command brings it back" in details["rerun_from"]


def test_what_was_never_landed_is_beyond_help_and_the_rest_of_its_window_is_not():
    away = Finding("retained_away", (OffsetRange(3, 118000, 118100),))
    never = RerunSource(SourceKind.NEVER)
    summary, details = noted(never, away)
    assert "100 records deleted before they were landed" in summary
    assert "rerun" not in details
    assert "rerun" in noted(never, away, LOST)[1]
