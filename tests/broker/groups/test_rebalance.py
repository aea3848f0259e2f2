"""A group's generations: when a join ends, who is left out of it, and what is due when."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import (
    Answer,
    GroupLimits,
    JoinedMember,
    JoinRequest,
    JoinResult,
    Member,
    Store,
    StoredGroup,
    SyncResult,
)
from penstock_broker.groups.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalance
from penstock_broker.groups.states import Event, GroupState

SESSION = 10_000
TIMEOUT = 60_000
REQUEST = JoinRequest(
    "", None, "new", "c", "h", SESSION, TIMEOUT, "consumer", (("range", b"r"), ("sticky", b"s"))
)
LOST = ErrorCode.UNKNOWN_MEMBER_ID
BEGINS_AGAIN = ErrorCode.REBALANCE_IN_PROGRESS


class Rebalancing:
    """A rebalance, and what has been answered."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = 100) -> None:
        self.it = Rebalance("g", GroupLimits(delay_ms, 6_000, 1_800_000, size_max))

    def new(self, name: str, now: float = 0.0, **said: object) -> Member:
        """A new member joins."""
        made = Member.of(name, replace(REQUEST, **said))  # type: ignore[arg-type]
        self.it.replies.await_join(made, lambda result: None)
        self.it.add(made, now)
        return made

    def again(self, *members: Member, now: float = 0.0) -> None:
        """Members join again."""
        for member in members:
            self.it.replies.await_join(member, lambda result: None)
            self.it.complete_join_if_all_wait(now)

    def awaits_sync(self, *members: Member) -> None:
        for member in members:
            self.it.replies.await_sync(member, lambda result: None)
            self.it.record_sync(member.member_id)

    def answers(self) -> list[object]:
        """Results, and where something is to be stored before what follows."""
        found: list[object] = []
        for effect in self.it.replies.take():
            found.append("store" if isinstance(effect, Store) else effect)
        return [each.result if isinstance(each, Answer) else each for each in found]

    def left_out(self) -> list[str]:
        """Ids of joins that were answered with UNKNOWN_MEMBER_ID."""
        given = [each for each in self.answers() if isinstance(each, JoinResult)]
        return [each.member_id for each in given if each.error is LOST]

    def where(self) -> tuple[GroupState, int]:
        return self.it.state, self.it.generation_id


def stable(*names: str, **said: object) -> tuple[Rebalancing, list[Member]]:
    """A group whose members have their assignments, at 0 ms."""
    group = Rebalancing(delay_ms=1)
    members = [group.new(name, **said) for name in names]
    for at in (1, 2):
        group.it.tick(at)
    for member in members:
        group.it.record_sync(member.member_id)
        group.it.touch(member, 0)
    group.it.hand_out_assignment(0)
    group.answers()
    assert group.where() == (GroupState.STABLE, 1)
    return group, members


# -- states ----------------------------------------------------------------------------------


def test_a_new_group_is_empty_and_nothing_is_due() -> None:
    it = Rebalancing().it
    assert (it.state, it.generation_id, it.protocol_type, it.protocol_name) == (
        GroupState.EMPTY, 0, None, None,
    )  # fmt: skip
    assert it.next_deadline_ms() is None
    assert not it.may_be_due_before(math.inf)
    it.tick(10**9)
    assert it.state is GroupState.EMPTY


def test_what_cannot_happen_is_a_bug_of_ours() -> None:
    it = Rebalancing().it
    with pytest.raises(RuntimeError, match=r"^group g: ASSIGNED cannot happen in Empty$"):
        it.move(Event.ASSIGNED)
    it.move(Event.DELETED)
    it.begin(0)
    assert it.state is GroupState.DEAD


def stored(*members: Member) -> StoredGroup:
    return StoredGroup("consumer", 5, "range", "b", 0, list(members))


def test_the_log_says_what_the_group_was() -> None:
    group = Rebalancing(size_max=2)
    members = [Member.of(name, REQUEST) for name in "ab"]
    group.it.restore(stored(*members), 7.0)
    assert group.where() == (GroupState.STABLE, 5)
    assert (group.it.protocol_type, group.it.protocol_name) == ("consumer", "range")
    assert group.it.roster.leader == "b"
    assert [member.deadline_ms for member in members] == [7 + SESSION] * 2
    assert group.it.may_be_due_before(8 + SESSION)


