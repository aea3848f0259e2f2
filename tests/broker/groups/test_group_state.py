"""The group's states: their tables, what is stored and restored, deletion, and effects."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulated_group import NONE, SESSION_MS, SimulatedGroup, stable_group

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.group_state import Group
from penstock_broker.groups.members import (
    GroupLimits,
    JoinRequest,
    JoinResult,
)
from penstock_broker.groups.states import ANSWERS, TRANSITIONS, Event, GroupState


def test_every_state_has_an_answer_for_every_request() -> None:
    for answers in ANSWERS.values():
        assert set(answers) == set(GroupState)
    assert set(TRANSITIONS) == set(GroupState)
    reachable = {after for row in TRANSITIONS.values() for after in row.values()}
    assert reachable == set(GroupState)


def test_an_event_that_is_not_in_the_table_is_a_bug() -> None:
    group = SimulatedGroup().group
    with pytest.raises(RuntimeError, match="cannot happen"):
        group.rebalance.move(Event.ASSIGNED)


def test_a_group_that_was_deleted_answers_no_member() -> None:
    simulated, (a,) = stable_group("a")
    simulated.leave(a)
    group = simulated.group
    assert group.delete() is NONE
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.commit_allowed("", None, -1, simulated.now) is gone
    assert simulated.leave(a) is gone
    assert simulated.heartbeat(a) is gone
    synced = simulated.sync("a", a)
    assert synced is not None
    assert synced.error is gone


def test_a_group_that_is_restored_is_what_it_was() -> None:
    simulated, (a, b) = stable_group("a", "b", instances=True)
    stored = simulated.group.stored(1)
    for leader, expected in ((b, b), ("unknown", a)):
        stored.leader = leader
        other = Group("g", GroupLimits(size_max=2))
        other.restore(stored, 0.0)
        assert other.state is GroupState.STABLE
        assert other.protocol_name == "range"
        assert other.leader == expected
        assert other.roster.size == simulated.group.roster.size
        assert other.roster.take_changes() == ([], [])
    smaller = Group("g", GroupLimits(size_max=1))
    smaller.restore(stored, 0.0)
    assert smaller.state is GroupState.PREPARING, "the limit was lowered: not all can come back"
    for member_id in (a, b):
        simulated.leave(member_id, f"i-{member_id[0]}")
    empty = Group("g", GroupLimits())
    empty.restore(simulated.group.stored(2), 0.0)
    assert (empty.state, empty.leader) == (GroupState.EMPTY, None)
    dynamic, (c,) = stable_group("c")
    other = Group("g", GroupLimits())
    other.restore(dynamic.group.stored(3), 0.0)
    assert other.static_ids == {}
    assert list(other.members) == [c]


def test_only_consumers_subscribe() -> None:
    simulated, _ = stable_group("a", "b")
    group = simulated.group
    assert group.subscribed_topics_of(lambda data: {data.decode()}) == {"r"}
    assert group.subscribed_topics_of(lambda _: None) is None
    group.rebalance.protocol_type = "connect"
    assert group.subscribed_topics_of(lambda data: {data.decode()}) == set()


def test_wrong_generations_and_strangers() -> None:
    simulated, (a, _b) = stable_group("a", "b")
    assert simulated.heartbeat(a, 7) is ErrorCode.ILLEGAL_GENERATION
    assert simulated.heartbeat("stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated.leave("stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    stranger = simulated.join("s", "stranger")
    assert stranger is not None
    assert stranger.error is ErrorCode.UNKNOWN_MEMBER_ID
    wrong = simulated.sync("a", a, protocol="sticky")
    assert wrong is not None
    assert wrong.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_deleting_needs_an_empty_group() -> None:
    simulated = SimulatedGroup()
    (a,) = simulated.stable("a")
    assert simulated.group.delete() is ErrorCode.NON_EMPTY_GROUP
    simulated.leave(a)
    assert simulated.group.state is GroupState.EMPTY
    assert simulated.group.delete() is NONE
    assert simulated.group.state is GroupState.DEAD
    dead = simulated.join("b", known=True)
    assert dead is not None
    assert dead.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_restored_group_continues_with_fresh_sessions() -> None:
    simulated, (a, b) = stable_group("a", "b", instances=True)
    stored = simulated.group.stored(123)
    other = Group("g", GroupLimits())
    other.restore(stored, 50.0)
    assert other.state is GroupState.STABLE
    assert other.generation_id == 1
    assert other.heartbeat(a, "i-a", 1, 60.0) is NONE
    assert other.static_ids == {"i-a": a, "i-b": b}
    assert other.next_deadline_ms() == 50.0 + SESSION_MS


def test_waiters_are_called_by_effects_only() -> None:
    """Rule: the machine itself calls nothing; the caller decides when."""
    called: list[JoinResult] = []
    group = Group("g", GroupLimits(0))
    waiter: Callable[[JoinResult], None] = called.append
    request = JoinRequest("", None, "a-1", "a", "/h", 10_000, 10_000, "consumer", (("r", b""),))
    effects = group.join(request, waiter, 0)
    assert not called
    assert len(effects) == 1
