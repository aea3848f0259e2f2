"""Which member may commit offsets, and when."""

from __future__ import annotations

from simulated_group import NONE, SimulatedGroup, stable_group

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.states import GroupState


def test_commits_during_the_join_are_taken_for_the_old_generation() -> None:
    """Pitfall 37."""
    simulated, (a, b) = stable_group("a", "b")
    simulated.join("c", known=True)
    assert simulated.group.commit_allowed(a, None, 1, simulated.now) is NONE
    simulated.join("a", a)
    simulated.join("b", b)
    assert simulated.group.state is GroupState.COMPLETING
    assert (
        simulated.group.commit_allowed(a, None, 2, simulated.now) is ErrorCode.REBALANCE_IN_PROGRESS
    )
    assert simulated.group.commit_allowed(a, None, 1, simulated.now) is ErrorCode.ILLEGAL_GENERATION


def test_simple_commits_are_only_for_empty_groups() -> None:
    """Pitfall 39."""
    simulated = SimulatedGroup()
    assert simulated.group.commit_allowed("", None, -1, 0) is NONE
    simulated.stable("a")
    assert simulated.group.commit_allowed("", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_may_commit() -> None:
    simulated, (a, _b) = stable_group("a", "b", instances=True)

    def allowed(
        member_id: str, instance: str | None, generation: int, *, transactional: bool = False
    ) -> ErrorCode:
        return simulated.group.commit_allowed(
            member_id, instance, generation, simulated.now, transactional=transactional
        )

    assert allowed(a, None, -1) is ErrorCode.ILLEGAL_GENERATION
    for transactional in (False, True):
        assert allowed(a, None, 1, transactional=transactional) is NONE
        assert allowed("", None, 0, transactional=transactional) is ErrorCode.UNKNOWN_MEMBER_ID
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert allowed("", "i-a", -1, transactional=transactional) is fenced
    for member_id, instance in ((a, "i-a"), (_b, "i-b")):
        simulated.leave(member_id, instance)
    assert allowed("", None, -1) is NONE
    for generation in (0, 1):
        assert allowed("", None, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_transactions_commit_offsets_in_any_state() -> None:
    """TxnOffsetCommit: old versions name no member; newer ones are held to the generation."""
    simulated, (a, _b) = stable_group("a", "b")
    group = simulated.group

    def allowed(member_id: str, generation: int) -> ErrorCode:
        return group.commit_allowed(member_id, None, generation, simulated.now, transactional=True)

    assert allowed("", -1) is NONE
    assert allowed(a, 1) is NONE
    assert allowed(a, 0) is ErrorCode.ILLEGAL_GENERATION
    assert allowed("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    simulated.join("c", known=True)
    for member_id in group.members:
        simulated.join(member_id[0], member_id)
    assert group.state is GroupState.COMPLETING
    assert allowed(a, 2) is NONE
