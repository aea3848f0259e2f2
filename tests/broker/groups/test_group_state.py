"""The group state machine, alone: no clock, no network, every rule as a sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.group_state import Group
from penstock_broker.groups.members import (
    Answer,
    Effect,
    GroupLimits,
    JoinRequest,
    JoinResult,
    Store,
    SyncRequest,
    SyncResult,
)
from penstock_broker.groups.roster import PENDING_MEMBERS_MAX
from penstock_broker.groups.states import ANSWERS, TRANSITIONS, Event, GroupState

SESSION_MS = 10_000
REBALANCE_MS = 60_000
NONE = ErrorCode.NONE


class Room:
    """A group with a clock in hand; carries out effects as the coordinator does."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = 1_000) -> None:
        self.group = Group("g", GroupLimits(delay_ms, 6_000, 1_800_000, size_max))
        self.now = 0.0
        self.joins: dict[str, list[JoinResult]] = {}
        self.syncs: dict[str, list[SyncResult]] = {}
        self.stores = 0
        self.store_error = NONE
        self._ids = 0

    def carry_out(self, effects: list[Effect]) -> None:
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Answer):
                effect.deliver()
                continue
            assert isinstance(effect, Store)
            self.stores += 1
            if self.store_error is NONE:
                queue += self.group.assignment_stored(self.now)
            else:
                queue += self.group.store_failed(self.store_error, self.now)

    def join(
        self,
        label: str,
        member_id: str = "",
        *,
        instance: str | None = None,
        known: bool = False,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"r"), ("roundrobin", b"rr")),
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        skipping: bool = False,
    ) -> JoinResult | None:
        """Join; the answer if there already is one. ``known``: needs no id beforehand."""
        self._ids += 1
        answers = self.joins.setdefault(label, [])
        count = len(answers)
        request = JoinRequest(
            member_id,
            instance,
            f"{label}-{self._ids}",
            label,
            "/127.0.0.1",
            session_ms,
            rebalance_ms,
            "consumer",
            protocols,
            require_known_member_id=not known,
            supports_skipping_assignment=skipping,
        )
        self.carry_out(self.group.join(request, answers.append, self.now))
        return answers[-1] if len(answers) > count else None

    def sync(
        self,
        label: str,
        member_id: str,
        *,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
        protocol: str | None = None,
    ) -> SyncResult | None:
        answers = self.syncs.setdefault(label, [])
        count = len(answers)
        request = SyncRequest(
            member_id,
            instance,
            self.group.generation_id if generation is None else generation,
            None,
            protocol,
            assignments or {},
        )
        self.carry_out(self.group.sync(request, answers.append, self.now))
        return answers[-1] if len(answers) > count else None

    def sleep(self, ms: float) -> None:
        """Let time pass, ticking at every deadline on the way."""
        end = self.now + ms
        for _ in range(10_000):
            deadline = self.group.next_deadline_ms()
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            self.carry_out(self.group.tick(self.now))
        else:
            raise AssertionError("the group is never at rest")
        self.now = end

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        code, effects = self.group.leave(member_id, instance, self.now)
        self.carry_out(effects)
        return code

    def beat(self, member_id: str, generation: int | None = None) -> ErrorCode:
        given = self.group.generation_id if generation is None else generation
        return self.group.heartbeat(member_id, None, given, self.now)

    def stable(self, *labels: str, instances: bool = False) -> list[str]:
        """Bring ``labels`` into one stable generation; their member ids, the leader first."""
        for label in labels:
            self.join(label, known=True, instance=f"i-{label}" if instances else None)
        if self.group.state is GroupState.COMPLETING and len(labels) > 1:
            # The first was alone in its generation: it has to come back.
            first = self.joins[labels[0]][-1].member_id
            self.join(labels[0], first, instance=f"i-{labels[0]}" if instances else None)
        for label in labels[:-1]:
            if self.joins[label][-1].generation_id != self.group.generation_id:
                self.join(label, self.joins[label][-1].member_id)
        self.sleep(0)
        ids = [self.joins[label][-1].member_id for label in labels]
        assert self.group.state is GroupState.COMPLETING
        leader = self.group.leader
        for label, member_id in zip(labels, ids, strict=True):
            self.sync(
                label,
                member_id,
                assignments={m: m.encode() for m in ids} if member_id == leader else None,
                instance=f"i-{label}" if instances else None,
            )
        assert self.group.state is GroupState.STABLE
        return ids


def together(*labels: str, instances: bool = False) -> tuple[Room, list[str]]:
    """A room whose members have joined within the initial delay and are stable."""
    room = Room(delay_ms=1_000)
    for label in labels:
        room.join(label, known=True, instance=f"i-{label}" if instances else None)
    room.sleep(1_000 * (len(labels) + 1))
    ids = [room.joins[label][-1].member_id for label in labels]
    for label, member_id in zip(labels, ids, strict=True):
        room.sync(
            label,
            member_id,
            assignments={m: m.encode() for m in ids} if member_id == room.group.leader else None,
            instance=f"i-{label}" if instances else None,
        )
    assert room.group.state is GroupState.STABLE
    return room, ids


