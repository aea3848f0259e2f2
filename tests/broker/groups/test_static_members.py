"""Members with a ``group.instance.id`` (pitfall 36, KIP-345)."""

from __future__ import annotations

from simulated_group import NONE, SESSION_MS, SimulatedGroup, stable_group

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.states import GroupState


class TestStaticMembers:
    def test_a_restart_keeps_the_place_without_a_rebalance(self) -> None:
        simulated, (a, b) = stable_group("a", "b", instances=True)
        back = simulated.join("b", instance="i-b")
        assert back is not None
        assert back.error is NONE
        assert back.member_id != b
        assert back.generation_id == 1
        assert simulated.group.state is GroupState.STABLE
        synced = simulated.sync("b", back.member_id, instance="i-b")
        assert synced is not None
        assert synced.assignment == b.encode()
        assert set(simulated.group.members) == {a, back.member_id}

    def test_the_old_incarnation_is_fenced(self) -> None:
        simulated, (_a, b) = stable_group("a", "b", instances=True)
        simulated.join("b", instance="i-b")
        group = simulated.group
        assert group.heartbeat(b, "i-b", 1, simulated.now) is ErrorCode.FENCED_INSTANCE_ID
        assert group.commit_allowed(b, "i-b", 1, simulated.now) is ErrorCode.FENCED_INSTANCE_ID
        assert simulated.leave(b, "i-b") is ErrorCode.FENCED_INSTANCE_ID

    def test_a_restarted_leader_does_not_learn_that_it_leads(self) -> None:
        simulated, (a, _b) = stable_group("a", "b", instances=True)
        back = simulated.join("a", instance="i-a")
        assert back is not None
        assert back.leader == a
        assert back.members == ()
        assert simulated.group.leader == back.member_id

    def test_a_restarted_leader_may_skip_the_assignment(self) -> None:
        """KIP-814."""
        simulated, _ = stable_group("a", "b", instances=True)
        back = simulated.join("a", instance="i-a", skipping=True)
        assert back is not None
        assert back.leader == back.member_id
        assert back.skip_assignment
        assert len(back.members) == 2

    def test_a_restart_with_another_subscription_keeps_the_protocol_and_stays(self) -> None:
        simulated, _ = stable_group("a", "b", instances=True)
        back = simulated.join(
            "b", instance="i-b", protocols=(("range", b"new"),), session_ms=20_000
        )
        assert back is not None
        assert simulated.group.members[back.member_id].session_timeout_ms == 20_000, "KAFKA-14009"

    def test_a_return_begins_a_session(self) -> None:
        simulated, (a, _b) = stable_group("a", "b", instances=True)
        simulated.advance(SESSION_MS - 1)
        simulated.group.heartbeat(a, "i-a", 1, simulated.now)
        back = simulated.join("b", instance="i-b")
        assert back is not None
        simulated.advance(SESSION_MS - 1)
        assert back.member_id in simulated.group.members

    def test_who_returns_before_its_sync_has_to_sync_under_its_new_id(self) -> None:
        simulated = SimulatedGroup(delay_ms=1_000)
        for label in "ab":
            simulated.join(label, known=True, instance=f"i-{label}", rebalance_ms=6_000)
        simulated.advance(3_000)
        a, b = (simulated.joins[label][0].member_id for label in "ab")
        simulated.sync("a", a, instance="i-a", assignments={a: b"1", b: b"2"})
        assert simulated.group.state is GroupState.STABLE
        back = simulated.join("b", instance="i-b", rebalance_ms=6_000)
        assert back is not None
        assert back.error is NONE
        simulated.advance(6_000)
        assert back.member_id not in simulated.group.members
        assert a in simulated.group.members

    def test_they_need_no_id_beforehand(self) -> None:
        simulated = SimulatedGroup()
        joined = simulated.join("a", instance="i-a", known=False)
        assert joined is not None
        assert joined.error is NONE

    def test_a_return_during_the_join_is_a_join(self) -> None:
        simulated, (a, b) = stable_group("a", "b", instances=True)
        assert simulated.join("a", a, instance="i-a", protocols=(("range", b"new"),)) is None
        simulated.join("a", instance="i-a")
        assert simulated.joins["a"][-1].error is ErrorCode.FENCED_INSTANCE_ID
        assert simulated.joins["a"][-1].member_id == a
        simulated.join("b", instance="i-b")
        assert simulated.joins["b"][-1].generation_id == 2
        assert b not in simulated.group.members

    def test_a_restart_that_changes_the_protocol_rebalances(self) -> None:
        simulated, (a, _b) = stable_group("a", "b", instances=True)
        assert simulated.group.protocol_name == "range"
        assert simulated.join("b", instance="i-b", protocols=(("roundrobin", b"new"),)) is None
        assert simulated.group.state is GroupState.PREPARING
        simulated.join("a", a, instance="i-a")
        assert simulated.joins["b"][-1].generation_id == 2
        assert simulated.group.protocol_name == "roundrobin"

    def test_a_restart_while_the_leader_assigns_rebalances(self) -> None:
        """KAFKA-9801."""
        simulated = SimulatedGroup(delay_ms=1_000)
        simulated.join("a", known=True, instance="i-a")
        simulated.join("b", known=True, instance="i-b")
        simulated.advance(3_000)
        b = simulated.joins["b"][0].member_id
        simulated.sync("b", b, instance="i-b")
        assert simulated.join("b", instance="i-b") is None
        assert simulated.syncs["b"][0].error is ErrorCode.FENCED_INSTANCE_ID
        assert simulated.group.state is GroupState.PREPARING

    def test_the_rebalance_timeout_does_not_remove_them(self) -> None:
        """KAFKA-8220: only the session does."""
        simulated = SimulatedGroup(delay_ms=1_000)
        simulated.join("a", known=True, instance="i-a", session_ms=600_000, rebalance_ms=5_000)
        simulated.join("b", known=True, instance="i-b", session_ms=600_000, rebalance_ms=5_000)
        simulated.advance(3_000)
        a, b = (simulated.joins[x][0].member_id for x in "ab")
        simulated.sync("b", b, instance="i-b")
        simulated.sync("a", a, instance="i-a", assignments={a: b"", b: b""})
        simulated.join(
            "a",
            a,
            instance="i-a",
            protocols=(("range", b"new"),),
            session_ms=600_000,
            rebalance_ms=5_000,
        )
        simulated.advance(5_000)
        assert simulated.joins["a"][-1].generation_id == 2
        assert b in simulated.group.members

    def test_a_return_that_cannot_be_stored_is_undone(self) -> None:
        """No member learns an id that a broker which starts again would not know."""
        simulated, (_a, b) = stable_group("a", "b", instances=True)
        simulated.store_error = ErrorCode.NOT_COORDINATOR
        simulated.group.roster.take_changes()
        back = simulated.join("b", instance="i-b", session_ms=20_000)
        assert back is not None
        assert back.error is ErrorCode.NOT_COORDINATOR
        assert simulated.group.roster.take_changes() == ([], [])
        assert simulated.group.members[b].session_timeout_ms == SESSION_MS
        assert simulated.group.heartbeat(b, "i-b", 1, simulated.now) is NONE
        simulated.store_error = NONE
        again = simulated.join("b", instance="i-b")
        assert again is not None
        assert again.error is NONE
        assert simulated.group.heartbeat(b, "i-b", 1, simulated.now) is ErrorCode.FENCED_INSTANCE_ID

    def test_one_cannot_slip_in_under_an_id_that_was_handed_out(self) -> None:
        simulated, (a, b) = stable_group("a", "b", instances=True)
        required = simulated.join("c")
        assert required is not None
        refused = simulated.join("c", required.member_id, instance="i-b")
        assert refused is not None
        assert refused.error is ErrorCode.FENCED_INSTANCE_ID
        assert set(simulated.group.members) == {a, b}

    def test_an_admin_removes_them_by_instance(self) -> None:
        simulated, (a, _b) = stable_group("a", "b", instances=True)
        assert simulated.leave("", "i-b") is NONE
        assert list(simulated.group.members) == [a]
        assert simulated.leave("", "i-b") is ErrorCode.UNKNOWN_MEMBER_ID
