"""Joins: ids handed out, the first generation, who is refused, and which protocol is chosen."""

from __future__ import annotations

import pytest
from simulated_group import NONE, REBALANCE_MS, SESSION_MS, SimulatedGroup, stable_group, two_joined

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import (
    GroupLimits,
    JoinRequest,
    JoinResult,
    SyncResult,
)
from penstock_broker.groups.roster import PENDING_MEMBERS_MAX
from penstock_broker.groups.states import GroupState


def test_the_first_join_gets_member_id_required() -> None:
    """Pitfall 34, KIP-394: and an unused id expires."""
    simulated = SimulatedGroup()
    answer = simulated.join("a")
    assert answer is not None
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id in simulated.group.pending
    assert simulated.group.state is GroupState.EMPTY
    simulated.advance(SESSION_MS)
    assert not simulated.group.pending
    assert simulated.group.next_deadline_ms() is None


def test_one_member_joins_syncs_and_is_stable() -> None:
    simulated = SimulatedGroup()
    required = simulated.join("a")
    assert required is not None
    joined = simulated.join("a", required.member_id)
    assert joined is not None
    assert joined.error is NONE
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert [m.member_id for m in joined.members] == [joined.member_id]
    assert joined.protocol_name == "range"
    assert not joined.skip_assignment
    synced = simulated.sync("a", joined.member_id, assignments={joined.member_id: b"mine"})
    assert synced == SyncResult(NONE, "consumer", "range", b"mine")
    assert simulated.group.state is GroupState.STABLE
    assert simulated.stores == 1


def test_the_initial_delay_gathers_members_into_one_generation() -> None:
    simulated = SimulatedGroup(delay_ms=3_000)
    assert simulated.join("a", known=True) is None
    simulated.advance(2_000)
    assert simulated.join("b", known=True) is None
    simulated.advance(2_000)
    assert simulated.group.state is GroupState.PREPARING, "b's arrival prolongs the wait"
    simulated.advance(4_000)
    first, second = simulated.joins["a"][0], simulated.joins["b"][0]
    assert first.generation_id == second.generation_id == 1
    assert len(first.members) == 2
    assert second.members == ()
    assert second.leader == first.member_id


@pytest.mark.parametrize("delay_ms", [1, 3_000])
def test_one_that_joins_alone_waits_for_one_initial_delay(delay_ms: int) -> None:
    simulated = SimulatedGroup(delay_ms=delay_ms)
    assert simulated.join("a", known=True) is None
    simulated.advance(delay_ms)
    assert simulated.joins["a"][0].generation_id == 1


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    """Although members still arrive."""
    simulated = SimulatedGroup(delay_ms=3_000)
    for label, then_ms in (("a", 2_000), ("b", 2_000), ("c", 1_000)):
        assert simulated.join(label, known=True, rebalance_ms=5_000) is None
        simulated.advance(then_ms)
    assert [simulated.joins[label][0].generation_id for label in "abc"] == [1, 1, 1]


def test_a_lost_join_answer_is_given_again() -> None:
    simulated, _, b = two_joined()
    again = simulated.join("b", b)
    assert again is not None
    assert again.generation_id == 1
    assert simulated.group.state is GroupState.COMPLETING


def test_a_join_on_a_second_connection_answers_the_first() -> None:
    simulated, (a, _b) = stable_group("a", "b")
    simulated.join("a", a, protocols=(("range", b"x"),))
    simulated.join("a", a, protocols=(("range", b"x"),))
    assert simulated.joins["a"][-1].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_protocol_is_the_one_that_most_members_put_first() -> None:
    simulated = SimulatedGroup(delay_ms=1_000)
    simulated.join("a", known=True, protocols=(("x", b""), ("y", b""), ("z", b"")))
    simulated.join("b", known=True, protocols=(("y", b""), ("x", b"")))
    simulated.join("c", known=True, protocols=(("z", b""), ("y", b""), ("x", b"")))
    simulated.advance(5_000)
    assert simulated.group.protocol_name == "y", "z is not common; c's vote goes to y"


def test_a_member_without_a_common_protocol_is_refused() -> None:
    simulated, _ = stable_group("a", "b")
    refused = simulated.join("c", known=True, protocols=(("sticky", b""),))
    assert refused is not None
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert simulated.group.state is GroupState.STABLE
    nothing = simulated.join("d", known=True, protocols=())
    assert nothing is not None
    assert nothing.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeouts_have_bounds(session_ms: int) -> None:
    refused = SimulatedGroup().join("a", known=True, session_ms=session_ms)
    assert refused is not None
    assert refused.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_groups_and_ids_handed_out_have_bounds() -> None:
    simulated = SimulatedGroup(size_max=1)
    simulated.stable("a")
    refused = simulated.join("b", known=True)
    assert refused is not None
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    crowd = SimulatedGroup()
    for number in range(PENDING_MEMBERS_MAX):
        crowd.join(str(number))
    over = crowd.join("over")
    assert over is not None
    assert over.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_limit_that_was_lowered_keeps_those_who_come_first() -> None:
    simulated, (a, b) = stable_group("a", "b")
    stored = simulated.group.stored(0)
    lower = SimulatedGroup(size_max=1)
    lower.group.restore(stored, lower.now)
    assert lower.group.state is GroupState.PREPARING, "it is over capacity: a rebalance"
    assert lower.join("b", b) is None
    late = lower.join("a", a)
    assert late is not None
    assert late.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(lower.group.members) == [b]
    assert lower.group.state is GroupState.COMPLETING


