"""The sweep's plan: a prefix, old enough and proven, and never a step past what is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    Acceptance,
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.retention.model.groups import GroupProgress
from penstock_platform.retention.model.log import (
    Disk,
    PartitionLog,
    bytes_from,
    ends_in_log,
    new_leaders,
)
from penstock_platform.retention.model.plan import SweepAction, SweepPolicy, plan_sweep
from penstock_platform.retention.model.proof import SweepCandidate
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window
from penstock_platform.topics.model.declaration import RetentionSpec

LANDED, PRODUCED, _PARSED = Equation
S = WindowState
KEEP_10M = SweepPolicy(RetentionSpec(keep=timedelta(minutes=10)))
NOW = EPOCH + timedelta(minutes=30)


def result(equation, state):
    findings = () if state is S.BALANCED else (Finding("missing", (OffsetRange(0, 0, 1),)),)
    if state is S.UNAUDITED:
        findings = (Finding("unstamped", (OffsetRange(0, 0, 1),)),)
    return EquationResult(equation, state, 10, 10, findings)


def candidate(window, *, landed=S.BALANCED, produced=S.BALANCED, accepted=False):
    results = [result(LANDED, landed or S.BALANCED)]
    if produced is not None:
        results.append(result(PRODUCED, produced))
    book = Book.of(window, results, made_at="2026-11-20T00:00:00Z", code_version="t")
    found = [f for r in results for f in r.findings]
    word = Acceptance(window.window_id, "me", "why", "2026-11-20T00:00:00Z", tuple(found))
    return SweepCandidate(
        window=window,
        reproved=result(LANDED, landed) if landed else None,
        book=book,
        acceptances=(word,) if accepted else (),
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
    plan = plan_sweep(NOW, [candidate(w) for w in chain(25)], KEEP_10M, {0: 0, 1: 0})
    assert actions(plan) == ["delete"] * 20 + ["keep"] * 5
    assert plan.delete_before == {0: 200, 1: 200}
    assert plan.risks == ()
    assert plan.decisions[0].reason == "closed 29m ago, kept for 10m, and it is proven"
    assert plan.decisions[20].reason == "closed 9m ago, kept for 10m"


UNPROVEN = {
    "not proved in this run": {"landed": None},
    "stored = landed is MISSING": {"landed": S.MISSING},
    "stored = landed is DUPLICATE": {"landed": S.DUPLICATE},
    "its producers' evidence was not read since its newest landing": {"produced": None},
    "produced = stored is PENDING": {"produced": S.PENDING},
    "produced = stored is UNAUDITED": {"produced": S.UNAUDITED},
    "produced = stored is CORRUPT": {"produced": S.CORRUPT},
}


@pytest.mark.parametrize("reason", UNPROVEN)
def test_an_unproven_window_is_held_and_nothing_behind_it_goes(reason):
    windows = chain(25)
    candidates = [candidate(w) for w in windows]
    candidates[4] = candidate(windows[4], **UNPROVEN[reason])
    plan = plan_sweep(NOW, candidates, KEEP_10M, {0: 0, 1: 0})
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
    unaudited = candidate(window, produced=S.UNAUDITED)
    assert actions(plan_sweep(NOW, [unaudited], tolerant, {})) == ["delete"]
    assert actions(plan_sweep(NOW, [candidate(window, produced=S.CORRUPT)], tolerant, {})) == [
        "hold"
    ]
    for state in ({"produced": S.CORRUPT}, {"landed": S.MISSING}, {"produced": S.UNAUDITED}):
        accepted = candidate(window, accepted=True, **state)
        assert actions(plan_sweep(NOW, [accepted], KEEP_10M, {})) == ["delete"]


def test_a_book_about_another_window_object_proves_nothing():
    window = chain(1)[0]
    other = candidate(replace(window, frozen_at="2026-11-20T00:01:59Z"))
    plan = plan_sweep(NOW, [replace(other, window=window)], KEEP_10M, {})
    assert plan.decisions[0].reason.endswith("but it has no book")


def test_a_group_that_is_behind_holds_a_window_beside_what_it_lacks_itself():
    windows = chain(4)
    candidates = [candidate(w) for w in windows]
    candidates[2] = candidate(windows[2], landed=S.MISSING)
    groups = [
        GroupProgress("billing", {0: 20, 1: 15}),
        GroupProgress("search", {0: 40, 1: 40}),
    ]
    plan = plan_sweep(NOW, candidates, KEEP_10M, {0: 0, 1: 0}, groups=groups)
    assert actions(plan) == ["delete", "hold", "hold", "hold"]
    assert [str(d.cause) for d in plan.decisions] == [
        "proven",
        "group_behind",
        "unproven",
        "group_behind",
    ]
    behind = "group billing has read partition 1 up to 15, and the window ends there at 20"
    assert plan.decisions[1].reason.endswith(f"kept for 10m, but {behind}")
    assert "but stored = landed is MISSING; group billing has read" in plan.decisions[2].reason
    assert plan.delete_before == {0: 10, 1: 10}
    [risk] = plan.risks
    assert behind in risk


def test_a_group_holds_nothing_that_is_not_due():
    plan = plan_sweep(
        EPOCH, [candidate(w) for w in chain(1)], KEEP_10M, {}, groups=[GroupProgress("billing")]
    )
    assert actions(plan) == ["keep"]


LOGS = {0: PartitionLog(0, 60, 300), 1: PartitionLog(0, 60, 300)}


def test_size_deletes_the_oldest_first():
    """Six windows of 10 offsets in each of two partitions: a window is 100 of the log's bytes."""
    policy = SweepPolicy(RetentionSpec(max_bytes=350))
    candidates = [candidate(w) for w in chain(6)]
    plan = plan_sweep(NOW, candidates, policy, {0: 0, 1: 0}, logs=LOGS)
    assert actions(plan) == ["delete"] * 3 + ["keep"] * 3
    assert plan.decisions[0].reason.startswith("600 bytes from this window on, 350 are kept")
    exact = SweepPolicy(RetentionSpec(max_bytes=300))
    assert (
        actions(plan_sweep(NOW, candidates, exact, {}, logs=LOGS)) == ["delete"] * 3 + ["keep"] * 3
    ), "300 bytes may stay, and 300 do"