def test_a_restored_group_without_members_is_empty() -> None:
    group = Rebalancing()
    group.it.restore(stored(), 7.0)
    assert group.where() == (GroupState.EMPTY, 5)


def test_a_restored_group_above_its_limit_rebalances() -> None:
    group = Rebalancing(size_max=1)
    group.it.restore(stored(*(Member.of(name, REQUEST) for name in "ab")), 7.0)
    assert group.it.state is GroupState.PREPARING


# -- the join --------------------------------------------------------------------------------


def test_without_a_delay_the_first_join_is_a_generation() -> None:
    group = Rebalancing()
    a = group.new("a", 5.0)
    members = (JoinedMember("a", None, b"r"),)
    assert group.answers() == [
        JoinResult(ErrorCode.NONE, "a", 1, "consumer", "range", "a", members)
    ]
    assert group.where() == (GroupState.COMPLETING, 1)
    assert (a.is_new, a.deadline_ms) == (False, 5 + SESSION)
    assert group.it.next_deadline_ms() == 5 + SESSION


def test_the_first_join_waits_for_the_delay() -> None:
    group = Rebalancing(delay_ms=3_000)
    group.new("a", 100)
    assert group.it.next_deadline_ms() == 3_100
    group.it.tick(3_099)
    assert (group.where(), group.answers()) == ((GroupState.PREPARING, 0), [])
    group.it.tick(3_100)
    assert group.where() == (GroupState.COMPLETING, 1)


def test_the_delay_begins_again_while_members_come_up_to_the_rebalance_timeout() -> None:
    group = Rebalancing(delay_ms=3_000)
    said = {"rebalance_timeout_ms": 7_000}
    group.new("a", 100, **said)
    ends = []
    for number, at in enumerate((3_100, 6_100, 7_100)):
        group.new(f"b{number}", at - 1, **said)
        assert group.it.state is GroupState.PREPARING
        ends.append(group.it.next_deadline_ms())
        group.it.tick(at)
    assert ends == [3_100, 6_100, 7_100]
    assert group.where() == (GroupState.COMPLETING, 1)
    assert len(group.answers()) == 4


def test_the_delay_does_not_begin_again_where_no_one_came() -> None:
    group = Rebalancing(delay_ms=3_000)
    group.new("a")
    group.new("b", 10)
    group.it.tick(3_000)
    assert group.it.next_deadline_ms() == 6_000
    group.it.tick(6_000)
    assert group.where() == (GroupState.COMPLETING, 1)


def test_a_rebalance_timeout_that_is_shorter_than_the_delay_ends_the_join() -> None:
    group = Rebalancing(delay_ms=3_000)
    for name in "ab":
        group.new(name, 0, rebalance_timeout_ms=2_000)
    assert group.it.next_deadline_ms() == 2_000
    group.it.tick(2_000)
    assert group.where() == (GroupState.COMPLETING, 1)


def test_later_joins_wait_for_all_members_and_no_delay() -> None:
    group, (a, b) = stable("a", "b")
    group.new("c", 20)
    assert group.where() == (GroupState.PREPARING, 1)
    group.again(a, now=30)
    assert group.where() == (GroupState.PREPARING, 1)
    group.again(b, now=40)
    assert group.where() == (GroupState.COMPLETING, 2)
    leader, *others = group.answers()
    assert isinstance(leader, JoinResult)
    assert [each.member_id for each in leader.members] == ["a", "b", "c"]
    assert others == [
        JoinResult(ErrorCode.NONE, name, 2, "consumer", "range", "a") for name in "bc"
    ]


def test_who_does_not_come_is_left_out_at_the_rebalance_timeout() -> None:
    group, (a, b, c) = stable("a", "b", "c")
    group.it.begin(50)
    group.again(b)
    for member in (a, c):
        group.it.touch(member, TIMEOUT)
    assert group.it.next_deadline_ms() == 50 + TIMEOUT
    group.it.tick(49 + TIMEOUT)
    assert group.where() == (GroupState.PREPARING, 1)
    group.it.tick(50 + TIMEOUT)
    assert (group.where(), list(group.it.roster.members)) == ((GroupState.COMPLETING, 2), ["b"])
    assert group.it.roster.leader == "b"
    assert b.deadline_ms == 50 + TIMEOUT + SESSION