def test_a_member_cannot_change_to_what_its_group_does_not_speak() -> None:
    """As in Kafka, its own protocols of before count too, and the type is the group's."""
    simulated = SimulatedGroup()
    (a,) = simulated.stable("a")
    refused = simulated.join("a", a, protocols=(("sticky", b""),))
    assert refused is not None
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert simulated.join("a", a, protocols=(("sticky", b""), ("range", b""))) is not None
    assert simulated.join("a", a, protocols=(("sticky", b""),)) is not None
    assert simulated.group.protocol_name == "sticky"


def test_the_first_join_does_not_wait_for_ids_that_were_handed_out() -> None:
    """As in Kafka; a later one does (pitfall 34)."""
    simulated = SimulatedGroup()
    simulated.join("never")
    joined = simulated.join("a", known=True)
    assert joined is not None
    assert joined.generation_id == 1
    simulated.join("never too")
    assert simulated.join("b", known=True) is None
    assert simulated.join("a", joined.member_id) is None
    simulated.advance(SESSION_MS)
    assert simulated.joins["a"][-1].generation_id == 2


def test_a_refused_member_with_an_id_delays_no_rebalance() -> None:
    """The join waits for ids that were handed out, but not for one that has been refused."""
    simulated, (a, _b) = stable_group("a", "b")
    simulated.leave(_b)
    required = simulated.join("c")
    assert required is not None
    assert simulated.join("a", a, protocols=(("range", b"new"),)) is None
    assert simulated.group.state is GroupState.PREPARING
    stranger = simulated.join("d", "no-such-id", protocols=(("sticky", b""),))
    assert stranger is not None
    assert simulated.group.state is GroupState.PREPARING
    refused = simulated.join("c", required.member_id, protocols=(("sticky", b""),))
    assert refused is not None
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert simulated.joins["a"][-1].generation_id == simulated.group.generation_id
    assert simulated.group.state is GroupState.COMPLETING
    assert simulated.leave(required.member_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_handed_out_is_given_back_by_its_holder_alone() -> None:
    simulated, _ = stable_group("a")
    required = simulated.join("c")
    assert required is not None
    assert simulated.leave(required.member_id, "i-c") is ErrorCode.UNKNOWN_MEMBER_ID
    assert required.member_id in simulated.group.pending
    assert simulated.leave(required.member_id) is NONE
    assert not simulated.group.pending


def test_who_waits_already_keeps_its_place_in_a_group_that_is_full() -> None:
    simulated, ids = stable_group("a", "b", "c")
    simulated.group.rebalance.limits = GroupLimits(0, 6_000, 1_800_000, 2)
    for label, member_id in zip("ab", ids, strict=False):
        assert simulated.join(label, member_id, protocols=(("range", b"new"),)) is None
    again = simulated.join("b", ids[1], protocols=(("range", b"newer"),))
    assert again is not None
    assert again.error is ErrorCode.REBALANCE_IN_PROGRESS, "the first of its two requests"
    refused = simulated.join("c", ids[2], protocols=(("range", b"new"),))
    assert refused is not None
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert simulated.joins["a"][-1].generation_id == 2
    stranger = simulated.join("d", known=True)
    assert stranger is not None
    assert stranger.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_an_id_that_is_given_back_holds_the_join_up_no_longer() -> None:
    simulated, (a,) = stable_group("a")
    required = simulated.join("c")
    assert required is not None
    deadline = simulated.now + SESSION_MS
    assert simulated.group.pending == {required.member_id: deadline}
    simulated.carry_out(simulated.group.tick(deadline - 1))
    assert simulated.group.pending == {required.member_id: deadline}, "not yet"
    assert simulated.join("a", a, protocols=(("range", b"new"),)) is None
    assert simulated.leave(required.member_id) is NONE
    assert simulated.joins["a"][-1].generation_id == 2


def test_the_kind_of_a_group_is_that_of_its_members() -> None:
    simulated, _ = stable_group("a")

    def join(kind: str) -> ErrorCode:
        answers: list[JoinResult] = []
        request = JoinRequest(
            "", None, "x-1", "x", "/h", SESSION_MS, REBALANCE_MS, kind, (("range", b""),)
        )
        simulated.carry_out(simulated.group.join(request, answers.append, simulated.now))
        return answers[0].error

    assert join("connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join("") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join("consumer") is ErrorCode.MEMBER_ID_REQUIRED
    empty = SimulatedGroup()
    simulated = empty
    assert join("") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join("connect") is ErrorCode.MEMBER_ID_REQUIRED
