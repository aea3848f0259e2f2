"""The coordinator's own part in what members do: ids, timers, what is logged and counted."""

from __future__ import annotations

import errno

import pytest
from group_harness import NONE, Harness

from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import GroupLimits, SyncRequest, SyncResult
from penstock_broker.groups.states import GroupState

SESSION_MS = 10_000
"""Of the harness."""


def state(harness: Harness, group: str = "g") -> GroupState:
    found = harness.groups.group(group)
    assert found is not None
    return found.state


def sync(harness: Harness, group: str, member: str) -> SyncResult:
    answers: list[SyncResult] = []
    request = SyncRequest(member, None, 1, None, None, {member: b"mine"})
    harness.groups.sync(group, request, answers.append)
    return answers[0]


# -- ids -----------------------------------------------------------------------------------------


def test_members_of_an_unknown_group() -> None:
    harness = Harness()
    joined = harness.join("unknown", "m")
    assert joined is not None
    assert (joined.error, joined.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "m")
    assert sync(harness, "unknown", "m").error is ErrorCode.UNKNOWN_MEMBER_ID
    codes = harness.groups.leave("unknown", [("m", None), ("n", None)])
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert harness.groups.groups() == []


def test_an_id_begins_with_the_instance_or_the_client() -> None:
    """``JoinGroupRequest``: what admins see says whose member it is; each id is another one."""
    harness = Harness()
    ids = []
    for instance in (None, None, "box-1"):
        joined = harness.join("g" if instance is None else "h", instance=instance)
        assert joined is not None
        ids.append(joined.member_id)
    assert ids == ["c-0", "c-1", "box-1-2"]


# -- timers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_ms", [0, 7, 1_000_000])
def test_a_session_ends_at_its_time_whenever_it_began(start_ms: int) -> None:
    harness = Harness()
    harness.clock.advance(start_ms)
    harness.stable("g")
    harness.clock.advance(SESSION_MS - 1)
    assert state(harness) is GroupState.STABLE
    harness.clock.advance(2)
    assert state(harness) is GroupState.EMPTY
    assert harness.metrics.members_expired.value == 1


def test_who_comes_after_all_have_left_is_watched_too() -> None:
    harness = Harness()
    member = harness.stable("g")
    harness.groups.leave("g", [(member, None)])
    harness.clock.advance(SESSION_MS // 2)
    required = harness.join("g")
    assert required is not None
    joined = harness.join("g", required.member_id)
    assert joined is not None
    assert joined.generation_id == 3
    harness.clock.advance(SESSION_MS - 1)
    assert state(harness) is GroupState.COMPLETING
    harness.clock.advance(2)
    assert state(harness) is GroupState.EMPTY


def test_who_leaves_has_not_expired() -> None:
    harness = Harness()
    member = harness.stable("g")
    harness.groups.leave("g", [(member, None)])
    harness.clock.advance(2 * SESSION_MS)
    assert harness.metrics.members_expired.value == 0


# -- the log and the metrics --------------------------------------------------------------------


def test_changes_of_a_group_are_logged_once_with_who_caused_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "penstock_broker.groups")
    harness = Harness()
    member = harness.stable("g")
    harness.groups.leave("g", [("stranger", None)])
    harness.clock.advance(SESSION_MS + 1)
    assert [record.getMessage() for record in caplog.records] == [
        f"group g is CompletingRebalance in generation 1 with 1 members; joined: {member}",
        "group g is Stable in generation 1 with 1 members",
        f"group g is Empty in generation 2 with 0 members; gone: {member}",
    ]
    assert harness.metrics.rebalances.value == 2


def test_who_comes_and_goes_while_a_group_gathers_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "penstock_broker.groups")
    harness = Harness(limits=GroupLimits(initial_rebalance_delay_ms=3_000))
    for number in range(2):
        assert harness.join("g") is not None
        harness.join("g", f"c-{number}")
    harness.groups.leave("g", [("c-0", None)])
    state_now = "group g is PreparingRebalance in generation 0 with"
    assert [record.getMessage() for record in caplog.records] == [
        f"{state_now} 1 members; joined: c-0",
        f"{state_now} 2 members; joined: c-1",
        f"{state_now} 1 members; gone: c-0",
    ]


def test_only_who_is_gone_counts_as_expired() -> None:
    harness = Harness(limits=GroupLimits(initial_rebalance_delay_ms=3_000))
    for number in range(2):
        assert harness.join("g") is not None
        harness.join("g", f"c-{number}")
    harness.clock.advance(6_000)
    assert state(harness) is GroupState.COMPLETING
    assert sync(harness, "g", "c-0").error is NONE
    harness.clock.advance(SESSION_MS - 4_000)
    assert harness.groups.heartbeat("g", "c-0", None, 1) is NONE
    harness.clock.advance(4_001)
    group = harness.groups.group("g")
    assert group is not None
    assert list(group.members) == ["c-0"]
    assert harness.metrics.members_expired.value == 1


def test_what_was_loaded_is_no_change(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    harness.stable("g")
    harness = harness.after_a_kill()
    caplog.set_level("INFO", "penstock_broker.groups")
    caplog.clear()
    harness.groups.leave("g", [("stranger", None)])
    assert (caplog.text, harness.metrics.rebalances.value) == ("", 0)


def test_an_assignment_that_is_not_stored_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    required = harness.join("g")
    assert required is not None
    harness.join("g", required.member_id)
    harness.files.fail("write", errno.ENOSPC, path_part=OFFSETS_TOPIC)
    assert sync(harness, "g", required.member_id).error is not NONE
    assert "group g is not stored: " in caplog.text