def test_size_is_that_of_the_whole_log_not_of_the_windows_looked_at():
    """What is in no window yet, or in windows that this sweep does not reach, takes space too."""
    policy = SweepPolicy(RetentionSpec(max_bytes=350))
    logs = {0: PartitionLog(0, 600, 3000), 1: PartitionLog(0, 60, 300)}
    plan = plan_sweep(NOW, [candidate(w) for w in chain(6)], policy, {0: 0, 1: 0}, logs=logs)
    assert actions(plan) == ["delete"] * 6


@pytest.mark.parametrize(
    "logs,expected",
    [
        ({}, 0),
        ({0: PartitionLog(0, 100, 1000)}, 900),
        ({0: PartitionLog(10, 100, 900)}, 900),
        ({0: PartitionLog(50, 100, 500)}, 500),
        ({0: PartitionLog(0, 10, 100)}, 0),
        ({0: PartitionLog(0, 5, 100)}, 0),
        ({0: PartitionLog(7, 7, 100)}, 0),
        ({0: PartitionLog(0, 100, 1000), 7: PartitionLog(0, 9, 77)}, 977),
        ({0: PartitionLog(0, 3, 10)}, 0),
    ],
)
def test_bytes_from_a_window_on(logs, expected):
    assert bytes_from(make_window({0: (10, 20)}), logs) == expected


def test_a_size_that_is_not_known_is_a_risk_and_limits_nothing():
    candidates = [candidate(w) for w in chain(2)]
    plan = plan_sweep(NOW, candidates, SweepPolicy(RetentionSpec(max_bytes=1)), {})
    assert actions(plan) == ["keep", "keep"]
    assert plan.risks == ("the log's size is not known, so max_bytes limits nothing",)
    assert plan_sweep(NOW, candidates, KEEP_10M, {}).risks == ()


def truncated_chain():
    """[0, 100), cut to 60, regrown: [60, 80), then [80, 120)."""
    first = make_window({0: (0, 100)})
    second = make_window({0: (60, 80)}, previous=first)
    return [first, second, make_window({0: (80, 120)}, previous=second)]


def test_a_window_before_a_truncation_reaches_only_to_where_the_next_one_begins():
    windows = truncated_chain()
    assert ends_in_log(windows, {}) == [{0: 60}, {0: 80}, {0: 120}]
    assert ends_in_log(windows[:1], {0: 60}) == [{0: 60}]
    assert ends_in_log(windows[:1], {0: 130, 1: 5}) == [{0: 100}]
    deeper = [*windows, make_window({0: (50, 55)}, previous=windows[-1])]
    assert ends_in_log(deeper, {}) == [{0: 50}, {0: 50}, {0: 50}, {0: 55}]


