"""Members of a group: what they say of themselves, and which protocol they choose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import (
    Answer,
    GroupLimits,
    JoinRequest,
    JoinResult,
    Member,
    Protocols,
    SyncResult,
    common_protocols,
    select_protocol,
    size_of,
)

REQUEST = JoinRequest(
    "", "i", "new", "client", "host", 10_000, 60_000, "consumer", (("range", b"r"),)
)


def member(name: str, *protocols: str) -> Member:
    known = tuple((protocol, name.encode()) for protocol in protocols)
    return Member.of(name, replace(REQUEST, protocols=known))


def test_a_member_is_what_its_first_join_says() -> None:
    assert Member.of("a", REQUEST) == Member(
        "a", "i", "client", "host", 10_000, 60_000, "consumer", (("range", b"r"),)
    )


def test_what_is_not_said() -> None:
    assert (REQUEST.require_known_member_id, REQUEST.supports_skipping_assignment) == (True, False)
    known = Member.of("a", REQUEST)
    assert (known.is_new, known.deadline_ms) == (False, 0.0)
    assert JoinResult() == JoinResult(ErrorCode.NONE, "", -1, None, None, "", (), False)
    assert SyncResult() == SyncResult(ErrorCode.NONE, None, None, b"")


def test_a_later_join_describes_it_again_and_changes_nothing_else() -> None:
    known = Member.of("a", REQUEST)
    known.assignment, known.deadline_ms, known.is_new = b"part", 5.0, True
    later = JoinRequest("b", "j", "n", "c2", "h2", 1, 2, "connect", (("sticky", b"s"),))
    known.describe(later)
    assert known == Member(
        "a", "i", "c2", "h2", 1, 2, "connect", (("sticky", b"s"),), b"part", None, None, True, 5.0
    )


def test_the_metadata_is_that_of_one_protocol() -> None:
    known = Member.of("a", replace(REQUEST, protocols=(("range", b"r"), ("sticky", b"s"))))
    assert [known.metadata(name) for name in ("range", "sticky", "other")] == [b"r", b"s", b""]


@pytest.mark.parametrize(("timeout_ms", "allowed"), [(9, 0), (10, 1), (20, 1), (21, 0)])
def test_a_session_may_be_as_long_as_both_bounds(timeout_ms: int, allowed: int) -> None:
    limits = GroupLimits(session_timeout_min_ms=10, session_timeout_max_ms=20)
    assert limits.allow_session(timeout_ms) is bool(allowed)


def test_the_limits_are_kafkas_defaults() -> None:
    assert GroupLimits() == GroupLimits(3_000, 6_000, 1_800_000, 2**31 - 1)


@pytest.mark.parametrize(
    ("protocols", "size"),
    [((), 1_000), ((("range", b"12"),), 1_157), ((("a", b""), ("bc", b"123")), 1_306)],
)
def test_a_member_takes_its_contents_and_some(protocols: Protocols, size: int) -> None:
    assert size_of(protocols) == size


def test_common_protocols_are_those_of_all() -> None:
    assert common_protocols([]) == set()
    assert common_protocols([member("a", "x", "y")]) == {"x", "y"}
    assert common_protocols([member("a", "x", "y"), member("b", "y", "z")]) == {"y"}
    assert common_protocols([member("a", "x"), member("b", "z")]) == set()


@pytest.mark.parametrize(
    ("members", "choice"),
    [
        ([], ""),
        ([("x",), ("z",)], ""),
        ([("x", "y")], "x"),
        ([("x", "y"), ("y", "x"), ("y", "x")], "y"),
        ([("x", "y"), ("y", "x")], "x"),
        ([("only", "y", "x"), ("x", "y"), ("y", "x")], "y"),
        # Two of four want y, and x comes first: each vote counts as one.
        ([("x", "y"), ("y", "x"), ("y", "x"), ("x", "y"), ("y", "x")], "y"),
    ],
)
def test_each_member_votes_for_its_first_common_protocol(
    members: list[tuple[str, ...]], choice: str
) -> None:
    assert select_protocol(member(f"m{n}", *names) for n, names in enumerate(members)) == choice


def test_an_answer_goes_to_the_request_that_waits() -> None:
    results: list[JoinResult] = []
    Answer(results.append, JoinResult(generation_id=5)).deliver()
    assert results == [JoinResult(generation_id=5)]