def test_static_members_who_are_away_stay_in_the_generation() -> None:
    group, (a,) = stable("a", group_instance_id="i")
    b = group.new("b", 50)
    group.it.touch(a, TIMEOUT)
    group.it.tick(50 + TIMEOUT)
    assert list(group.it.roster.members) == ["a", "b"]
    (result,) = group.answers()
    assert isinstance(result, JoinResult)
    assert (result.member_id, result.leader, b.is_new) == ("b", "b", False)
    assert a.deadline_ms == TIMEOUT + SESSION, "it has not come"


@pytest.mark.parametrize(("timeout_ms", "later"), [(TIMEOUT, TIMEOUT), (0, 1)])
def test_a_join_of_static_members_who_are_all_away_continues(timeout_ms: int, later: int) -> None:
    group, (a,) = stable("a", group_instance_id="i")
    a.rebalance_timeout_ms = timeout_ms
    group.it.begin(50)
    group.it.touch(a, 10 * TIMEOUT)
    group.it.tick(50 + timeout_ms)
    assert group.where() == (GroupState.PREPARING, 1)
    assert group.it.next_deadline_ms() == 50 + timeout_ms + later


def test_a_join_without_members_empties_the_group() -> None:
    group, (a,) = stable("a")
    group.it.remove(a, 10)
    assert group.where() == (GroupState.EMPTY, 2)
    assert group.answers() == ["store"]
    assert (group.it.protocol_name, group.it.protocol_type) == (None, "consumer")
    assert group.it.next_deadline_ms() is None


def test_the_kind_of_a_group_is_that_of_its_first_member() -> None:
    group = Rebalancing(delay_ms=3_000)
    group.new("a", protocol_type="connect")
    group.new("b", protocol_type="other")
    assert group.it.protocol_type == "connect"


def test_a_group_that_has_become_empty_waits_for_the_delay_again() -> None:
    group, (a,) = stable("a")
    group.it.remove(a, 10)
    group.new("b", 100)
    assert group.where() == (GroupState.PREPARING, 2)
    group.it.tick(101)
    assert group.where() == (GroupState.COMPLETING, 3)


# -- ids that were handed out ----------------------------------------------------------------


def test_the_first_join_does_not_wait_for_ids_that_were_handed_out() -> None:
    group = Rebalancing()
    group.it.roster.pending["p"] = 500.0
    group.new("a")
    assert group.where() == (GroupState.COMPLETING, 1)


def test_a_later_join_waits_until_they_are_used_or_end() -> None:
    group, (a,) = stable("a")
    group.it.roster.pending["p"] = 500.0
    group.it.begin(20)
    group.again(a, now=20)
    assert group.it.next_deadline_ms() == 500
    group.it.tick(499)
    assert group.where() == (GroupState.PREPARING, 1)
    group.it.tick(500)
    assert (group.where(), group.it.roster.pending) == ((GroupState.COMPLETING, 2), {})


def test_an_id_that_ends_unused_does_nothing_to_an_empty_group() -> None:
    group = Rebalancing()
    group.it.roster.pending["p"] = 500.0
    group.it.tick(500)
    assert (group.where(), group.it.roster.pending) == ((GroupState.EMPTY, 0), {})


# -- what is due -----------------------------------------------------------------------------


def test_the_earliest_deadline_is_known_without_a_search() -> None:
    group, (a, b) = stable("a", "b")
    assert group.it.next_deadline_ms() == SESSION
    group.it.touch(a, 50)
    assert group.it.next_deadline_ms() == SESSION
    group.it.touch(b, 60)
    assert group.it.may_be_due_before(SESSION + 1), "not looked at again yet"
    assert group.it.next_deadline_ms() == SESSION + 50
    assert not group.it.may_be_due_before(SESSION + 50)
    assert group.it.may_be_due_before(SESSION + 51)
    assert group.it.due(7.0) == 7.0
    assert group.it.may_be_due_before(8.0)


