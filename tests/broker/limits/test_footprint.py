"""There is an end to what groups take: their number, members' metadata, offsets."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.coordinator import CoordinatorLimits, GroupCoordinator
from penstock_broker.groups.members import GroupLimits, JoinRequest, JoinResult, SyncRequest
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.testing.sim_clock import SimClock


class Store:
    def __init__(self) -> None:
        self.changes: list = []

    def write(self, group_id: str, changes: Iterable, *_: object) -> None:
        self.changes += changes

    def partition_of(self, group_id: str) -> int:
        return 0

    def problem(self, group_id: str) -> ErrorCode:
        return ErrorCode.NONE


class Harness:
    def __init__(self, **limits: int) -> None:
        self.clock = SimClock()
        self.store = Store()
        self.groups = GroupCoordinator(
            clock=self.clock,
            timers=self.clock,
            store=self.store,
            group_limits=GroupLimits(initial_rebalance_delay_ms=0),
            limits=CoordinatorLimits(**limits),
        )

    def join(self, group: str, size: int = 10, member: str = "") -> JoinResult:
        found: list[JoinResult] = []
        request = JoinRequest(
            member_id=member,
            group_instance_id=None,
            new_member_id="",
            client_id="c",
            client_host="/h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b"x" * size),),
            require_known_member_id=False,
        )
        self.groups.join(group, request, found.append)
        return found[0]

    def commit(self, group: str, count: int, metadata: str = "") -> set[ErrorCode]:
        offsets = {
            ("t", n): CommittedOffset(1, -1, metadata, self.clock.now_ms()) for n in range(count)
        }
        return set(self.groups.offsets.commit(group, "", None, -1, offsets).values())

    @property
    def total(self) -> int:
        return self.groups._directory.footprint.total


def refused(what: object, *arguments: object) -> bool:
    with pytest.raises(KafkaError) as caught:
        what(*arguments)  # type: ignore[operator]
    return caught.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_no_more_groups_than_there_may_be() -> None:
    harness = Harness(groups_max=3)
    assert harness.commit("a", 1) == {ErrorCode.NONE}
    harness.join("b")
    harness.join("c")
    assert refused(harness.join, "d")
    assert refused(harness.commit, "e", 1)
    assert harness.commit("a", 2) == {ErrorCode.NONE}, "those that are there continue"
    assert harness.groups.delete("a") is ErrorCode.NONE
    harness.join("d")


def test_huge_metadata_of_members_is_refused() -> None:
    harness = Harness(bytes_max=1 << 20)
    member = harness.join("g", 600_000)
    assert member.error is ErrorCode.NONE
    assert refused(harness.join, "h", 600_000)
    again = harness.join("g", 600_000, member.member_id)
    assert again.error is ErrorCode.NONE, "a member that comes again takes nothing more"
    harness.groups.leave("g", [(member.member_id, None)])
    assert harness.total < 10_000
    assert harness.join("h", 600_000).error is ErrorCode.NONE


def test_huge_assignments_are_refused() -> None:
    harness = Harness(bytes_max=1 << 20)
    member = harness.join("g")
    request = SyncRequest(
        member.member_id, None, 1, "consumer", "range", {member.member_id: b"x" * 2_000_000}
    )
    assert refused(harness.groups.sync, "g", request, lambda result: None)


def test_offsets_are_charged_and_given_back() -> None:
    harness = Harness(bytes_max=1 << 20)
    assert harness.commit("g", 100, "m" * 4_000) == {ErrorCode.NONE}
    before = harness.total
    assert before > 400_000
    assert harness.commit("g", 100, "m" * 4_000) == {ErrorCode.NONE}
    assert harness.total == before, "the same offsets again"
    assert refused(harness.commit, "h", 200, "m" * 4_000)
    harness.groups.offsets.remove_topic("t")
    assert harness.total < 10_000


def test_ids_that_are_handed_out_are_charged_until_they_expire() -> None:
    harness = Harness(bytes_max=1 << 20)
    harness.join("g", 10)
    before = harness.total
    harness.groups.delete("unknown")
    harness.clock.advance(400_000)
    assert harness.total < before, "its session ended"


def test_what_is_loaded_is_charged() -> None:
    harness = Harness()
    harness.commit("g", 10, "m" * 100)
    other = Harness()
    other.groups.load(harness.store.changes)
    assert other.total == pytest.approx(harness.total)
    other.groups.expire()
    assert other.total == pytest.approx(harness.total)


def test_the_bound_is_the_last_byte() -> None:
    free = Harness()
    free.commit("g", 1, "m" * 10)
    harness = Harness(bytes_max=free.total)
    assert harness.commit("g", 1, "m" * 10) == {ErrorCode.NONE}
    assert harness.commit("g", 1, "n" * 10) == {ErrorCode.NONE}
    assert refused(harness.commit, "g", 1, "m" * 11)
    assert harness.commit("g", 1, "m" * 9) == {ErrorCode.NONE}
    assert harness.total == free.total - 1


def test_what_was_deleted_is_not_loaded() -> None:
    """In the order of the log: a group that came back after its end is there."""
    harness = Harness()
    for _ in range(2):
        member = harness.join("g")
        assert harness.groups.leave("g", [(member.member_id, None)]) == [ErrorCode.NONE]
        stored = list(harness.store.changes)
        assert harness.groups.delete("g") is ErrorCode.NONE
    for changes, expected in ((stored, ["g"]), (harness.store.changes, [])):
        other = Harness()
        other.groups.load(changes)
        assert [group.group_id for group in other.groups.groups()] == expected