def test_every_state_has_an_answer_for_every_request() -> None:
    for answers in ANSWERS.values():
        assert set(answers) == set(GroupState)
    assert set(TRANSITIONS) == set(GroupState)
    reachable = {after for row in TRANSITIONS.values() for after in row.values()}
    assert reachable == set(GroupState)


def test_an_event_that_is_not_in_the_table_is_a_bug() -> None:
    group = Room().group
    with pytest.raises(RuntimeError, match="cannot happen"):
        group._move(Event.ASSIGNED)


def test_first_join_is_told_to_come_back_with_an_id() -> None:
    """Pitfall 34, KIP-394: and the id that nobody uses expires."""
    room = Room()
    answer = room.join("a")
    assert answer is not None
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id in room.group.pending
    assert room.group.state is GroupState.EMPTY
    room.sleep(SESSION_MS)
    assert not room.group.pending
    assert room.group.next_deadline_ms() is None


def test_one_member_joins_syncs_and_is_stable() -> None:
    room = Room()
    required = room.join("a")
    assert required is not None
    joined = room.join("a", required.member_id)
    assert joined is not None
    assert joined.error is NONE
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert [m.member_id for m in joined.members] == [joined.member_id]
    assert joined.protocol_name == "range"
    synced = room.sync("a", joined.member_id, assignments={joined.member_id: b"mine"})
    assert synced == SyncResult(NONE, "consumer", "range", b"mine")
    assert room.group.state is GroupState.STABLE
    assert room.stores == 1


def test_the_initial_delay_gathers_members_into_one_generation() -> None:
    room = Room(delay_ms=3_000)
    assert room.join("a", known=True) is None
    room.sleep(2_000)
    assert room.join("b", known=True) is None
    room.sleep(2_000)
    assert room.group.state is GroupState.PREPARING, "b's arrival prolongs the wait"
    room.sleep(4_000)
    first, second = room.joins["a"][0], room.joins["b"][0]
    assert first.generation_id == second.generation_id == 1
    assert len(first.members) == 2
    assert second.members == ()
    assert second.leader == first.member_id


def test_followers_wait_for_the_leaders_assignment() -> None:
    room = Room(delay_ms=1_000)
    room.join("a", known=True)
    room.join("b", known=True)
    room.sleep(3_000)
    a, b = room.joins["a"][0].member_id, room.joins["b"][0].member_id
    assert room.sync("b", b) is None
    leader = room.sync("a", a, assignments={a: b"1", b: b"2"})
    assert leader is not None
    assert leader.assignment == b"1"
    assert room.syncs["b"][0].assignment == b"2"


def test_a_failed_write_of_the_assignment_reaches_nobody() -> None:
    room = Room(delay_ms=1_000)
    room.join("a", known=True)
    room.join("b", known=True)
    room.sleep(3_000)
    a, b = room.joins["a"][0].member_id, room.joins["b"][0].member_id
    room.sync("b", b)
    room.store_error = ErrorCode.NOT_COORDINATOR
    room.sync("a", a, assignments={a: b"1", b: b"2"})
    assert [s.error for s in room.syncs["a"] + room.syncs["b"]] == [ErrorCode.NOT_COORDINATOR] * 2
    assert room.group.state is GroupState.PREPARING


def test_a_new_member_makes_the_others_join_again() -> None:
    room, (a, b) = together("a", "b")
    assert room.join("c", known=True) is None
    assert room.group.state is GroupState.PREPARING
    assert room.beat(a) is ErrorCode.REBALANCE_IN_PROGRESS
    assert room.join("a", a) is None
    assert room.join("b", b) is not None, "the last one completes the join"
    assert room.joins["c"][0].generation_id == 2


def test_commits_during_the_join_are_taken_for_the_old_generation() -> None:
    """Pitfall 37."""
    room, (a, b) = together("a", "b")
    room.join("c", known=True)
    assert room.group.commit_allowed(a, None, 1, room.now) is NONE
    room.join("a", a)
    room.join("b", b)
    assert room.group.state is GroupState.COMPLETING
    assert room.group.commit_allowed(a, None, 2, room.now) is ErrorCode.REBALANCE_IN_PROGRESS
    assert room.group.commit_allowed(a, None, 1, room.now) is ErrorCode.ILLEGAL_GENERATION


