"""The coordinator and its internal topic on a simulated disk, and what a kill leaves of them."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from group_house import NONE, House

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
    house = House()
    assert house.commit("g", 5) is NONE
    assert house.commit("g", 7) is NONE
    assert house.commit("h", 1) is NONE
    house = house.after_a_kill()
    assert house.committed("g") == 7
    assert house.committed("h") == 1
    assert house.groups.offsets.of("g")["t", 0].leader_epoch == 3


def test_a_generation_survives_a_kill_with_its_members() -> None:
    house = House()
    member = house.stable("g")
    house = house.after_a_kill()
    assert house.groups.heartbeat("g", member, None, 1) is NONE
    assert house.commit("g", 9, generation=1, member=member) is NONE
    house.clock.advance(10_001)
    assert house.groups.heartbeat("g", member, None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    group = house.groups.group("g")
    assert group is not None
    assert group.state is GroupState.EMPTY


def test_a_commit_that_cannot_be_written_is_not_taken() -> None:
    house = House()
    house.commit("g", 5)
    index = house.store.partition_of("g")
    house.replicas.partition(OFFSETS_TOPIC, index).log.fail("for the test")
    with pytest.raises(KafkaError) as refused:
        house.commit("g", 6)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    house = house.after_a_kill()
    assert house.committed("g") == 5


def test_an_assignment_that_cannot_be_written_reaches_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House()
    required = house.join("g")
    assert required is not None
    joined = house.join("g", required.member_id)
    assert joined is not None

    def full(group_id: str, changes: object) -> None:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)

    monkeypatch.setattr(house.store, "write", full)
    answers: list[SyncResult] = []
    request = SyncRequest(joined.member_id, None, 1, None, None, {joined.member_id: b"x"})
    house.groups.sync("g", request, answers.append)
    assert [a.error for a in answers] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    group = house.groups.group("g")
    assert group is not None
    assert group.state is GroupState.PREPARING


def test_a_group_whose_records_cannot_be_read_is_not_unknown() -> None:
    """Pitfall 38: nobody is told UNKNOWN_MEMBER_ID, or -1, and begins anew."""
    house = House()
    house.commit("g", 5)
    member = house.stable("g")
    other = next(
        name for name in "hijkl" if house.store.partition_of(name) != house.store.partition_of("g")
    )
    assert house.commit(other, 6) is NONE
    index = house.store.partition_of("g")
    house.replicas.partition(OFFSETS_TOPIC, index).log.fail("for the test")
    ask: list[Callable[[], object]] = [
        lambda: house.groups.offsets.of("g"),
        lambda: house.groups.heartbeat("g", member, None, 1),
        lambda: house.groups.leave("g", [(member, None)]),
        lambda: house.join("g", member),
        lambda: house.groups.group("g"),
        lambda: house.groups.offsets.delete("g", []),
    ]
    for question in ask:
        with pytest.raises(KafkaError) as refused:
            question()
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert house.groups.delete("g") is ErrorCode.NOT_COORDINATOR
    assert [g.group_id for g in house.groups.groups()] == [other]
    assert house.committed(other) == 6
    house.clock.advance(120_000)
    house.groups.expire()
    assert house.committed(other) is None


def test_a_partition_that_breaks_off_is_not_half_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall 38: what was read before the fault may be what was true long ago."""
    house = House()
    house.commit("g", 5)
    house.commit("g", 7)
    whole = OffsetsTopic._change

    def torn(partition: Partition, record: Record) -> object:
        if record.offset == 1:
            raise DecodeError("torn")
        return whole(partition, record)

    monkeypatch.setattr(OffsetsTopic, "_change", staticmethod(torn))
    house = house.after_a_kill()
    with pytest.raises(KafkaError) as refused:
        house.committed("g")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


def test_a_topic_of_ours_that_retention_deletes_from_is_named_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House()
    house.commit("g", 5)
    for policy, is_said in (("delete", True), ("compact,delete", True), ("compact", False)):
        house.replicas.set_configs(OFFSETS_TOPIC, {"cleanup.policy": policy})
        caplog.clear()
        house = house.after_a_kill()
        said = [r.getMessage() for r in caplog.records if "retention deletes" in r.getMessage()]
        assert bool(said) is is_said
        assert all(f"{OFFSETS_TOPIC} has cleanup.policy={policy}:" in text for text in said)


