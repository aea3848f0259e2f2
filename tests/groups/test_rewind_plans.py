"""Plans of a reset as values: clamping, undo, repeats, stale plans, files."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock_platform.groups.model import rewind
from penstock_platform.groups.model.rewind import (
    Move,
    PlanFileError,
    ResetPlan,
    RewindError,
    StalePlanError,
    duration_of,
    from_time,
    moves_to,
    offset_of,
    shifted,
    topic_and_partitions,
)
from penstock_platform.kafka.model import CommittedOffset, LogBounds

Committed = dict[int, CommittedOffset]

numbers = st.integers(0, 40)
partitions = st.integers(0, 5)
logs_of = st.tuples(numbers, numbers).map(lambda pair: LogBounds(min(pair), max(pair)))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
committed_offsets = st.builds(CommittedOffset, numbers, st.integers(-1, 3), texts)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[int, LogBounds], Committed, dict[int, int]]:
    """Logs of some partitions, what is committed for some of them, and what is asked for."""
    logs = draw(st.dictionaries(partitions, logs_of, min_size=1))
    committed = draw(st.dictionaries(partitions, committed_offsets))
    wanted = draw(st.dictionaries(st.sampled_from(sorted(logs)), st.integers(-20, 60), min_size=1))
    return logs, committed, wanted


def plan_of(moves: tuple[Move, ...], **more: Any) -> ResetPlan:
    made_at = "2026-11-20T07:00:00Z"
    return ResetPlan("c", "g", "t", "id", "--to-earliest", made_at, moves, **more)


def executed(moves: tuple[Move, ...], committed: Committed) -> Committed:
    """What a broker has after these commits and deletions."""
    after = dict(committed)
    for move in moves:
        if move.after is None:
            after.pop(move.partition, None)
        else:
            after[move.partition] = move.after
    return after


@given(worlds())
def test_every_offset_is_in_the_log_and_what_was_clamped_says_so(world: Any) -> None:
    logs, committed, wanted = world
    for move in moves_to(wanted, logs, committed):
        log, asked = logs[move.partition], wanted[move.partition]
        assert move.after is not None
        assert log.start <= move.after.offset <= log.end
        inside = log.start <= asked <= log.end
        assert (move.wanted, move.after.offset == asked) == (None if inside else asked, inside)
        assert move.before == committed.get(move.partition)
        if move.before is not None:
            assert move.difference == move.after.offset - move.before.offset


@given(worlds())
def test_an_undo_restores_exactly_what_was_committed(world: Any) -> None:
    """Also the epoch and the text beside an offset, and that there was none."""
    logs, committed, wanted = world
    plan = plan_of(moves_to(wanted, logs, committed))
    made = replace(plan, moves=plan.pending(committed))
    after = executed(made.moves, committed)
    undo = ResetPlan.from_bytes(made.inverse("later", "why").to_bytes())
    undo.require_log({p: LogBounds(50, 60) for p in logs})  # also where the log has gone on
    assert executed(undo.pending(after), after) == committed


@given(worlds(), st.data())
def test_a_plan_that_was_executed_in_part_is_executed_to_its_end(world: Any, data: Any) -> None:
    logs, committed, wanted = world
    plan = plan_of(moves_to(wanted, logs, committed))
    pending = plan.pending(committed)
    first = tuple(move for move in pending if data.draw(st.booleans()))
    half = executed(first, committed)
    rest = plan.pending(half)
    assert {m.partition for m in rest} == {m.partition for m in pending} - {
        m.partition for m in first
    }
    assert executed(rest, half) == executed(pending, committed)
    assert plan.pending(executed(rest, half)) == ()


@given(worlds(), st.data())
def test_a_plan_whose_offsets_have_changed_is_stale(world: Any, data: Any) -> None:
    logs, committed, wanted = world
    plan = plan_of(moves_to(wanted, logs, committed))
    move = data.draw(st.sampled_from(plan.moves))
    now = data.draw(st.none() | numbers)
    assume(now not in (offset_of(move.before), offset_of(move.after)))
    other = {p: o for p, o in committed.items() if p != move.partition}
    if now is not None:
        other[move.partition] = CommittedOffset(now)
    with pytest.raises(StalePlanError, match=f"partition {move.partition} has "):
        plan.pending(other)


def test_the_offsets_must_still_be_in_the_log() -> None:
    plan = plan_of((Move(0, CommittedOffset(20), CommittedOffset(5)),))
    plan.require_log({0: LogBounds(5, 30)})
    with pytest.raises(StalePlanError, match="partition 0 will have 5, its log is 6 to 30"):
        plan.require_log({0: LogBounds(6, 30)})


@given(worlds(), st.booleans(), texts)
def test_a_plan_is_read_back_from_its_file(world: Any, undo: bool, reason: str) -> None:
    logs, committed, wanted = world
    plan = plan_of(moves_to(wanted, logs, committed), undo=undo, reason=reason)
    assert ResetPlan.from_bytes(plan.to_bytes()) == plan


@given(st.binary() | st.recursive(st.none() | numbers, st.lists).map(json.dumps).map(str.encode))
def test_a_file_that_is_no_plan_is_an_error(data: bytes) -> None:
    with pytest.raises(PlanFileError, match="not a plan"):
        ResetPlan.from_bytes(data)


MOVE = {"partition": 0, "before": {"offset": 3}, "after": None}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "penstock-group-reset-v2"}, "this version reads penstock-group-reset-v1"),
        ({"group": None}, "group: Input should be a valid string"),
        ({"moves": [MOVE, MOVE]}, "a partition twice"),
        ({"moves": [MOVE | {"partition": -1}]}, "that Kafka cannot have"),
        ({"moves": [MOVE | {"before": {"offset": -3}}]}, "that Kafka cannot have"),
        ({"moves": [MOVE | {"before": {"offset": 1 << 63}}]}, "that Kafka cannot have"),
        ({"moves": [MOVE | {"after": {"offset": "3"}}]}, r"moves\.0\.after\.offset"),
        ({"moves": [{"partition": 0}]}, r"moves\.0\.before: Field required"),
    ],
)
def test_a_damaged_plan_says_where(change: dict[str, Any], said: str) -> None:
    document = json.loads(plan_of(()).to_bytes()) | change
    with pytest.raises(PlanFileError, match=said):
        ResetPlan.from_bytes(json.dumps(document).encode())


def test_many_problems_are_a_few_and_how_many_more() -> None:
    moves = tuple(Move(p, CommittedOffset(1), CommittedOffset(2)) for p in range(9))
    with pytest.raises(StalePlanError, match="partition 2 has no offset, not 1 and 6 more;"):
        plan_of(moves).pending({})


def test_a_shift_needs_committed_offsets() -> None:
    committed = {0: CommittedOffset(7), 1: CommittedOffset(3)}
    assert shifted([0, 1], committed, -5) == {0: 2, 1: -2}
    with pytest.raises(RewindError, match="nothing is committed for partitions 2, 3, so"):
        shifted([3, 0, 2], committed, 1)


def test_no_record_at_or_after_a_time_is_the_end_of_the_log() -> None:
    """And not offset 0, which would read everything again."""
    logs = {0: LogBounds(4, 9), 1: LogBounds(4, 9)}
    assert from_time({0: None, 1: 6}, logs) == {0: 9, 1: 6}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1H", 3600),
        ("P1DT2H30M", 95_400),
        ("P2W", 1_209_600),
        ("PT0.5S", 0.5),
        ("90m", 5400),
        ("1h 30m", 5400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_of(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "P", "PT", "P1H", "1", "-PT1H", "PT1H ago", "P1M"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(RewindError, match="is not a duration; write PT1H30M"):
        duration_of(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("orders", ("orders", ())),
        ("orders:3", ("orders", (3,))),
        ("orders:2,0,2", ("orders", (0, 2))),
    ],
)
def test_a_topic_and_its_partitions(text: str, found: tuple[str, tuple[int, ...]]) -> None:
    assert topic_and_partitions(text) == found


@pytest.mark.parametrize("text", ["", ":1", "orders:", "orders:a", "orders:1,", "orders:-1"])
def test_what_names_no_topic(text: str) -> None:
    with pytest.raises(RewindError, match="write TOPIC, or TOPIC:0,2"):
        topic_and_partitions(text)


def test_an_event_has_the_offsets_by_partition() -> None:
    plan = plan_of((Move(0, None, CommittedOffset(5)), Move(2, CommittedOffset(9), None)))
    assert rewind.plain(plan) == {"before": {"0": None, "2": 9}, "after": {"0": 5, "2": None}}
