"""Syncs: the leader's assignment, those who wait for it, and those who never ask."""

from __future__ import annotations

from simulated_group import NONE, SimulatedGroup, stable_group, two_joined

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import (
    SyncRequest,
    SyncResult,
)
from penstock_broker.groups.states import GroupState


def test_followers_wait_for_the_leaders_assignment() -> None:
    simulated, a, b = two_joined()
    assert simulated.sync("b", b) is None
    leader = simulated.sync("a", a, assignments={a: b"1", b: b"2"})
    assert leader is not None
    assert leader.assignment == b"1"
    assert simulated.syncs["b"][0].assignment == b"2"


def test_a_failed_write_of_the_assignment_reaches_no_member() -> None:
    simulated, a, b = two_joined()
    simulated.sync("b", b)
    simulated.store_error = ErrorCode.NOT_COORDINATOR
    simulated.sync("a", a, assignments={a: b"1", b: b"2"})
    assert [s.error for s in simulated.syncs["a"] + simulated.syncs["b"]] == [
        ErrorCode.NOT_COORDINATOR
    ] * 2
    assert simulated.group.state is GroupState.PREPARING
    assert [member.assignment for member in simulated.group.members.values()] == [b"", b""]


def test_a_member_that_never_syncs_is_removed() -> None:
    simulated, a, b = two_joined(rebalance_ms=5_000)
    simulated.sync("a", a, assignments={a: b"", b: b""})
    for _ in range(6):
        simulated.advance(1_000)
        simulated.heartbeat(a)
        simulated.heartbeat(b)
    assert b not in simulated.group.members
    assert simulated.heartbeat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_on_a_second_connection_answers_the_first() -> None:
    simulated, _, b = two_joined()
    assert simulated.sync("b", b) is None
    first = simulated.sync("b", b)
    assert first is not None
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert simulated.group.members[b].awaiting_sync is not None


def test_who_leaves_while_its_sync_waits_gets_an_answer() -> None:
    simulated, _, b = two_joined()
    assert simulated.sync("b", b) is None
    assert simulated.leave(b) is NONE
    assert [answer.error for answer in simulated.syncs["b"]] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_who_syncs_after_the_leader_is_not_removed_when_the_time_for_it_is_over() -> None:
    simulated, a, b = two_joined(rebalance_ms=6_000, session_ms=20_000)
    simulated.sync("a", a, assignments={a: b"1", b: b"2"})
    late = simulated.sync("b", b)
    assert late is not None
    assert late.assignment == b"2"
    simulated.advance(10_000)
    assert set(simulated.group.members) == {a, b}
    assert simulated.group.state is GroupState.STABLE
    deadline = simulated.group.next_deadline_ms()
    assert deadline is not None
    assert deadline > simulated.now


def test_when_all_have_synced_only_sessions_end() -> None:
    simulated, a, b = two_joined(rebalance_ms=6_000, session_ms=20_000)
    simulated.sync("b", b)
    simulated.sync("a", a, assignments={a: b"1", b: b"2"})
    assert simulated.group.next_deadline_ms() == simulated.now + 20_000


def ask_to_sync(simulated: SimulatedGroup, member_id: str, protocol_type: str | None) -> ErrorCode:
    answers: list[SyncResult] = []
    generation = simulated.group.generation_id
    request = SyncRequest(member_id, None, generation, protocol_type, "range", {})
    simulated.carry_out(simulated.group.sync(request, answers.append, simulated.now))
    return answers[0].error


def test_a_sync_is_held_to_the_protocol_of_the_group() -> None:
    simulated, (a,) = stable_group("a")
    assert ask_to_sync(simulated, a, "consumer") is NONE
    assert ask_to_sync(simulated, a, "connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ask_to_sync(simulated, "stranger", "connect") is ErrorCode.UNKNOWN_MEMBER_ID
    assert simulated.join("b", known=True) is None
    assert ask_to_sync(simulated, a, "consumer") is ErrorCode.REBALANCE_IN_PROGRESS