def test_a_session_ends_at_its_deadline() -> None:
    group, (a, b) = stable("a", "b")
    group.it.touch(b, 1)
    group.it.tick(SESSION - 1)
    assert group.where() == (GroupState.STABLE, 1)
    group.it.tick(SESSION)
    assert group.where() == (GroupState.PREPARING, 1)
    assert list(group.it.roster.members) == ["b"]
    assert a.deadline_ms == SESSION


def test_who_waits_for_an_answer_does_not_expire() -> None:
    group, (a, b) = stable("a", "b")
    group.it.begin(0)
    group.again(a)
    group.it.touch(b, SESSION)
    group.it.tick(SESSION + 1)
    assert list(group.it.roster.members) == ["a", "b"]
    group.again(b, now=SESSION + 1)
    group.awaits_sync(a)
    assert group.it.next_deadline_ms() == 2 * SESSION + 1, "that of b"
    group.it.tick(2 * SESSION + 1)
    assert list(group.it.roster.members) == ["a"]


def test_a_new_member_waits_for_five_minutes() -> None:
    assert NEW_MEMBER_JOIN_TIMEOUT_MS == 300_000
    group, (a,) = stable("a", rebalance_timeout_ms=10**9)
    group.it.touch(a, 10**6)
    b = group.new("b", 10)
    assert (b.is_new, b.deadline_ms) == (True, 300_010)
    assert group.it.next_deadline_ms() == 300_010
    group.it.tick(300_009)
    assert group.left_out() == []
    group.it.tick(300_010)
    assert (group.left_out(), list(group.it.roster.members)) == (["b"], ["a"])


def test_who_is_late_to_sync_is_removed() -> None:
    group, members = stable("a", "b", "c")
    a, b, c = members
    group.it.begin(0)
    group.again(*members)
    group.answers()
    group.it.record_sync("a")
    group.awaits_sync(b)
    for member in members:
        group.it.touch(member, TIMEOUT)
    assert group.it.next_deadline_ms() == TIMEOUT
    group.it.tick(TIMEOUT - 1)
    assert group.where() == (GroupState.COMPLETING, 2)
    group.it.tick(TIMEOUT)
    assert list(group.it.roster.members) == ["a", "b"]
    assert group.where() == (GroupState.PREPARING, 2)
    assert group.answers() == [SyncResult(BEGINS_AGAIN)], "the one of b"
    assert c.deadline_ms == a.deadline_ms
    assert b.deadline_ms == TIMEOUT + SESSION


def test_the_deadline_of_syncs_that_have_all_come_passes_once() -> None:
    """The assignment is being stored."""
    group, (a,) = stable("a")
    group.it.begin(0)
    group.again(a)
    group.awaits_sync(a)
    assert group.it.next_deadline_ms() == TIMEOUT
    group.it.tick(TIMEOUT)
    assert group.where() == (GroupState.COMPLETING, 2)
    assert group.it.next_deadline_ms() is None


@pytest.mark.parametrize("late", [[], ["b"]])
def test_the_deadline_of_syncs_stays_after_the_assignment_for_those_who_lack_it(
    late: list[str],
) -> None:
    group, members = stable("a", "b")
    group.it.begin(0)
    group.again(*members)
    for member in members:
        group.it.touch(member, TIMEOUT)
        if member.member_id not in late:
            group.it.record_sync(member.member_id)
    group.it.hand_out_assignment(10)
    assert group.it.next_deadline_ms() == (TIMEOUT if late else TIMEOUT + SESSION)
    group.it.tick(TIMEOUT)
    assert group.it.state is (GroupState.PREPARING if late else GroupState.STABLE)
    assert len(group.it.roster.members) == 2 - len(late)


def test_a_rebalance_ends_the_wait_for_syncs() -> None:
    group, members = stable("a", "b")
    group.it.begin(0)
    group.again(*members)
    group.it.begin(TIMEOUT - 5)
    for member in members:
        group.it.touch(member, TIMEOUT)
    group.it.tick(TIMEOUT)
    assert list(group.it.roster.members) == ["a", "b"]