def test_regrown_offsets_are_never_deleted_with_the_window_that_had_them_before():
    first, second, third = truncated_chain()
    held = [candidate(first), candidate(second, landed=S.MISSING), candidate(third)]
    plan = plan_sweep(NOW, held, KEEP_10M, {0: 0})
    assert actions(plan) == ["delete", "hold", "keep"]
    assert plan.delete_before == {0: 60}
    alone = plan_sweep(NOW, [candidate(first)], KEEP_10M, {0: 0}, later_starts={0: 60})
    assert alone.delete_before == {0: 60}, "the same where the later windows are not looked at"
    after = plan_sweep(NOW, held, KEEP_10M, {0: 60})
    assert actions(after) == ["gone", "hold", "keep"]
    everything = plan_sweep(NOW, [candidate(w) for w in truncated_chain()], KEEP_10M, {0: 0})
    assert everything.delete_before == {0: 120}


def test_nothing_is_deleted_before_a_new_leaders_log_was_looked_at():
    windows = chain(3)
    plan = plan_sweep(
        NOW, [candidate(w) for w in windows], KEEP_10M, {0: 0, 1: 0}, not_now="a new leader"
    )
    assert actions(plan) == ["keep"] * 3
    assert plan.delete_before == {}
    assert plan.decisions[0].reason.endswith("and it is proven; but a new leader")
    assert plan.risks == ()


@pytest.mark.parametrize(
    "epochs,moved",
    [
        ({0: 0, 1: 0}, []),
        ({0: 1, 1: 0}, [0]),
        ({0: 1, 1: 2}, [0, 1]),
        ({0: -1, 1: -1}, []),
        ({0: 0, 1: 0, 2: 9}, []),
    ],
)
def test_a_new_leader_is_seen_by_its_epoch(epochs, moved):
    assert new_leaders(chain(1)[0], epochs) == moved


def test_several_windows_of_one_key_are_distinguished():
    windows = chain(2)
    windows[1] = replace(
        windows[1], window=windows[0].window, part=2, closed_at=windows[0].closed_at
    )
    windows[0] = replace(windows[0], more=True)
    candidates = [candidate(windows[0]), candidate(windows[1], landed=S.MISSING)]
    plan = plan_sweep(NOW, candidates, KEEP_10M, {0: 0, 1: 0})
    assert [(d.window, str(d.action)) for d in plan.decisions] == [
        ("2026-11-20-00:00#1", "delete"),
        ("2026-11-20-00:00#2", "hold"),
    ]
    assert plan.risks[0].startswith("window 2026-11-20-00:00#2 outlives its policy")


def test_without_a_policy_everything_is_kept_and_compacted_topics_are_not_swept():
    candidates = [candidate(w) for w in chain(3)]
    assert actions(plan_sweep(NOW, candidates, SweepPolicy(RetentionSpec()), {})) == ["keep"] * 3
    compacted = replace(KEEP_10M, compacted=True)
    plan = plan_sweep(NOW, candidates, compacted, {})
    assert {d.reason for d in plan.decisions} == {"compacted topics are not swept"}


def test_what_is_gone_is_passed_and_not_asked_for_again():
    candidates = [candidate(w) for w in chain(5)]
    plan = plan_sweep(NOW, candidates, KEEP_10M, {0: 20, 1: 15})
    assert actions(plan) == ["gone"] + ["delete"] * 4
    unproven = [candidate(w, landed=None) for w in chain(2)] + candidates[2:]
    assert (
        actions(plan_sweep(NOW, unproven, KEEP_10M, {0: 20, 1: 20}))
        == ["gone"] * 2 + ["delete"] * 3
    )
    assert plan_sweep(NOW, candidates, KEEP_10M, {0: 50, 1: 20}).delete_before == {1: 50}


def test_a_full_disk_alerts():
    plan = plan_sweep(NOW, [candidate(chain(1)[0])], KEEP_10M, {}, Disk(1000, 99))
    assert plan.risks == ("the log's disk has 99 of 1,000 bytes left; 0 windows are held",)