def test_commit_rules() -> None:
    house = House()
    assert house.commit("g", 1, generation=4, member="m") is ErrorCode.ILLEGAL_GENERATION
    member = house.stable("g")
    assert house.commit("g", 1) is ErrorCode.UNKNOWN_MEMBER_ID, "pitfall 39"
    assert house.commit("g", 1, generation=2, member=member) is ErrorCode.ILLEGAL_GENERATION
    assert house.commit("g", 1, generation=1, member=member) is NONE
    long = {("t", 0): CommittedOffset(1, -1, "x" * 11, 0), ("t", 1): CommittedOffset(2, -1, "", 0)}
    codes = house.groups.offsets.commit("g", member, None, 1, long)
    assert codes == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE, ("t", 1): NONE}


def test_metadata_of_offsets_has_a_limit() -> None:
    house = House()
    for length, expected in ((10, NONE), (11, ErrorCode.OFFSET_METADATA_TOO_LARGE)):
        given = {("t", 0): CommittedOffset(length, -1, "m" * length, house.clock.now_ms())}
        assert house.groups.offsets.commit("g", "", None, -1, given) == {("t", 0): expected}
    assert house.committed("g") == 10


def test_unknown_groups() -> None:
    house = House()
    assert house.groups.offsets.of("nobody") == {}
    assert house.groups.delete("nobody") is ErrorCode.GROUP_ID_NOT_FOUND
    assert house.groups.heartbeat("nobody", "m", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert house.groups.leave("nobody", [("m", None)]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    with pytest.raises(KafkaError) as refused:
        house.groups.heartbeat("", "m", None, 1)
    assert refused.value.code is ErrorCode.INVALID_GROUP_ID


def test_a_stable_group_keeps_the_offsets_of_what_it_subscribes_to() -> None:
    """KIP-211: the others expire by their own age; a group that is joining keeps everything."""
    house = House()
    member = house.stable("g", topics=["t"])
    for topic in ("t", "u"):
        given = {(topic, 0): CommittedOffset(1, -1, "", house.clock.now_ms())}
        assert set(house.groups.offsets.commit("g", member, None, 1, given).values()) == {NONE}
    for _ in range(13):
        house.clock.advance(5_000)
        assert house.groups.heartbeat("g", member, None, 1) is NONE
    assert house.join("g") is not None, "an id was handed out: that is no rebalance"
    house.groups.expire()
    assert set(house.groups.offsets.of("g")) == {("t", 0)}
    codes = house.groups.offsets.delete("g", [("t", 0), ("u", 0)])
    assert codes == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): NONE}


def test_a_group_whose_subscription_nobody_understands_keeps_everything() -> None:
    house = House()
    member = house.stable("g")
    house.commit("g", 5, generation=1, member=member)
    for _ in range(13):
        house.clock.advance(5_000)
        assert house.groups.heartbeat("g", member, None, 1) is NONE
    house.groups.expire()
    assert house.committed("g") == 5
    codes = house.groups.offsets.delete("g", [("t", 0)])
    assert codes == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_groups_that_are_no_consumers_cannot_have_offsets_deleted_while_they_live() -> None:
    house = House()
    member = house.stable("connect", protocol_type="connect")
    with pytest.raises(KafkaError) as refused:
        house.groups.offsets.delete("connect", [("t", 0)])
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    house.groups.leave("connect", [(member, None)])
    assert house.groups.offsets.delete("connect", [("t", 0)]) == {("t", 0): NONE}


def test_an_old_clients_own_retention_time_counts() -> None:
    """OffsetCommit v2-v4, as in Kafka; it survives a kill."""
    house = House()
    now_ms = house.clock.now_ms()
    short, long = (CommittedOffset(1, -1, "", now_ms, now_ms + ms) for ms in (1_000, 600_000))
    house.groups.offsets.commit("g", "", None, -1, {("t", 0): short, ("t", 1): long})
    house = house.after_a_kill()
    house.clock.advance(120_000)
    house.groups.expire()
    assert set(house.groups.offsets.of("g")) == {("t", 1)}