@pytest.mark.parametrize("is_late", [True, False])
def test_who_is_late_is_known_by_its_new_id(is_late: bool) -> None:
    group, members = stable("a", "b")
    a, b = members
    group.it.begin(0)
    group.again(a, b)
    group.it.record_sync("b")
    if not is_late:
        group.it.record_sync("a")
    group.it.rename(a, "a2")
    assert list(group.it.roster.members) == ["a2", "b"]
    for member in members:
        group.it.touch(member, TIMEOUT)
    group.it.tick(TIMEOUT)
    assert list(group.it.roster.members) == (["b"] if is_late else ["a2", "b"])


# -- members that go -------------------------------------------------------------------------


def test_who_is_removed_gets_an_answer_and_the_others_rebalance() -> None:
    group, (a, b) = stable("a", "b")
    group.awaits_sync(b)
    group.it.remove(b, 10)
    assert group.answers() == [SyncResult(LOST)]
    assert group.where() == (GroupState.PREPARING, 1)
    c = group.new("c", 20)
    group.it.remove(c, 30)
    assert group.answers() == [JoinResult(LOST, "c")]
    group.again(a, now=40)
    assert group.where() == (GroupState.COMPLETING, 2)


def test_who_is_removed_no_longer_keeps_the_others_waiting() -> None:
    group, (a, b) = stable("a", "b")
    group.it.begin(0)
    group.again(a)
    group.it.remove(b, 10)
    assert group.where() == (GroupState.COMPLETING, 2)


# -- the assignment --------------------------------------------------------------------------


def test_an_assignment_is_handed_to_those_who_wait() -> None:
    group, members = stable("a", "b")
    a, b = members
    group.it.begin(0)
    group.again(a, b)
    group.answers()
    group.it.roster.assign({"a": b"1", "b": b"2"})
    group.awaits_sync(b)
    group.it.hand_out_assignment(70)
    assert group.answers() == [SyncResult(ErrorCode.NONE, "consumer", "range", b"2")]
    assert (a.deadline_ms, b.deadline_ms) == (SESSION, 70 + SESSION)
    assert group.it.sync_result(a) == SyncResult(ErrorCode.NONE, "consumer", "range", b"1")


def test_without_an_assignment_those_who_wait_get_the_error() -> None:
    group, (a, b) = stable("a", "b")
    group.it.begin(0)
    group.again(a, b)
    group.answers()
    group.it.roster.assign({"a": b"1", "b": b"2"})
    group.awaits_sync(b)
    group.it.fail_assignment(ErrorCode.NOT_COORDINATOR, 70)
    assert group.answers() == [SyncResult(ErrorCode.NOT_COORDINATOR)]
    assert (a.assignment, b.assignment) == (b"", b"")
    assert (a.deadline_ms, b.deadline_ms) == (SESSION, 70 + SESSION)
    assert group.it.state is GroupState.COMPLETING


def test_a_rebalance_takes_back_the_assignment_that_is_being_stored() -> None:
    group, (a, b) = stable("a", "b")
    group.it.begin(0)
    group.again(a, b)
    group.answers()
    group.it.roster.assign({"a": b"1"})
    group.awaits_sync(a)
    group.it.begin(80)
    assert (group.answers(), a.assignment) == ([SyncResult(BEGINS_AGAIN)], b"")
    assert a.deadline_ms == 80 + SESSION
    group.it.begin(90)
    assert group.it.state is GroupState.PREPARING
    for member in (a, b):
        group.it.touch(member, TIMEOUT)
    assert group.it.next_deadline_ms() == 80 + TIMEOUT, "that has begun before"


def test_the_leader_alone_gets_the_members() -> None:
    group, (a, b) = stable("a", "b")
    members = (JoinedMember("a", None, b"r"), JoinedMember("b", None, b"r"))
    expected = JoinResult(ErrorCode.NONE, "a", 1, "consumer", "range", "a", members)
    assert group.it.join_result(a) == expected
    assert group.it.join_result(b) == replace(expected, member_id="b", members=())
    skipping = group.it.join_result(b, leader="b", skip_assignment=True)
    assert skipping == replace(expected, member_id="b", leader="b", skip_assignment=True)
    group.it.protocol_name = group.it.roster.leader = None
    assert group.it.join_result(a, leader="a").members == ()
    assert group.it.join_result(a).leader == ""
