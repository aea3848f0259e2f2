"""Rebalances: what begins one, who has to come to it, and what ends it."""

from __future__ import annotations

import pytest
from simulated_group import NONE, REBALANCE_MS, SimulatedGroup, stable_group, two_joined

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.states import GroupState


def test_a_new_member_makes_the_others_join_again() -> None:
    simulated, (a, b) = stable_group("a", "b")
    assert simulated.join("c", known=True) is None
    assert simulated.group.state is GroupState.PREPARING
    assert simulated.heartbeat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    assert simulated.join("a", a) is None
    assert simulated.join("b", b) is not None, "the last one completes the join"
    assert simulated.joins["c"][0].generation_id == 2


def test_a_leave_during_the_join_completes_it() -> None:
    """Pitfall 35 (kop#380)."""
    simulated, (a, b) = stable_group("a", "b")
    simulated.join("a", a, protocols=(("range", b"other"),))
    assert simulated.group.state is GroupState.PREPARING
    assert simulated.leave(b) is NONE
    assert simulated.joins["a"][-1].generation_id == 2
    assert simulated.group.state is GroupState.COMPLETING


def test_a_member_that_does_not_come_to_the_join_is_left_out() -> None:
    """Pitfall 35: by the rebalance timeout, although its session lives (max.poll.interval.ms)."""
    simulated, (a, b) = stable_group("a", "b")
    simulated.join("c", known=True)
    simulated.join("a", a)
    for _ in range(REBALANCE_MS // 5_000):
        simulated.advance(4_999)
        assert simulated.heartbeat(b, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        simulated.advance(1)
    assert b not in simulated.group.members
    assert simulated.joins["a"][-1].generation_id == 2
    assert simulated.heartbeat(b, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_leader_joining_again_rebalances_even_unchanged() -> None:
    simulated, (a, b) = stable_group("a", "b")
    assert simulated.join("b", b) is not None, "a follower gets the generation"
    assert simulated.group.state is GroupState.STABLE
    assert simulated.join("a", a) is None
    assert simulated.group.state is GroupState.PREPARING


def test_who_joins_again_differently_makes_the_others_join_again() -> None:
    """Only an unchanged request is one whose answer was lost."""
    simulated, _, b = two_joined()
    assert simulated.group.state is GroupState.COMPLETING
    assert simulated.join("b", b) is not None
    assert simulated.join("b", b, protocols=(("range", b"other"),)) is None
    assert simulated.group.state is GroupState.PREPARING
    simulated, (_, b) = stable_group("a", "b")
    assert simulated.join("b", b, protocols=(("range", b"other"),)) is None
    assert simulated.group.state is GroupState.PREPARING


def test_the_first_who_has_come_leads_where_the_leader_has_not() -> None:
    simulated = SimulatedGroup(delay_ms=1_000)
    for label in "abc":
        simulated.join(
            label, known=True, instance=f"i-{label}", session_ms=600_000, rebalance_ms=5_000
        )
    simulated.advance(5_000)
    a, b, c = (simulated.joins[label][0].member_id for label in "abc")
    assert simulated.group.leader == a
    for label, member_id in (("c", c), ("b", b)):
        simulated.join(
            label,
            member_id,
            instance=f"i-{label}",
            session_ms=600_000,
            rebalance_ms=5_000,
            protocols=(("range", b"new"),),
        )
    simulated.advance(5_000)
    assert simulated.joins["b"][-1].generation_id == 2
    assert simulated.group.leader == b
    assert list(simulated.group.members) == [a, b, c]


@pytest.mark.parametrize("rebalance_ms", [5_000, 2, 1, 0])
def test_a_join_of_members_who_are_all_away_waits_for_their_sessions(rebalance_ms: int) -> None:
    """KAFKA-8220: static members, as long as they allow, and never without a pause."""
    simulated, (a, b) = stable_group("a", "b", instances=True)
    for member in simulated.group.members.values():
        member.session_timeout_ms, member.rebalance_timeout_ms = 600_000, rebalance_ms
        simulated.group.heartbeat(member.member_id, member.group_instance_id, 1, simulated.now)
    assert simulated.join("c", known=True, rebalance_ms=rebalance_ms) is None
    (c,) = set(simulated.group.members) - {a, b}
    simulated.leave(c)
    for _ in range(3):
        deadline = simulated.group.next_deadline_ms()
        assert deadline is not None
        simulated.now = deadline
        simulated.carry_out(simulated.group.tick(simulated.now))
        assert simulated.group.next_deadline_ms() == simulated.now + max(1, rebalance_ms)
    assert set(simulated.group.members) == {a, b}
    assert simulated.group.state is GroupState.PREPARING


def test_a_new_member_waits_for_its_first_generation_for_five_minutes() -> None:
    simulated, (a,) = stable_group("a")
    (member,) = simulated.group.members.values()
    member.rebalance_timeout_ms = 900_000
    assert simulated.join("b", known=True, rebalance_ms=900_000) is None
    for _ in range(100):
        simulated.advance(2_999)
        assert simulated.joins["b"] == []
        simulated.heartbeat(a)
        simulated.advance(1)
    assert simulated.joins["b"][-1].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(simulated.group.members) == [a]