@pytest.mark.parametrize("free,at_risk", [(99, True), (100, False), (101, False)])
def test_a_disk_is_at_risk_below_a_tenth(free, at_risk):
    assert bool(plan_sweep(NOW, [], KEEP_10M, {}, Disk(1000, free)).risks) is at_risk


def test_one_record_in_a_partition_whose_start_is_not_known_is_deleted_too():
    plan = plan_sweep(NOW, [candidate(make_window({0: (0, 1)}))], KEEP_10M, {})
    assert plan.delete_before == {0: 1}


def test_candidates_must_be_consecutive():
    windows = chain(3)
    with pytest.raises(ValueError, match=r"got \[0, 2\]"):
        plan_sweep(NOW, [candidate(windows[0]), candidate(windows[2])], KEEP_10M, {})


def test_a_window_is_gone_when_the_log_begins_behind_it_and_empty_ones_have_nothing_to_delete():
    empty = make_window({0: (0, 0), 1: (0, 0)})
    assert actions(plan_sweep(NOW, [candidate(empty)], KEEP_10M, {})) == ["gone"]
    plan = plan_sweep(NOW, [candidate(make_window({0: (0, 0), 1: (0, 5)}))], KEEP_10M, {})
    assert (actions(plan), plan.delete_before) == (["delete"], {1: 5})


def test_the_plan_names_what_it_deletes_and_what_it_holds():
    windows = chain(4)
    candidates = [candidate(w) for w in windows]
    candidates[2] = candidate(windows[2], landed=S.MISSING)
    plan = plan_sweep(NOW, candidates, KEEP_10M, {})
    assert (plan.deleted, plan.held) == ((0, 1), (2,))


@pytest.mark.parametrize(
    "held,more", [((4,), ""), ((4, 6), " and 1 more"), ((4, 6, 7), " and 2 more")]
)
def test_windows_that_are_held_are_one_risk_that_names_the_first(held, more):
    windows = chain(10)
    candidates = [
        candidate(w, **({"landed": S.MISSING if n == 4 else S.CORRUPT} if n in held else {}))
        for n, w in enumerate(windows)
    ]
    plan = plan_sweep(NOW, candidates, KEEP_10M, {}, Disk(1000, 1))
    assert plan.held == held
    assert plan.risks == (
        f"window 2026-11-20-00:04{more} outlives its policy: "
        "closed 25m ago, kept for 10m, but stored = landed is MISSING",
        f"the log's disk has 1 of 1,000 bytes left; {len(held)} windows are held",
    )
    assert plan.decisions[9].reason.startswith("behind window 2026-11-20-00:04: ")


def test_a_window_that_is_not_proven_is_held_also_while_nothing_may_be_deleted():
    candidates = [candidate(w, landed=S.MISSING) for w in chain(1)]
    plan = plan_sweep(NOW, candidates, KEEP_10M, {}, not_now="a new leader")
    assert actions(plan) == ["hold"]
    assert "a new leader" not in plan.decisions[0].reason


def test_sizes_that_are_known_or_do_not_matter_are_no_risk():
    policy = SweepPolicy(RetentionSpec(max_bytes=1))
    candidates = [candidate(w) for w in chain(1)]
    assert plan_sweep(NOW, candidates, policy, {}, logs={}).risks == ()
    assert plan_sweep(NOW, candidates, replace(policy, compacted=True), {}).risks == ()


@pytest.mark.parametrize(
    "retention,reason",
    [
        (RetentionSpec(), "nothing limits its keeping"),
        (RetentionSpec(max_bytes=700), "no size limit is reached"),
        (RetentionSpec(max_bytes=600), "no size limit is reached"),
        (
            RetentionSpec(max_bytes=599),
            "600 bytes from this window on, 599 are kept, and it is pro",
        ),
        (RetentionSpec(keep=timedelta(hours=1)), "closed 29m ago, kept for 1h"),
        (
            RetentionSpec(keep=timedelta(minutes=29)),
            "closed 29m ago, kept for 29m, and it is proven",
        ),
    ],
)
def test_a_decision_says_what_limits_the_keeping(retention, reason):
    candidates = [candidate(w) for w in chain(1)]
    plan = plan_sweep(NOW, candidates, SweepPolicy(retention), {}, logs=LOGS)
    assert plan.decisions[0].reason.startswith(reason)


def test_a_window_that_closes_later_is_of_no_age():
    plan = plan_sweep(EPOCH, [candidate(w) for w in chain(1)], KEEP_10M, {})
    assert plan.decisions[0].reason == "closed 0ms ago, kept for 10m"


