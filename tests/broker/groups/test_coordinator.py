"""The coordinator and its internal topic on a simulated disk, and what a kill leaves of them."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from group_harness import NONE, Harness

from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.members import (
    GroupLimits,
    SyncRequest,
    SyncResult,
)
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.groups.offsets import OffsetsTopic
from penstock_broker.groups.states import GroupState
from penstock_broker.replication.partition import Partition
from penstock_broker.wire.errors import DecodeError
from penstock_broker.wire.records import Record


def test_commits_survive_a_kill() -> None:
    harness = Harness()
    assert harness.commit("g", 5) is NONE
    assert harness.commit("g", 7) is NONE
    assert harness.commit("h", 1) is NONE
    harness = harness.after_a_kill()
    assert harness.committed("g") == 7
    assert harness.committed("h") == 1
    assert harness.groups.offsets.of("g")["t", 0].leader_epoch == 3


def test_a_generation_survives_a_kill_with_its_members() -> None:
    harness = Harness()
    member = harness.stable("g")
    harness = harness.after_a_kill()
    assert harness.groups.heartbeat("g", member, None, 1) is NONE
    assert harness.commit("g", 9, generation=1, member=member) is NONE
    harness.clock.advance(10_001)
    assert harness.groups.heartbeat("g", member, None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    group = harness.groups.group("g")
    assert group is not None
    assert group.state is GroupState.EMPTY


def test_a_commit_that_cannot_be_written_is_not_taken() -> None:
    harness = Harness()
    harness.commit("g", 5)
    index = harness.store.partition_of("g")
    harness.replicas.partition(OFFSETS_TOPIC, index).log.fail("for the test")
    with pytest.raises(KafkaError) as refused:
        harness.commit("g", 6)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    harness = harness.after_a_kill()
    assert harness.committed("g") == 5


def test_an_assignment_that_cannot_be_written_reaches_no_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness()
    required = harness.join("g")
    assert required is not None
    joined = harness.join("g", required.member_id)
    assert joined is not None

    def full(group_id: str, changes: object) -> None:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)

    monkeypatch.setattr(harness.store, "write", full)
    answers: list[SyncResult] = []
    request = SyncRequest(joined.member_id, None, 1, None, None, {joined.member_id: b"x"})
    harness.groups.sync("g", request, answers.append)
    assert [a.error for a in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    group = harness.groups.group("g")
    assert group is not None
    assert group.state is GroupState.PREPARING


def test_a_group_whose_records_cannot_be_read_is_not_unknown() -> None:
    """Pitfall 38: no member gets UNKNOWN_MEMBER_ID, or the offset -1, and starts over."""
    harness = Harness()
    harness.commit("g", 5)
    member = harness.stable("g")
    other = next(
        name
        for name in "hijkl"
        if harness.store.partition_of(name) != harness.store.partition_of("g")
    )
    assert harness.commit(other, 6) is NONE
    index = harness.store.partition_of("g")
    harness.replicas.partition(OFFSETS_TOPIC, index).log.fail("for the test")
    ask: list[Callable[[], object]] = [
        lambda: harness.groups.offsets.of("g"),
        lambda: harness.groups.heartbeat("g", member, None, 1),
        lambda: harness.groups.leave("g", [(member, None)]),
        lambda: harness.join("g", member),
        lambda: harness.groups.group("g"),
        lambda: harness.groups.offsets.delete("g", []),
    ]
    for question in ask:
        with pytest.raises(KafkaError) as refused:
            question()
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert harness.groups.delete("g") is ErrorCode.NOT_COORDINATOR
    assert [g.group_id for g in harness.groups.groups()] == [other]
    assert harness.committed(other) == 6
    harness.clock.advance(120_000)
    harness.groups.expire()
    assert harness.committed(other) is None


def test_a_partition_that_breaks_off_is_not_half_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall 38: what was read before the fault may be what was true long ago."""
    harness = Harness()
    harness.commit("g", 5)
    harness.commit("g", 7)
    whole = OffsetsTopic._change

    def torn(partition: Partition, record: Record) -> object:
        if record.offset == 1:
            raise DecodeError("torn")
        return whole(partition, record)

    monkeypatch.setattr(OffsetsTopic, "_change", staticmethod(torn))
    harness = harness.after_a_kill()
    with pytest.raises(KafkaError) as refused:
        harness.committed("g")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


def test_a_topic_of_ours_that_retention_deletes_from_is_named_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness()
    harness.commit("g", 5)
    for policy, is_said in (("delete", True), ("compact,delete", True), ("compact", False)):
        harness.replicas.set_configs(OFFSETS_TOPIC, {"cleanup.policy": policy})
        caplog.clear()
        harness = harness.after_a_kill()
        said = [r.getMessage() for r in caplog.records if "retention deletes" in r.getMessage()]
        assert bool(said) is is_said
        assert all(f"{OFFSETS_TOPIC} has cleanup.policy={policy}:" in text for text in said)


