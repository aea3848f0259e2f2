"""The sweep's plan: a prefix, old enough and proven, and never a step past what is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.domain.books import (
    Acceptance,
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.domain.ranges import OffsetRange
from penstock_platform.domain.retention import (
    Disk,
    SweepAction,
    SweepPolicy,
    WindowStanding,
    plan_sweep,
)
from penstock_platform.domain.topics import RetentionSpec
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window

LANDED, PRODUCED, _PARSED = Equation
S = WindowState
KEEP_10M = SweepPolicy(RetentionSpec(keep=timedelta(minutes=10)))
NOW = EPOCH + timedelta(minutes=30)


def result(equation, state):
    findings = () if state is S.BALANCED else (Finding("missing", (OffsetRange(0, 0, 1),)),)
    if state is S.UNAUDITED:
        findings = (Finding("unstamped", (OffsetRange(0, 0, 1),)),)
    return EquationResult(equation, state, 10, 10, findings)


def standing(window, *, landed=S.BALANCED, produced=S.BALANCED, size=100, accepted=False):
    results = [result(LANDED, landed or S.BALANCED)]
    if produced is not None:
        results.append(result(PRODUCED, produced))
    book = Book.of(window, results, made_at="2026-11-20T00:00:00Z", code_version="t")
    found = [f for r in results for f in r.findings]
    word = Acceptance(window.window_id, "me", "why", "2026-11-20T00:00:00Z", tuple(found))
    return WindowStanding(
        window=window,
        reproved=result(LANDED, landed) if landed else None,
        book=book,
        acceptances=(word,) if accepted else (),
        size_bytes=size,
    )


def chain(length, step=10, partitions=2):
    windows = []
    for n in range(length):
        spans = dict.fromkeys(range(partitions), (n * step, (n + 1) * step))
        windows.append(make_window(spans, previous=windows[-1] if windows else None))
    return windows


def actions(plan):
    return [str(decision.action) for decision in plan.decisions]


def test_old_proven_windows_go_and_the_rest_stays():
    plan = plan_sweep(NOW, [standing(w) for w in chain(25)], KEEP_10M, {0: 0, 1: 0})
    assert actions(plan) == ["delete"] * 20 + ["keep"] * 5
    assert plan.delete_before == {0: 200, 1: 200}
    assert plan.risks == ()
    assert plan.decisions[0].reason == "closed 29m ago, kept for 10m, and it is proven"
    assert plan.decisions[20].reason == "closed 9m ago, kept for 10m"


UNPROVEN = {
    "not proved in this run": {"landed": None},
    "stored = landed is MISSING": {"landed": S.MISSING},
    "stored = landed is DUPLICATE": {"landed": S.DUPLICATE},
    "its producers have not been heard": {"produced": None},
    "produced = stored is PENDING": {"produced": S.PENDING},
    "produced = stored is UNAUDITED": {"produced": S.UNAUDITED},
    "produced = stored is CORRUPT": {"produced": S.CORRUPT},
}


@pytest.mark.parametrize("reason", UNPROVEN)
def test_an_unproven_window_is_held_and_nothing_behind_it_goes(reason):
    windows = chain(25)
    standings = [standing(w) for w in windows]
    standings[4] = standing(windows[4], **UNPROVEN[reason])
    plan = plan_sweep(NOW, standings, KEEP_10M, {0: 0, 1: 0})
    assert actions(plan) == ["delete"] * 4 + ["hold"] + ["keep"] * 20
    assert plan.delete_before == {0: 40, 1: 40}
    assert reason in plan.decisions[4].reason
    assert plan.decisions[5].reason == (
        "behind window 2026-11-20-00:04: deleting it would delete that one too"
    )
    [risk] = plan.risks
    assert risk.startswith("window 2026-11-20-00:04 outlives its policy: closed 25m ago")


def test_a_topic_may_accept_what_is_not_audited_and_a_person_anything():
    [window] = chain(1)
    tolerant = replace(KEEP_10M, accept_unaudited=True)
    unaudited = standing(window, produced=S.UNAUDITED)
    assert actions(plan_sweep(NOW, [unaudited], tolerant, {})) == ["delete"]
    assert actions(plan_sweep(NOW, [standing(window, produced=S.CORRUPT)], tolerant, {})) == [
        "hold"
    ]
    for state in ({"produced": S.CORRUPT}, {"landed": S.MISSING}, {"produced": S.UNAUDITED}):
        accepted = standing(window, accepted=True, **state)
        assert actions(plan_sweep(NOW, [accepted], KEEP_10M, {})) == ["delete"]


def test_a_book_about_another_window_object_proves_nothing():
    window = chain(1)[0]
    other = standing(replace(window, frozen_at="2026-11-20T00:01:59Z"))
    plan = plan_sweep(NOW, [replace(other, window=window)], KEEP_10M, {})
    assert plan.decisions[0].reason.endswith("but it has no book")


def test_size_deletes_the_oldest_first():
    policy = SweepPolicy(RetentionSpec(max_bytes=350))
    plan = plan_sweep(NOW, [standing(w) for w in chain(6)], policy, {0: 0, 1: 0})
    assert actions(plan) == ["delete"] * 3 + ["keep"] * 3
    assert plan.decisions[0].reason.startswith("600 bytes from this window on, 350 are kept")


def test_without_a_policy_everything_is_kept_and_compacted_topics_are_not_swept():
    standings = [standing(w) for w in chain(3)]
    assert actions(plan_sweep(NOW, standings, SweepPolicy(RetentionSpec()), {})) == ["keep"] * 3
    compacted = replace(KEEP_10M, compacted=True)
    plan = plan_sweep(NOW, standings, compacted, {})
    assert {d.reason for d in plan.decisions} == {"compacted topics are not swept"}


def test_what_is_gone_is_passed_and_not_asked_for_again():
    standings = [standing(w) for w in chain(5)]
    plan = plan_sweep(NOW, standings, KEEP_10M, {0: 20, 1: 15})
    assert actions(plan) == ["gone"] + ["delete"] * 4
    unproven = [standing(w, landed=None) for w in chain(2)] + standings[2:]
    assert (
        actions(plan_sweep(NOW, unproven, KEEP_10M, {0: 20, 1: 20}))
        == ["gone"] * 2 + ["delete"] * 3
    )
    assert plan_sweep(NOW, standings, KEEP_10M, {0: 50, 1: 20}).delete_before == {1: 50}


def test_a_full_disk_alerts():
    plan = plan_sweep(NOW, [standing(chain(1)[0])], KEEP_10M, {}, Disk(1000, 99))
    assert plan.risks == ("the log's disk has 99 of 1,000 bytes left; 0 windows are held",)


def test_standings_must_be_consecutive():
    windows = chain(3)
    with pytest.raises(ValueError, match=r"got \[0, 2\]"):
        plan_sweep(NOW, [standing(windows[0]), standing(windows[2])], KEEP_10M, {})


kinds = st.fixed_dictionaries(
    {
        "landed": st.sampled_from([None, S.BALANCED, S.BALANCED, S.BALANCED, S.MISSING]),
        "produced": st.sampled_from([None, S.BALANCED, S.BALANCED, S.BALANCED, S.UNAUDITED]),
        "size": st.integers(0, 500),
        "accepted": st.booleans(),
    }
)


@given(
    st.lists(kinds, min_size=1, max_size=12),
    st.integers(0, 60),
    st.one_of(st.none(), st.integers(1, 30)),
    st.one_of(st.none(), st.integers(1, 3000)),
    st.booleans(),
    st.integers(0, 120),
)
def test_no_offset_that_is_not_proven_is_ever_deleted(
    chosen, minutes, keep, max_bytes, tolerant, start
):
    windows = chain(len(chosen), partitions=1)
    standings = [standing(w, **kind) for w, kind in zip(windows, chosen, strict=True)]
    retention = RetentionSpec(keep=timedelta(minutes=keep) if keep else None, max_bytes=max_bytes)
    policy = SweepPolicy(retention, accept_unaudited=tolerant)
    now = EPOCH + timedelta(minutes=minutes)
    plan = plan_sweep(now, standings, policy, {0: start})
    assert len(plan.decisions) == len(standings)
    end = plan.delete_before.get(0, 0)
    deleted = {n for n, d in enumerate(plan.decisions) if d.action is SweepAction.DELETE}
    for n, (window, kind) in enumerate(zip(windows, chosen, strict=True)):
        [p] = window.partitions
        if max(p.start, start) < min(p.end, end):
            assert n in deleted
        if n in deleted:
            landed_fine = kind["landed"] is S.BALANCED or (kind["landed"] and kind["accepted"])
            heard = kind["produced"] is S.BALANCED or (
                kind["produced"] is S.UNAUDITED and (tolerant or kind["accepted"])
            )
            assert landed_fine and heard
            old = keep is not None and minutes - (n + 1) >= keep
            assert old or max_bytes is not None
        assert all(k in deleted or windows[k].partitions[0].end <= start for k in range(n)) or (
            n not in deleted
        )
