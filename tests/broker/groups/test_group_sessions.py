"""Sessions: what prolongs one, when it does not run, and what its end does."""

from __future__ import annotations

from simulated_group import NONE, SESSION_MS, SimulatedGroup, stable_group, two_joined

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.states import GroupState


def test_a_silent_member_expires_and_the_others_rebalance() -> None:
    simulated, (a, _b) = stable_group("a", "b")
    for _ in range(4):
        simulated.advance(SESSION_MS / 4)
        assert simulated.heartbeat(a) in {NONE, ErrorCode.REBALANCE_IN_PROGRESS}
    simulated.advance(1)
    assert list(simulated.group.members) == [a]
    assert simulated.group.state is GroupState.PREPARING
    assert simulated.join("a", a) is not None
    assert simulated.group.generation_id == 2


def test_a_member_that_waits_does_not_expire() -> None:
    simulated, (a, _b) = stable_group("a", "b")
    simulated.join("a", a, protocols=(("range", b"other"),))
    assert simulated.group.state is GroupState.PREPARING
    simulated.advance(SESSION_MS + 1)
    assert a in simulated.group.members
    assert simulated.joins["a"][-1].generation_id == 2, "b expired, which completed the join"


def test_commits_and_syncs_prolong_a_session() -> None:
    simulated, (a,) = stable_group("a")
    for prolong in (
        lambda: simulated.group.commit_allowed(
            a, None, simulated.group.generation_id, simulated.now
        ),
        lambda: simulated.sync("a", a),
        lambda: simulated.heartbeat(a),
    ):
        simulated.advance(SESSION_MS - 1)
        prolong()
        simulated.advance(SESSION_MS - 1)
        assert a in simulated.group.members
        simulated.heartbeat(a)
    simulated.advance(SESSION_MS)
    assert a not in simulated.group.members


def test_a_session_starts_over_when_the_sync_that_was_waited_for_fails() -> None:
    """As in Kafka (``propagateAssignment``): it did not count while the member waited."""
    for failed in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        simulated, a, b = two_joined()
        simulated.sync("b", b)
        for _ in range(2):
            simulated.advance(SESSION_MS - 4_000)
            simulated.heartbeat(a)
        if failed is ErrorCode.REBALANCE_IN_PROGRESS:
            simulated.join("c", known=True)
        else:
            simulated.store_error = failed
            simulated.sync("a", a)
        assert simulated.syncs["b"][-1].error is failed
        simulated.advance(SESSION_MS - 4_000)
        simulated.heartbeat(a)
        simulated.advance(3_999)
        assert b in simulated.group.members
        simulated.advance(1)
        assert b not in simulated.group.members


def test_an_assignment_prolongs_the_sessions_of_those_who_wait_for_it_alone() -> None:
    simulated, a, b = two_joined()
    simulated.advance(SESSION_MS - 4_000)
    assert simulated.sync("a", a, assignments={a: b"1", b: b"2"}) is not None
    simulated.advance(SESSION_MS - 4_000)
    assert list(simulated.group.members) == [a]


def test_the_last_member_expiring_beside_a_pending_one_empties_the_group() -> None:
    """Pitfall 35 (redpanda#25270)."""
    simulated = SimulatedGroup()
    simulated.stable("a")
    simulated.join("p")
    simulated.advance(SESSION_MS + 1)
    assert simulated.group.state is GroupState.EMPTY
    assert simulated.group.protocol_name is None
    assert simulated.group.next_deadline_ms() is None


def test_an_answer_that_is_given_again_prolongs_the_session() -> None:
    simulated, (a, b) = stable_group("a", "b")
    simulated.advance(SESSION_MS - 1)
    simulated.heartbeat(a)
    assert simulated.join("b", b) is not None
    simulated.advance(SESSION_MS - 1)
    assert b in simulated.group.members