def test_commit_rules() -> None:
    harness = Harness()
    assert harness.commit("g", 1, generation=4, member="m") is ErrorCode.ILLEGAL_GENERATION
    member = harness.stable("g")
    assert harness.commit("g", 1) is ErrorCode.UNKNOWN_MEMBER_ID, "pitfall 39"
    assert harness.commit("g", 1, generation=2, member=member) is ErrorCode.ILLEGAL_GENERATION
    assert harness.commit("g", 1, generation=1, member=member) is NONE
    long = {("t", 0): CommittedOffset(1, -1, "x" * 11, 0), ("t", 1): CommittedOffset(2, -1, "", 0)}
    codes = harness.groups.offsets.commit("g", member, None, 1, long)
    assert codes == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE, ("t", 1): NONE}


def test_metadata_of_offsets_has_a_limit() -> None:
    harness = Harness()
    for length, expected in ((10, NONE), (11, ErrorCode.OFFSET_METADATA_TOO_LARGE)):
        given = {("t", 0): CommittedOffset(length, -1, "m" * length, harness.clock.now_ms())}
        assert harness.groups.offsets.commit("g", "", None, -1, given) == {("t", 0): expected}
    assert harness.committed("g") == 10


def test_unknown_groups() -> None:
    harness = Harness()
    assert harness.groups.offsets.of("unknown") == {}
    assert harness.groups.delete("unknown") is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.groups.heartbeat("unknown", "m", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.groups.leave("unknown", [("m", None)]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    with pytest.raises(KafkaError) as refused:
        harness.groups.heartbeat("", "m", None, 1)
    assert refused.value.code is ErrorCode.INVALID_GROUP_ID


def test_a_stable_group_keeps_the_offsets_of_what_it_subscribes_to() -> None:
    """KIP-211: the others expire by their own age; a group that is joining keeps everything."""
    harness = Harness()
    member = harness.stable("g", topics=["t"])
    for topic in ("t", "u"):
        given = {(topic, 0): CommittedOffset(1, -1, "", harness.clock.now_ms())}
        assert set(harness.groups.offsets.commit("g", member, None, 1, given).values()) == {NONE}
    for _ in range(13):
        harness.clock.advance(5_000)
        assert harness.groups.heartbeat("g", member, None, 1) is NONE
    assert harness.join("g") is not None, "an id was handed out: that is no rebalance"
    harness.groups.expire()
    assert set(harness.groups.offsets.of("g")) == {("t", 0)}
    codes = harness.groups.offsets.delete("g", [("t", 0), ("u", 0)])
    assert codes == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): NONE}
    given = {("u", 0): CommittedOffset(1, -1, "", harness.clock.now_ms())}
    harness.groups.offsets.commit("g", member, None, 1, given)
    end = harness.log_end("g")
    harness.groups.offsets.delete("g", [("t", 0), ("u", 0), ("u", 1)])
    assert set(harness.groups.offsets.of("g")) == {("t", 0)}
    assert harness.log_end("g") == end + 1, "nothing is written where there is nothing"


def test_a_group_with_an_unreadable_subscription_keeps_everything() -> None:
    harness = Harness()
    member = harness.stable("g")
    harness.commit("g", 5, generation=1, member=member)
    for _ in range(13):
        harness.clock.advance(5_000)
        assert harness.groups.heartbeat("g", member, None, 1) is NONE
    harness.groups.expire()
    assert harness.committed("g") == 5
    codes = harness.groups.offsets.delete("g", [("t", 0)])
    assert codes == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_groups_that_are_no_consumers_cannot_have_offsets_deleted_while_they_live() -> None:
    harness = Harness()
    member = harness.stable("connect", protocol_type="connect")
    with pytest.raises(KafkaError) as refused:
        harness.groups.offsets.delete("connect", [("t", 0)])
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    harness.groups.leave("connect", [(member, None)])
    assert harness.groups.offsets.delete("connect", [("t", 0)]) == {("t", 0): NONE}


def test_an_old_clients_own_retention_time_counts() -> None:
    """OffsetCommit v2-v4, as in Kafka; it survives a kill."""
    harness = Harness()
    now_ms = harness.clock.now_ms()
    short, long = (CommittedOffset(1, -1, "", now_ms, now_ms + ms) for ms in (1_000, 600_000))
    harness.groups.offsets.commit("g", "", None, -1, {("t", 0): short, ("t", 1): long})
    harness = harness.after_a_kill()
    harness.clock.advance(120_000)
    harness.groups.expire()
    assert set(harness.groups.offsets.of("g")) == {("t", 1)}


def test_a_member_of_a_group_that_is_gone() -> None:
    harness = Harness()
    place = {("t", 0): CommittedOffset(1, -1, "", 0)}
    codes = harness.groups.offsets.commit(
        "gone", "m", None, 3, place, unknown_group=ErrorCode.GROUP_ID_NOT_FOUND
    )
    assert codes == {("t", 0): ErrorCode.GROUP_ID_NOT_FOUND}
    assert harness.groups.group("gone") is None