def test_simple_commits_are_only_for_empty_groups() -> None:
    """Pitfall 39."""
    room = Room()
    assert room.group.commit_allowed("", None, -1, 0) is NONE
    room.stable("a")
    assert room.group.commit_allowed("", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_expires_and_the_others_rebalance() -> None:
    room, (a, _b) = together("a", "b")
    for _ in range(4):
        room.sleep(SESSION_MS / 4)
        assert room.beat(a) in {NONE, ErrorCode.REBALANCE_IN_PROGRESS}
    room.sleep(1)
    assert list(room.group.members) == [a]
    assert room.group.state is GroupState.PREPARING
    assert room.join("a", a) is not None
    assert room.group.generation_id == 2


def test_a_member_that_waits_does_not_expire() -> None:
    room, (a, _b) = together("a", "b")
    room.join("a", a, protocols=(("range", b"other"),))
    assert room.group.state is GroupState.PREPARING
    room.sleep(SESSION_MS + 1)
    assert a in room.group.members
    assert room.joins["a"][-1].generation_id == 2, "b expired, which completed the join"


def test_commits_and_syncs_prolong_a_session() -> None:
    room, (a,) = together("a")
    for prolong in (
        lambda: room.group.commit_allowed(a, None, room.group.generation_id, room.now),
        lambda: room.sync("a", a),
        lambda: room.beat(a),
    ):
        room.sleep(SESSION_MS - 1)
        prolong()
        room.sleep(SESSION_MS - 1)
        assert a in room.group.members
        room.beat(a)
    room.sleep(SESSION_MS)
    assert a not in room.group.members


def test_a_session_begins_anew_when_the_sync_that_was_waited_for_fails() -> None:
    """As in Kafka (``propagateAssignment``): it did not count while the member waited."""
    for failed in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        room = Room(delay_ms=1_000)
        for label in "ab":
            room.join(label, known=True)
        room.sleep(3_000)
        a, b = (room.joins[label][0].member_id for label in "ab")
        room.sync("b", b)
        for _ in range(2):
            room.sleep(SESSION_MS - 4_000)
            room.beat(a)
        if failed is ErrorCode.REBALANCE_IN_PROGRESS:
            room.join("c", known=True)
        else:
            room.store_error = failed
            room.sync("a", a)
        assert room.syncs["b"][-1].error is failed
        room.sleep(SESSION_MS - 4_000)
        room.beat(a)
        room.sleep(3_999)
        assert b in room.group.members
        room.sleep(1)
        assert b not in room.group.members


def test_a_leave_during_the_join_completes_it() -> None:
    """Pitfall 35 (kop#380)."""
    room, (a, b) = together("a", "b")
    room.join("a", a, protocols=(("range", b"other"),))
    assert room.group.state is GroupState.PREPARING
    assert room.leave(b) is NONE
    assert room.joins["a"][-1].generation_id == 2
    assert room.group.state is GroupState.COMPLETING


def test_the_last_member_expiring_beside_a_pending_one_empties_the_group() -> None:
    """Pitfall 35 (redpanda#25270)."""
    room = Room()
    room.stable("a")
    room.join("p")
    room.sleep(SESSION_MS + 1)
    assert room.group.state is GroupState.EMPTY
    assert room.group.protocol_name is None
    assert room.group.next_deadline_ms() is None


def test_a_member_that_never_syncs_is_removed() -> None:
    room = Room(delay_ms=1_000)
    room.join("a", known=True, rebalance_ms=5_000)
    room.join("b", known=True, rebalance_ms=5_000)
    room.sleep(3_000)
    a, b = room.joins["a"][0].member_id, room.joins["b"][0].member_id
    room.sync("a", a, assignments={a: b"", b: b""})
    for _ in range(6):
        room.sleep(1_000)
        room.beat(a)
        room.beat(b)
    assert b not in room.group.members
    assert room.beat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_come_to_the_join_is_left_out() -> None:
    """Pitfall 35: by the rebalance timeout, although its session lives (max.poll.interval.ms)."""
    room, (a, b) = together("a", "b")
    room.join("c", known=True)
    room.join("a", a)
    for _ in range(REBALANCE_MS // 5_000):
        room.sleep(4_999)
        assert room.beat(b, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        room.sleep(1)
    assert b not in room.group.members
    assert room.joins["a"][-1].generation_id == 2
    assert room.beat(b, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_lost_join_answer_is_given_again() -> None:
    room = Room(delay_ms=1_000)
    room.join("a", known=True)
    room.join("b", known=True)
    room.sleep(3_000)
    b = room.joins["b"][0].member_id
    again = room.join("b", b)
    assert again is not None
    assert again.generation_id == 1
    assert room.group.state is GroupState.COMPLETING


def test_a_join_on_a_second_connection_answers_the_first() -> None:
    room, (a, _b) = together("a", "b")
    room.join("a", a, protocols=(("range", b"x"),))
    room.join("a", a, protocols=(("range", b"x"),))
    assert room.joins["a"][-1].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_leader_joining_again_rebalances_even_unchanged() -> None:
    room, (a, b) = together("a", "b")
    assert room.join("b", b) is not None, "a follower is told the generation"
    assert room.group.state is GroupState.STABLE
    assert room.join("a", a) is None
    assert room.group.state is GroupState.PREPARING


def test_protocol_is_the_one_that_most_members_put_first() -> None:
    room = Room(delay_ms=1_000)
    room.join("a", known=True, protocols=(("x", b""), ("y", b""), ("z", b"")))
    room.join("b", known=True, protocols=(("y", b""), ("x", b"")))
    room.join("c", known=True, protocols=(("z", b""), ("y", b""), ("x", b"")))
    room.sleep(5_000)
    assert room.group.protocol_name == "y", "z is not common; c's vote goes to y"


def test_a_member_without_a_common_protocol_is_refused() -> None:
    room, _ = together("a", "b")
    refused = room.join("c", known=True, protocols=(("sticky", b""),))
    assert refused is not None
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.group.state is GroupState.STABLE
    nothing = room.join("d", known=True, protocols=())
    assert nothing is not None
    assert nothing.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeouts_have_bounds(session_ms: int) -> None:
    refused = Room().join("a", known=True, session_ms=session_ms)
    assert refused is not None
    assert refused.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_groups_and_ids_handed_out_have_bounds() -> None:
    room = Room(size_max=1)
    room.stable("a")
    refused = room.join("b", known=True)
    assert refused is not None
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    crowd = Room()
    for number in range(PENDING_MEMBERS_MAX):
        crowd.join(str(number))
    over = crowd.join("over")
    assert over is not None
    assert over.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_limit_that_was_lowered_keeps_those_who_come_first() -> None:
    room, (a, b) = together("a", "b")
    stored = room.group.stored(0)
    lower = Room(size_max=1)
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
    room = Room()
    (a,) = room.stable("a")
    refused = room.join("a", a, protocols=(("sticky", b""),))
    assert refused is not None
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join("a", a, protocols=(("sticky", b""), ("range", b""))) is not None
    assert room.join("a", a, protocols=(("sticky", b""),)) is not None
    assert room.group.protocol_name == "sticky"


def test_the_first_join_does_not_wait_for_ids_that_were_handed_out() -> None:
    """As in Kafka; a later one does (pitfall 34)."""
    room = Room()
    room.join("never")
    joined = room.join("a", known=True)
    assert joined is not None
    assert joined.generation_id == 1
    room.join("never too")
    assert room.join("b", known=True) is None
    assert room.join("a", joined.member_id) is None
    room.sleep(SESSION_MS)
    assert room.joins["a"][-1].generation_id == 2


def test_a_group_that_was_deleted_answers_nobody() -> None:
    room, (a,) = together("a")
    room.leave(a)
    group = room.group
    assert group.delete() is NONE
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.commit_allowed("", None, -1, room.now) is gone
    assert room.leave(a) is gone
    assert room.beat(a) is gone
    synced = room.sync("a", a)
    assert synced is not None
    assert synced.error is gone


def test_who_is_refused_with_an_id_in_hand_holds_nobody_up() -> None:
    """The join waits for ids that were handed out, but not for one that has been refused."""
    room, (a, _b) = together("a", "b")
    room.leave(_b)
    required = room.join("c")
    assert required is not None
    assert room.join("a", a, protocols=(("range", b"new"),)) is None
    assert room.group.state is GroupState.PREPARING
    stranger = room.join("d", "no-such-id", protocols=(("sticky", b""),))
    assert stranger is not None
    assert room.group.state is GroupState.PREPARING
    refused = room.join("c", required.member_id, protocols=(("sticky", b""),))
    assert refused is not None
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.joins["a"][-1].generation_id == room.group.generation_id
    assert room.group.state is GroupState.COMPLETING
    assert room.leave(required.member_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_handed_out_is_given_back_by_its_holder_alone() -> None:
    room, _ = together("a")
    required = room.join("c")
    assert required is not None
    assert room.leave(required.member_id, "i-c") is ErrorCode.UNKNOWN_MEMBER_ID
    assert required.member_id in room.group.pending
    assert room.leave(required.member_id) is NONE
    assert not room.group.pending


def test_a_sync_on_a_second_connection_answers_the_first() -> None:
    room = Room(delay_ms=1_000)
    for label in "ab":
        room.join(label, known=True)
    room.sleep(3_000)
    b = room.joins["b"][0].member_id
    assert room.sync("b", b) is None
    first = room.sync("b", b)
    assert first is not None
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert room.group.members[b].awaiting_sync is not None


def test_who_syncs_after_the_leader_is_not_removed_when_the_time_for_it_is_over() -> None:
    room = Room(delay_ms=1_000)
    for label in "ab":
        room.join(label, known=True, rebalance_ms=6_000, session_ms=20_000)
    room.sleep(3_000)
    a, b = (room.joins[label][0].member_id for label in "ab")
    room.sync("a", a, assignments={a: b"1", b: b"2"})
    late = room.sync("b", b)
    assert late is not None
    assert late.assignment == b"2"
    room.sleep(10_000)
    assert set(room.group.members) == {a, b}
    assert room.group.state is GroupState.STABLE
    deadline = room.group.next_deadline_ms()
    assert deadline is not None
    assert deadline > room.now


def test_when_all_have_synced_only_sessions_end() -> None:
    room = Room(delay_ms=1_000)
    for label in "ab":
        room.join(label, known=True, rebalance_ms=6_000, session_ms=20_000)
    room.sleep(3_000)
    a, b = (room.joins[label][0].member_id for label in "ab")
    room.sync("b", b)
    room.sync("a", a, assignments={a: b"1", b: b"2"})
    assert room.group.next_deadline_ms() == room.now + 20_000


def test_who_joins_again_differently_makes_the_others_join_again() -> None:
    """Only an unchanged request is one whose answer was lost."""
    room = Room(delay_ms=1_000)
    for label in "ab":
        room.join(label, known=True)
    room.sleep(3_000)
    b = room.joins["b"][0].member_id
    assert room.group.state is GroupState.COMPLETING
    assert room.join("b", b) is not None
    assert room.join("b", b, protocols=(("range", b"other"),)) is None
    assert room.group.state is GroupState.PREPARING
    room, (_, b) = together("a", "b")
    assert room.join("b", b, protocols=(("range", b"other"),)) is None
    assert room.group.state is GroupState.PREPARING


def test_an_answer_that_is_given_again_prolongs_the_session() -> None:
    room, (a, b) = together("a", "b")
    room.sleep(SESSION_MS - 1)
    room.beat(a)
    assert room.join("b", b) is not None
    room.sleep(SESSION_MS - 1)
    assert b in room.group.members


def test_the_first_who_has_come_leads_where_the_leader_has_not() -> None:
    room = Room(delay_ms=1_000)
    for label in "abc":
        room.join(label, known=True, instance=f"i-{label}", session_ms=600_000, rebalance_ms=5_000)
    room.sleep(5_000)
    a, b, c = (room.joins[label][0].member_id for label in "abc")
    assert room.group.leader == a
    for label, member_id in (("c", c), ("b", b)):
        room.join(
            label,
            member_id,
            instance=f"i-{label}",
            session_ms=600_000,
            rebalance_ms=5_000,
            protocols=(("range", b"new"),),
        )
    room.sleep(5_000)
    assert room.joins["b"][-1].generation_id == 2
    assert room.group.leader == b
    assert list(room.group.members) == [a, b, c]


@pytest.mark.parametrize("rebalance_ms", [5_000, 2, 1, 0])
def test_a_join_of_members_who_are_all_away_waits_for_their_sessions(rebalance_ms: int) -> None:
    """KAFKA-8220: static members, as long as they allow, and never without a pause."""
    room, (a, b) = together("a", "b", instances=True)
    for member in room.group.members.values():
        member.session_timeout_ms, member.rebalance_timeout_ms = 600_000, rebalance_ms
        room.group.heartbeat(member.member_id, member.group_instance_id, 1, room.now)
    assert room.join("c", known=True, rebalance_ms=rebalance_ms) is None
    (c,) = set(room.group.members) - {a, b}
    room.leave(c)
    for _ in range(3):
        deadline = room.group.next_deadline_ms()
        assert deadline is not None
        room.now = deadline
        room.carry_out(room.group.tick(room.now))
        assert room.group.next_deadline_ms() == room.now + max(1, rebalance_ms)
    assert set(room.group.members) == {a, b}
    assert room.group.state is GroupState.PREPARING


def test_a_group_that_is_restored_is_what_it_was() -> None:
    room, (a, b) = together("a", "b", instances=True)
    stored = room.group.stored(1)
    for leader, expected in ((b, b), ("nobody", a)):
        stored.leader = leader
        other = Group("g", GroupLimits(size_max=2))
        other.restore(stored, 0.0)
        assert other.state is GroupState.STABLE
        assert other.protocol_name == "range"
        assert other.leader == expected
        assert other.roster.size == room.group.roster.size
        assert other.roster.take_changes() == ([], [])
    smaller = Group("g", GroupLimits(size_max=1))
    smaller.restore(stored, 0.0)
    assert smaller.state is GroupState.PREPARING, "the limit was lowered: not all can come back"
    for member_id in (a, b):
        room.leave(member_id, f"i-{member_id[0]}")
    empty = Group("g", GroupLimits())
    empty.restore(room.group.stored(2), 0.0)
    assert (empty.state, empty.leader) == (GroupState.EMPTY, None)
    dynamic, (c,) = together("c")
    other = Group("g", GroupLimits())
    other.restore(dynamic.group.stored(3), 0.0)
    assert other.static_ids == {}
    assert list(other.members) == [c]


def test_who_waits_already_keeps_its_place_in_a_group_that_is_full() -> None:
    room, ids = together("a", "b", "c")
    room.group.limits = GroupLimits(0, 6_000, 1_800_000, 2)
    for label, member_id in zip("ab", ids, strict=False):
        assert room.join(label, member_id, protocols=(("range", b"new"),)) is None
    again = room.join("b", ids[1], protocols=(("range", b"newer"),))
    assert again is not None
    assert again.error is ErrorCode.REBALANCE_IN_PROGRESS, "the first of its two requests"
    refused = room.join("c", ids[2], protocols=(("range", b"new"),))
    assert refused is not None
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert room.joins["a"][-1].generation_id == 2
    stranger = room.join("d", known=True)
    assert stranger is not None
    assert stranger.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def ask_to_sync(room: Room, member_id: str, protocol_type: str | None) -> ErrorCode:
    answers: list[SyncResult] = []
    generation = room.group.generation_id
    request = SyncRequest(member_id, None, generation, protocol_type, "range", {})
    room.carry_out(room.group.sync(request, answers.append, room.now))
    return answers[0].error


def test_a_sync_is_held_to_the_protocol_of_the_group() -> None:
    room, (a,) = together("a")
    assert ask_to_sync(room, a, "consumer") is NONE
    assert ask_to_sync(room, a, "connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ask_to_sync(room, "stranger", "connect") is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.join("b", known=True) is None
    assert ask_to_sync(room, a, "consumer") is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_may_commit() -> None:
    room, (a, _b) = together("a", "b", instances=True)

    def allowed(
        member_id: str, instance: str | None, generation: int, *, transactional: bool = False
    ) -> ErrorCode:
        return room.group.commit_allowed(
            member_id, instance, generation, room.now, transactional=transactional
        )

    assert allowed(a, None, -1) is ErrorCode.ILLEGAL_GENERATION
    for transactional in (False, True):
        assert allowed(a, None, 1, transactional=transactional) is NONE
        assert allowed("", None, 0, transactional=transactional) is ErrorCode.UNKNOWN_MEMBER_ID
        fenced = ErrorCode.FENCED_INSTANCE_ID
        assert allowed("", "i-a", -1, transactional=transactional) is fenced
    for member_id, instance in ((a, "i-a"), (_b, "i-b")):
        room.leave(member_id, instance)
    assert allowed("", None, -1) is NONE
    for generation in (0, 1):
        assert allowed("", None, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_is_given_back_holds_the_join_up_no_longer() -> None:
    room, (a,) = together("a")
    required = room.join("c")
    assert required is not None
    deadline = room.now + SESSION_MS
    assert room.group.pending == {required.member_id: deadline}
    room.carry_out(room.group.tick(deadline - 1))
    assert room.group.pending == {required.member_id: deadline}, "not yet"
    assert room.join("a", a, protocols=(("range", b"new"),)) is None
    assert room.leave(required.member_id) is NONE
    assert room.joins["a"][-1].generation_id == 2


def test_the_kind_of_a_group_is_that_of_its_members() -> None:
    room, _ = together("a")

    def join(kind: str) -> ErrorCode:
        answers: list[JoinResult] = []
        request = JoinRequest(
            "", None, "x-1", "x", "/h", SESSION_MS, REBALANCE_MS, kind, (("range", b""),)
        )
        room.carry_out(room.group.join(request, answers.append, room.now))
        return answers[0].error

    assert join("connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join("") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join("consumer") is ErrorCode.MEMBER_ID_REQUIRED
    empty = Room()
    room = empty
    assert join("") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join("connect") is ErrorCode.MEMBER_ID_REQUIRED


def test_only_consumers_subscribe() -> None:
    room, _ = together("a", "b")
    group = room.group
    assert group.subscribed_topics_of(lambda data: {data.decode()}) == {"r"}
    assert group.subscribed_topics_of(lambda _: None) is None
    group.protocol_type = "connect"
    assert group.subscribed_topics_of(lambda data: {data.decode()}) == set()


def test_a_new_member_waits_for_its_first_generation_for_five_minutes() -> None:
    room, (a,) = together("a")
    (member,) = room.group.members.values()
    member.rebalance_timeout_ms = 900_000
    assert room.join("b", known=True, rebalance_ms=900_000) is None
    for _ in range(100):
        room.sleep(3_000)
        room.beat(a)
    assert room.joins["b"][-1].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(room.group.members) == [a]


def test_transactions_commit_offsets_in_any_state() -> None:
    """TxnOffsetCommit: old versions name no member; newer ones are held to the generation."""
    room, (a, _b) = together("a", "b")
    group = room.group

    def allowed(member_id: str, generation: int) -> ErrorCode:
        return group.commit_allowed(member_id, None, generation, room.now, transactional=True)

    assert allowed("", -1) is NONE
    assert allowed(a, 1) is NONE
    assert allowed(a, 0) is ErrorCode.ILLEGAL_GENERATION
    assert allowed("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    room.join("c", known=True)
    for member_id in group.members:
        room.join(member_id[0], member_id)
    assert group.state is GroupState.COMPLETING
    assert allowed(a, 2) is NONE


def test_wrong_generations_and_strangers() -> None:
    room, (a, _b) = together("a", "b")
    assert room.beat(a, 7) is ErrorCode.ILLEGAL_GENERATION
    assert room.beat("stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.leave("stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    stranger = room.join("s", "stranger")
    assert stranger is not None
    assert stranger.error is ErrorCode.UNKNOWN_MEMBER_ID
    wrong = room.sync("a", a, protocol="sticky")
    assert wrong is not None
    assert wrong.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_deleting_needs_an_empty_group() -> None:
    room = Room()
    (a,) = room.stable("a")
    assert room.group.delete() is ErrorCode.NON_EMPTY_GROUP
    room.leave(a)
    assert room.group.state is GroupState.EMPTY
    assert room.group.delete() is NONE
    assert room.group.state is GroupState.DEAD
    dead = room.join("b", known=True)
    assert dead is not None
    assert dead.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


class TestStaticMembers:
    """Pitfall 36, KIP-345."""

    def test_a_restart_keeps_the_place_without_a_rebalance(self) -> None:
        room, (a, b) = together("a", "b", instances=True)
        back = room.join("b", instance="i-b")
        assert back is not None
        assert back.error is NONE
        assert back.member_id != b
        assert back.generation_id == 1
        assert room.group.state is GroupState.STABLE
        synced = room.sync("b", back.member_id, instance="i-b")
        assert synced is not None
        assert synced.assignment == b.encode()
        assert set(room.group.members) == {a, back.member_id}

    def test_the_old_incarnation_is_fenced(self) -> None:
        room, (_a, b) = together("a", "b", instances=True)
        room.join("b", instance="i-b")
        group = room.group
        assert group.heartbeat(b, "i-b", 1, room.now) is ErrorCode.FENCED_INSTANCE_ID
        assert group.commit_allowed(b, "i-b", 1, room.now) is ErrorCode.FENCED_INSTANCE_ID
        assert room.leave(b, "i-b") is ErrorCode.FENCED_INSTANCE_ID

    def test_a_restarted_leader_is_not_told_that_it_leads(self) -> None:
        room, (a, _b) = together("a", "b", instances=True)
        back = room.join("a", instance="i-a")
        assert back is not None
        assert back.leader == a
        assert back.members == ()
        assert room.group.leader == back.member_id

    def test_a_restarted_leader_may_skip_the_assignment(self) -> None:
        """KIP-814."""
        room, _ = together("a", "b", instances=True)
        back = room.join("a", instance="i-a", skipping=True)
        assert back is not None
        assert back.leader == back.member_id
        assert back.skip_assignment
        assert len(back.members) == 2

    def test_a_restart_with_another_subscription_keeps_the_protocol_and_stays(self) -> None:
        room, _ = together("a", "b", instances=True)
        back = room.join("b", instance="i-b", protocols=(("range", b"new"),), session_ms=20_000)
        assert back is not None
        assert room.group.members[back.member_id].session_timeout_ms == 20_000, "KAFKA-14009"

    def test_a_return_begins_a_session(self) -> None:
        room, (a, _b) = together("a", "b", instances=True)
        room.sleep(SESSION_MS - 1)
        room.group.heartbeat(a, "i-a", 1, room.now)
        back = room.join("b", instance="i-b")
        assert back is not None
        room.sleep(SESSION_MS - 1)
        assert back.member_id in room.group.members

    def test_who_returns_before_its_sync_has_to_sync_under_its_new_id(self) -> None:
        room = Room(delay_ms=1_000)
        for label in "ab":
            room.join(label, known=True, instance=f"i-{label}", rebalance_ms=6_000)
        room.sleep(3_000)
        a, b = (room.joins[label][0].member_id for label in "ab")
        room.sync("a", a, instance="i-a", assignments={a: b"1", b: b"2"})
        assert room.group.state is GroupState.STABLE
        back = room.join("b", instance="i-b", rebalance_ms=6_000)
        assert back is not None
        assert back.error is NONE
        room.sleep(6_000)
        assert back.member_id not in room.group.members
        assert a in room.group.members

    def test_they_need_no_id_beforehand(self) -> None:
        room = Room()
        joined = room.join("a", instance="i-a", known=False)
        assert joined is not None
        assert joined.error is NONE

    def test_a_return_during_the_join_is_a_join(self) -> None:
        room, (a, b) = together("a", "b", instances=True)
        assert room.join("a", a, instance="i-a", protocols=(("range", b"new"),)) is None
        room.join("a", instance="i-a")
        assert room.joins["a"][-1].error is ErrorCode.FENCED_INSTANCE_ID
        assert room.joins["a"][-1].member_id == a
        room.join("b", instance="i-b")
        assert room.joins["b"][-1].generation_id == 2
        assert b not in room.group.members

    def test_a_restart_that_changes_the_protocol_rebalances(self) -> None:
        room, (a, _b) = together("a", "b", instances=True)
        assert room.group.protocol_name == "range"
        assert room.join("b", instance="i-b", protocols=(("roundrobin", b"new"),)) is None
        assert room.group.state is GroupState.PREPARING
        room.join("a", a, instance="i-a")
        assert room.joins["b"][-1].generation_id == 2
        assert room.group.protocol_name == "roundrobin"

    def test_a_restart_while_the_leader_assigns_rebalances(self) -> None:
        """KAFKA-9801."""
        room = Room(delay_ms=1_000)
        room.join("a", known=True, instance="i-a")
        room.join("b", known=True, instance="i-b")
        room.sleep(3_000)
        b = room.joins["b"][0].member_id
        room.sync("b", b, instance="i-b")
        assert room.join("b", instance="i-b") is None
        assert room.syncs["b"][0].error is ErrorCode.FENCED_INSTANCE_ID
        assert room.group.state is GroupState.PREPARING

    def test_the_rebalance_timeout_does_not_remove_them(self) -> None:
        """KAFKA-8220: only the session does."""
        room = Room(delay_ms=1_000)
        room.join("a", known=True, instance="i-a", session_ms=600_000, rebalance_ms=5_000)
        room.join("b", known=True, instance="i-b", session_ms=600_000, rebalance_ms=5_000)
        room.sleep(3_000)
        a, b = (room.joins[x][0].member_id for x in "ab")
        room.sync("b", b, instance="i-b")
        room.sync("a", a, instance="i-a", assignments={a: b"", b: b""})
        room.join(
            "a",
            a,
            instance="i-a",
            protocols=(("range", b"new"),),
            session_ms=600_000,
            rebalance_ms=5_000,
        )
        room.sleep(5_000)
        assert room.joins["a"][-1].generation_id == 2
        assert b in room.group.members

    def test_a_return_that_cannot_be_stored_is_undone(self) -> None:
        """Nobody learns an id that a broker which starts again would not know."""
        room, (_a, b) = together("a", "b", instances=True)
        room.store_error = ErrorCode.NOT_COORDINATOR
        room.group.roster.take_changes()
        back = room.join("b", instance="i-b", session_ms=20_000)
        assert back is not None
        assert back.error is ErrorCode.NOT_COORDINATOR
        assert room.group.roster.take_changes() == ([], [])
        assert room.group.members[b].session_timeout_ms == SESSION_MS
        assert room.group.heartbeat(b, "i-b", 1, room.now) is NONE
        room.store_error = NONE
        again = room.join("b", instance="i-b")
        assert again is not None
        assert again.error is NONE
        assert room.group.heartbeat(b, "i-b", 1, room.now) is ErrorCode.FENCED_INSTANCE_ID

    def test_one_cannot_slip_in_under_an_id_that_was_handed_out(self) -> None:
        room, (a, b) = together("a", "b", instances=True)
        required = room.join("c")
        assert required is not None
        refused = room.join("c", required.member_id, instance="i-b")
        assert refused is not None
        assert refused.error is ErrorCode.FENCED_INSTANCE_ID
        assert set(room.group.members) == {a, b}

    def test_an_admin_removes_them_by_instance(self) -> None:
        room, (a, _b) = together("a", "b", instances=True)
        assert room.leave("", "i-b") is NONE
        assert list(room.group.members) == [a]
        assert room.leave("", "i-b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restored_group_goes_on_with_fresh_sessions() -> None:
    room, (a, b) = together("a", "b", instances=True)
    stored = room.group.stored(123)
    other = Group("g", GroupLimits())
    other.restore(stored, 50.0)
    assert other.state is GroupState.STABLE
    assert other.generation_id == 1
    assert other.heartbeat(a, "i-a", 1, 60.0) is NONE
    assert other.static_ids == {"i-a": a, "i-b": b}
    assert other.next_deadline_ms() == 50.0 + SESSION_MS


def test_waiters_are_called_by_effects_only() -> None:
    """Rule: the machine itself calls nothing; the caller decides when."""
    called: list[JoinResult] = []
    group = Group("g", GroupLimits(0))
    waiter: Callable[[JoinResult], None] = called.append
    request = JoinRequest("", None, "a-1", "a", "/h", 10_000, 10_000, "consumer", (("r", b""),))
    effects = group.join(request, waiter, 0)
    assert not called
    assert len(effects) == 1
