"""The roster of a group: who is in it, who leads, what was handed out, and how much it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import JoinedMember, JoinRequest, Member, size_of
from penstock_broker.groups.roster import PENDING_MEMBERS_MAX, Roster

REQUEST = JoinRequest("", None, "new", "c", "h", 10_000, 60_000, "consumer", (("range", b"r"),))


def member(
    name: str, *protocols: str, instance: str | None = None, joins: bool = False, assigned: int = 0
) -> Member:
    known = tuple((protocol, name.encode()) for protocol in protocols or ("range",))
    made = Member.of(name, replace(REQUEST, group_instance_id=instance, protocols=known))
    made.awaiting_join = (lambda result: None) if joins else None
    made.assignment = b"." * assigned
    return made


def roster(*members: Member) -> Roster:
    made = Roster()
    for each in members:
        made.add(each)
    made.take_changes()
    return made


def expected_size(made: Roster) -> int:
    return sum(size_of(m.protocols) + len(m.assignment) for m in made.members.values())


def test_a_new_roster_is_empty() -> None:
    made = Roster()
    assert (made.members, made.static_ids, made.pending, made.leader, made.size) == (
        {}, {}, {}, None, 0,
    )  # fmt: skip
    assert made.take_changes() == ([], [])
    assert (made.joining(), made.described("range"), made.rebalance_timeout_ms()) == ([], (), 0)
    assert not made.elect_leader()


def test_the_first_who_joins_leads() -> None:
    made = roster()
    made.pending = {"a": 1.0, "other": 2.0}
    made.add(member("a", instance="i", assigned=7))
    made.add(member("b"))
    assert (made.leader, list(made.members), made.static_ids) == ("a", ["a", "b"], {"i": "a"})
    assert made.pending == {"other": 2.0}, "an id that was handed out is used"
    assert made.size == expected_size(made)
    assert made.take_changes() == (["a", "b"], [])
    assert made.take_changes() == ([], [])


def test_the_log_says_who_is_there() -> None:
    members = [member("a", "x", assigned=3), member("b", "x", "y", instance="i")]
    for leader, expected in (("b", "b"), ("gone", "a"), (None, "a")):
        made = Roster()
        made.fill(members, leader)
        assert (made.leader, made.static_ids) == (expected, {"i": "b"})
        assert made.members == {"a": members[0], "b": members[1]}
        assert made.size == expected_size(made)
        assert made.take_changes() == ([], [])
        assert made.supports((("x", b""),))
        assert not made.supports((("y", b""),))
    made = Roster()
    made.fill([], "gone")
    assert made.leader is None


def test_supported_is_what_all_members_know() -> None:
    made = roster(member("a", "x", "y", "x"), member("b", "y", "z"))
    assert [name for name in "xyz" if made.supports(((name, b""),))] == ["y"]
    assert made.supports((("x", b""), ("y", b"")))
    assert not made.supports(())
    made.describe(made.members["a"], member("a", "z"))
    assert [name for name in "xyz" if made.supports(((name, b""),))] == ["z"]
    assert made.size == expected_size(made)
    made.remove(made.members["a"])
    assert [name for name in "xyz" if made.supports(((name, b""),))] == ["y", "z"]
    made.remove(made.members["b"])
    assert made._supporters == {}, "clients choose the names"
    assert made.supports((("new", b""),)), "an empty group has no member that lacks it"


def test_who_comes_and_goes_in_between_is_no_change() -> None:
    made = roster(member("a"), member("b"))
    made.add(member("c"))
    made.remove(made.members["c"])
    assert made.take_changes() == ([], [])
    made.remove(made.members["a"])
    made.add(member("a"))
    assert made.take_changes() == ([], [])
    made.remove(made.members["b"])
    made.add(member("d"))
    assert made.take_changes() == (["d"], ["b"])
    assert made.take_changes() == ([], [])


def test_the_next_one_leads_when_the_leader_goes() -> None:
    made = roster(member("a", instance="i", assigned=5), member("b", assigned=2), member("c"))
    made.remove(made.members["b"])
    assert made.leader == "a"
    made.remove(made.members["a"])
    assert (made.leader, made.static_ids, list(made.members)) == ("c", {}, ["c"])
    assert made.size == expected_size(made)
    made.remove(made.members["c"])
    assert (made.leader, made.size) == (None, 0)


def test_an_instance_that_another_member_holds_by_now_stays() -> None:
    made = roster(member("a", instance="i"))
    made.add(member("b", instance="i"))
    made.remove(made.members["a"])
    assert made.static_ids == {"i": "b"}


def test_a_member_gets_another_id_in_its_place() -> None:
    made = roster(member("a", instance="i"), member("b"))
    a, b = made.members.values()
    made.rename(a, "a2")
    assert (list(made.members.items()), a.member_id) == ([("a2", a), ("b", b)], "a2")
    assert (made.leader, made.static_ids) == ("a2", {"i": "a2"})
    assert made.take_changes() == (["a2"], ["a"])
    made.rename(b, "b2")
    assert (made.leader, list(made.members), made.static_ids) == ("a2", ["a2", "b2"], {"i": "a2"})


def test_parts_are_given_to_all_and_nothing_to_those_not_named() -> None:
    made = roster(member("a", assigned=4), member("b", assigned=9), member("c"))
    made.assign({"a": b"12", "c": b"345", "stranger": b"6"})
    assert [m.assignment for m in made.members.values()] == [b"12", b"", b"345"]
    assert made.size == expected_size(made)


def test_the_leader_gets_all_with_their_metadata() -> None:
    made = roster(member("a", "x", "y", instance="i"), member("b", "y"))
    assert made.described("x") == (JoinedMember("a", "i", b"a"), JoinedMember("b", None, b""))


def test_the_leader_stays_if_it_joins_else_the_first_who_does() -> None:
    made = roster(member("a"), member("b"), member("c"))
    assert (made.elect_leader(), made.leader) == (False, "a")
    waiter = member("x", joins=True).awaiting_join
    made.members["b"].awaiting_join = made.members["c"].awaiting_join = waiter
    assert (made.elect_leader(), made.leader) == (True, "b")
    made.leader = "c"
    assert (made.elect_leader(), made.leader) == (True, "c")
    assert [m.member_id for m in made.joining()] == ["b", "c"]


def test_the_longest_rebalance_timeout_counts() -> None:
    made = roster(member("a"), member("b"))
    made.members["a"].rebalance_timeout_ms = 70_000
    assert made.rebalance_timeout_ms() == 70_000


@pytest.mark.parametrize(
    ("member_id", "instance", "error"),
    [
        ("a", "i", ErrorCode.NONE),
        ("a", None, ErrorCode.NONE),
        ("b", None, ErrorCode.NONE),
        ("c", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("gone", "j", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_a_member_is(member_id: str, instance: str | None, error: ErrorCode) -> None:
    made = roster(member("a", instance="i"), member("b"))
    made.static_ids["j"] = "gone"
    assert made.identity_error(member_id, instance) is error


def test_a_group_has_space_up_to_its_limit() -> None:
    made = roster(member("a"), member("b"))
    assert made.has_space_for("new", 3, joining=False)
    assert not made.has_space_for("new", 2, joining=False)
    assert made.has_space_for("a", 2, joining=False)
    assert made.has_space_for("a", 1, joining=False)


def test_while_it_joins_those_count_who_have_joined() -> None:
    """A group of three whose limit was lowered to two: the last one is left out."""
    made = roster(member("a"), member("b"), member("c"))
    assert made.has_space_for("a", 2, joining=True)
    for name in "ab":
        made.members[name].awaiting_join = lambda result: None
    assert made.has_space_for("a", 2, joining=True), "it is one of the two"
    assert not made.has_space_for("c", 2, joining=True)
    assert not made.has_space_for("new", 2, joining=True)
    assert made.has_space_for("c", 3, joining=True)


def test_so_many_ids_are_handed_out_and_no_more() -> None:
    made = roster(member("a"))
    made.pending = {str(number): 0.0 for number in range(PENDING_MEMBERS_MAX - 1)}
    assert made.has_space_for("new", 9, joining=False)
    made.pending["last"] = 0.0
    assert made.has_space_for("new", 9, joining=False) is False
    assert made.has_space_for("a", 9, joining=False)