def test_deleted_groups_stay_deleted_after_a_kill() -> None:
    harness = Harness()
    harness.commit("g", 5)
    member = harness.stable("h")
    assert harness.groups.delete("h") is ErrorCode.NON_EMPTY_GROUP
    assert harness.groups.leave("h", [(member, None)]) == [NONE]
    assert harness.groups.delete("g") is harness.groups.delete("h") is NONE
    harness = harness.after_a_kill()
    assert harness.groups.groups() == []
    assert harness.committed("g") is None


def test_offsets_of_a_deleted_topic_are_deleted() -> None:
    """Pitfall 48: also by those who replay."""
    harness = Harness()
    harness.commit("g", 5)
    other = {("u", 0): CommittedOffset(1, -1, "", harness.clock.now_ms())}
    harness.groups.offsets.commit("g", "", None, -1, other)
    harness.groups.offsets.remove_topic("t")
    for after in (harness, harness.after_a_kill()):
        assert set(after.groups.offsets.of("g")) == {("u", 0)}


def test_a_group_that_cannot_be_written_keeps_no_other_from_its_end() -> None:
    harness = Harness()
    harness.commit("g", 5)
    others = [
        name for name in "hijkl" if harness.store.partition_of(name) != index_of(harness, "g")
    ]
    for name in others:
        harness.commit(name, 5)

    def fail() -> None:
        path = f"{OFFSETS_TOPIC}-{index_of(harness, 'g')}/0"
        harness.files.fail("write", errno.ENOSPC, path_part=path)

    fail()
    with pytest.raises(KafkaError):
        harness.groups.offsets.remove_topic("t")
    assert [harness.committed(name) for name in ("g", *others)] == [5] + [None] * len(others)
    for name in others:
        harness.commit(name, 6)
    harness.clock.advance(60_000)
    fail()
    harness.groups.expire()
    assert [group.group_id for group in harness.groups.groups()] == ["g"]
    assert harness.committed("g") == 5
    harness.groups.expire()
    assert harness.groups.groups() == []


def index_of(harness: Harness, group: str) -> int:
    return harness.store.partition_of(group)


def test_offsets_of_empty_groups_expire_and_those_of_others_do_not() -> None:
    harness = Harness()
    harness.commit("g", 5)
    member = harness.stable("h")
    harness.commit("h", 6, generation=1, member=member)
    for _ in range(13):
        harness.clock.advance(5_000)
        assert harness.groups.heartbeat("h", member, None, 1) is NONE
    harness.groups.expire()
    assert harness.committed("g") is None
    assert harness.committed("h") == 6
    harness.groups.leave("h", [(member, None)])
    harness.groups.expire()
    assert harness.committed("h") == 6, "empty only now"
    harness.clock.advance(60_001)
    harness.groups.expire()
    assert harness.groups.groups() == []
    assert harness.after_a_kill().groups.groups() == []


def test_a_long_history_is_replayed_to_its_end() -> None:
    """Of each key the last record counts, tombstones too, whatever is between them."""
    harness = Harness()
    harness.stable("m")
    for number in range(400):
        harness.commit("g", number)
        harness.commit("h", number)
        if number == 200:
            harness.groups.delete("h")
    harness.groups.offsets.remove_topic("t")
    harness.commit("g", 1_000)
    harness = harness.after_a_kill()
    assert harness.committed("g") == 1_000
    assert harness.committed("h") is None
    group = harness.groups.group("m")
    assert group is not None
    assert group.state is GroupState.STABLE


def steps(work: Callable[[], object]) -> int:
    """How many bytecodes a call takes: what it costs, whatever the machine is doing."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> object:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("joining", [True, False])
def test_a_join_costs_the_same_in_a_large_group(joining: bool) -> None:
    """While a group gathers, and when members return to one that rebalances."""

    def cost(members: int) -> int:
        harness = Harness(limits=GroupLimits(initial_rebalance_delay_ms=1_000))
        ids: list[str] = []

        def join() -> None:
            required = harness.join("g")
            assert required is not None
            harness.join("g", required.member_id)
            ids.append(required.member_id)

        for _ in range(members):
            join()
        if joining:
            return steps(join)
        harness.clock.advance(10_000)
        group = harness.groups.group("g")
        assert group is not None
        assert group.state is GroupState.COMPLETING
        harness.join("g", ids[0], metadata=b"new")
        return steps(lambda: harness.join("g", ids[1], metadata=b"new"))

    assert cost(300) < 2 * cost(10)


def test_a_member_that_falls_silent_is_noticed_by_its_timer() -> None:
    harness = Harness()
    harness.stable("g")
    harness.clock.advance(9_999)
    group = harness.groups.group("g")
    assert group is not None
    assert group.state is GroupState.STABLE
    harness.clock.advance(2)
    assert group.state is GroupState.EMPTY