def test_a_member_of_a_group_that_is_gone() -> None:
    house = House()
    place = {("t", 0): CommittedOffset(1, -1, "", 0)}
    codes = house.groups.offsets.commit(
        "gone", "m", None, 3, place, unknown_group=ErrorCode.GROUP_ID_NOT_FOUND
    )
    assert codes == {("t", 0): ErrorCode.GROUP_ID_NOT_FOUND}
    assert house.groups.group("gone") is None


def test_deleted_groups_stay_deleted_after_a_kill() -> None:
    house = House()
    house.commit("g", 5)
    member = house.stable("h")
    assert house.groups.delete("h") is ErrorCode.NON_EMPTY_GROUP
    assert house.groups.leave("h", [(member, None)]) == [NONE]
    assert house.groups.delete("g") is house.groups.delete("h") is NONE
    house = house.after_a_kill()
    assert house.groups.groups() == []
    assert house.committed("g") is None


def test_offsets_of_a_deleted_topic_are_deleted() -> None:
    """Pitfall 48: also by those who replay."""
    house = House()
    house.commit("g", 5)
    house.groups.offsets.remove_topic("t")
    assert house.committed("g") is None
    assert house.after_a_kill().committed("g") is None


def test_a_group_that_cannot_be_written_keeps_no_other_from_its_end() -> None:
    house = House()
    house.commit("g", 5)
    others = [name for name in "hijkl" if house.store.partition_of(name) != index_of(house, "g")]
    for name in others:
        house.commit(name, 5)

    def fail() -> None:
        path = f"{OFFSETS_TOPIC}-{index_of(house, 'g')}/0"
        house.files.fail("write", errno.ENOSPC, path_part=path)

    fail()
    with pytest.raises(KafkaError):
        house.groups.offsets.remove_topic("t")
    assert [house.committed(name) for name in ("g", *others)] == [5] + [None] * len(others)
    for name in others:
        house.commit(name, 6)
    house.clock.advance(60_000)
    fail()
    house.groups.expire()
    assert [group.group_id for group in house.groups.groups()] == ["g"]
    assert house.committed("g") == 5
    house.groups.expire()
    assert house.groups.groups() == []


def index_of(house: House, group: str) -> int:
    return house.store.partition_of(group)


def test_offsets_of_empty_groups_expire_and_those_of_others_do_not() -> None:
    house = House()
    house.commit("g", 5)
    member = house.stable("h")
    house.commit("h", 6, generation=1, member=member)
    for _ in range(13):
        house.clock.advance(5_000)
        assert house.groups.heartbeat("h", member, None, 1) is NONE
    house.groups.expire()
    assert house.committed("g") is None
    assert house.committed("h") == 6
    house.groups.leave("h", [(member, None)])
    house.groups.expire()
    assert house.committed("h") == 6, "empty only now"
    house.clock.advance(60_001)
    house.groups.expire()
    assert house.groups.groups() == []
    assert house.after_a_kill().groups.groups() == []


def test_a_long_history_is_replayed_to_its_end() -> None:
    """Of each key the last record counts, tombstones too, whatever stood between them."""
    house = House()
    house.stable("m")
    for number in range(400):
        house.commit("g", number)
        house.commit("h", number)
        if number == 200:
            house.groups.delete("h")
    house.groups.offsets.remove_topic("t")
    house.commit("g", 1_000)
    house = house.after_a_kill()
    assert house.committed("g") == 1_000
    assert house.committed("h") is None
    group = house.groups.group("m")
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
        house = House(limits=GroupLimits(initial_rebalance_delay_ms=1_000))
        ids: list[str] = []

        def join() -> None:
            required = house.join("g")
            assert required is not None
            house.join("g", required.member_id)
            ids.append(required.member_id)

        for _ in range(members):
            join()
        if joining:
            return steps(join)
        house.clock.advance(10_000)
        group = house.groups.group("g")
        assert group is not None
        assert group.state is GroupState.COMPLETING
        house.join("g", ids[0], metadata=b"new")
        return steps(lambda: house.join("g", ids[1], metadata=b"new"))

    assert cost(300) < 2 * cost(10)


def test_a_member_that_falls_silent_is_noticed_by_its_timer() -> None:
    house = House()
    house.stable("g")
    house.clock.advance(9_999)
    group = house.groups.group("g")
    assert group is not None
    assert group.state is GroupState.STABLE
    house.clock.advance(2)
    assert group.state is GroupState.EMPTY