PARSED_LOST = Finding("missing", (OffsetRange(0, 2, 3),))


@pytest.mark.parametrize(
    "state,findings,accepted,held",
    [
        (S.BALANCED, (), False, False),
        (S.MISSING, (PARSED_LOST,), False, True),
        (S.MISSING, (PARSED_LOST,), True, False),
        (S.PENDING, (), True, True),
    ],
)
def test_what_was_parsed_has_to_balance_or_be_accepted_too(state, findings, accepted, held):
    whole = candidate(make_window({0: (0, 10)}))
    parsed = EquationResult(_PARSED, state, 10, 10, findings)
    word = Acceptance(whole.window.window_id, "me", "why", "2026-11-20T00:00:00Z", (PARSED_LOST,))
    judged = replace(whole, parsed=parsed, acceptances=(word,) if accepted else ())
    plan = plan_sweep(NOW, [judged], KEEP_10M, {})
    assert actions(plan) == (["hold"] if held else ["delete"])
    if held:
        assert plan.decisions[0].reason.endswith(f"parsed + quarantined = landed is {state}")


def test_a_window_without_a_book_or_landed_since_its_book_is_held():
    whole = candidate(make_window({0: (0, 10)}))
    later = replace(result(LANDED, S.BALANCED), landing="again")
    for judged, reason in (
        (replace(whole, book=None), "it has no book"),
        (replace(whole, reproved=later), "it was landed again since its newest book"),
    ):
        plan = plan_sweep(NOW, [judged], KEEP_10M, {})
        assert actions(plan) == ["hold"]
        assert plan.decisions[0].reason.endswith(f"but {reason}")


@pytest.mark.parametrize(
    "frozen,now,moved", [(0, 0, 0), (1, 0, 1), (0, 1, 1), (-1, 3, 0), (3, -1, 0)]
)
def test_an_epoch_that_is_not_known_is_no_new_leader(frozen, now, moved):
    window = chain(1)[0]
    window = replace(
        window, partitions=tuple(replace(p, leader_epoch=frozen) for p in window.partitions)
    )
    assert new_leaders(window, {1: now, 0: now}) == ([0, 1] if moved else [])


def test_the_bytes_of_a_log_of_one_record_are_its_own():
    assert bytes_from(make_window({0: (10, 11)}), {0: PartitionLog(10, 11, 70)}) == 70


kinds = st.fixed_dictionaries(
    {
        "landed": st.sampled_from([None, S.BALANCED, S.BALANCED, S.BALANCED, S.MISSING]),
        "produced": st.sampled_from([None, S.BALANCED, S.BALANCED, S.BALANCED, S.UNAUDITED]),
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
    st.integers(0, 5000),
)
def test_no_offset_that_is_not_proven_is_ever_deleted(
    chosen, minutes, keep, max_bytes, tolerant, start, size
):
    windows = chain(len(chosen), partitions=1)
    candidates = [candidate(w, **kind) for w, kind in zip(windows, chosen, strict=True)]
    retention = RetentionSpec(keep=timedelta(minutes=keep) if keep else None, max_bytes=max_bytes)
    policy = SweepPolicy(retention, accept_unaudited=tolerant)
    now = EPOCH + timedelta(minutes=minutes)
    logs = {0: PartitionLog(start, max(start, 120), size)}
    plan = plan_sweep(now, candidates, policy, {0: start}, logs=logs)
    assert len(plan.decisions) == len(candidates)
    end = plan.delete_before.get(0, 0)
    deleted = {n for n, d in enumerate(plan.decisions) if d.action is SweepAction.DELETE}
    for n, (window, kind) in enumerate(zip(windows, chosen, strict=True)):
        [p] = window.partitions
        if max(p.start, start) < min(p.end, end):
            assert n in deleted
        if n in deleted:
            landed_fine = kind["landed"] is S.BALANCED or (kind["landed"] and kind["accepted"])
            produced_fine = kind["produced"] is S.BALANCED or (
                kind["produced"] is S.UNAUDITED and (tolerant or kind["accepted"])
            )
            assert landed_fine and produced_fine
            old = keep is not None and minutes - (n + 1) >= keep
            assert old or max_bytes is not None
        assert all(k in deleted or windows[k].partitions[0].end <= start for k in range(n)) or (
            n not in deleted
        )
