"""What is committed, and when it ends: requests that fail, times, and what is counted."""

from __future__ import annotations

import errno

import pytest
from group_harness import NONE, Harness, subscription

from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.committed_offsets import OffsetLimits
from penstock_broker.groups.coordinator import CoordinatorLimits
from penstock_broker.groups.members import GroupLimits
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.groups.states import GroupState

RETENTION_MS = 60_000
"""Of the harness."""

Place = tuple[str, int]


def commit_all(harness: Harness, group: str, *topics: str, member: str = "") -> None:
    """An offset of each topic, written now."""
    given: dict[Place, CommittedOffset] = {
        (topic, 0): CommittedOffset(1, -1, "", harness.clock.now_ms()) for topic in topics
    }
    generation = 1 if member else -1
    codes = harness.groups.offsets.commit(group, member, None, generation, given)
    assert set(codes.values()) == {NONE}


def state(harness: Harness, group: str = "g") -> GroupState:
    found = harness.groups.group(group)
    assert found is not None
    return found.state


def keep_alive(harness: Harness, member: str, milliseconds: int) -> None:
    for _ in range(0, milliseconds, 5_000):
        harness.clock.advance(5_000)
        assert harness.groups.heartbeat("g", member, None, 1) is NONE


# -- requests ------------------------------------------------------------------------------------


def test_limits_are_those_of_kafka_where_nothing_else_is_said() -> None:
    assert OffsetLimits() == OffsetLimits(4_096, 7 * 24 * 3_600_000)
    assert CoordinatorLimits() == CoordinatorLimits(
        offset_metadata_bytes_max=4_096,
        offsets_retention_ms=7 * 24 * 3_600_000,
        groups_max=100_000,
        bytes_max=268_435_456,
    )


def test_a_commit_that_the_disk_refuses_says_so_of_each_partition() -> None:
    harness = Harness()
    harness.commit("g", 5)
    given = {
        ("t", 0): CommittedOffset(6, -1, "", 0),
        ("t", 1): CommittedOffset(6, -1, "x" * 11, 0),
    }
    harness.files.fail("write", errno.ENOSPC, path_part=OFFSETS_TOPIC)
    assert harness.groups.offsets.commit("g", "", None, -1, given) == {
        ("t", 0): ErrorCode.NOT_COORDINATOR,
        ("t", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
    assert harness.committed("g") == 5
    assert harness.metrics.offset_commits.value == 1


def test_commits_are_counted_by_partition() -> None:
    harness = Harness()
    commit_all(harness, "g", "t", "u", "v")
    assert harness.metrics.offset_commits.value == 3


@pytest.mark.parametrize("generation", [0, 1])
def test_a_generation_of_an_unknown_group(generation: int) -> None:
    harness = Harness()
    code = harness.commit("g", 1, generation=generation, member="m")
    assert code is ErrorCode.ILLEGAL_GENERATION
    assert harness.groups.group("g") is None


def test_offsets_of_an_unknown_group_cannot_be_deleted() -> None:
    with pytest.raises(KafkaError) as refused:
        Harness().groups.offsets.delete("unknown", [("t", 0)])
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_whose_deletion_cannot_be_written_stays() -> None:
    harness = Harness()
    harness.commit("g", 5)
    harness.files.fail("write", errno.ENOSPC, path_part=OFFSETS_TOPIC)
    assert harness.groups.delete("g") is ErrorCode.NOT_COORDINATOR
    assert harness.committed("g") == 5
    assert harness.groups.delete("g") is NONE
    assert harness.groups.group("g") is None


def test_a_commit_is_a_sign_of_life() -> None:
    harness = Harness()
    harness.clock.advance(1_000_000)
    member = harness.stable("g")
    for _ in range(3):
        harness.clock.advance(9_000)
        assert harness.commit("g", 1, generation=1, member=member) is NONE
    harness.clock.advance(9_999)
    assert state(harness) is GroupState.STABLE
    harness.clock.advance(2)
    assert state(harness) is GroupState.EMPTY


# -- time ----------------------------------------------------------------------------------------


def test_an_offset_ends_at_its_time_and_not_before() -> None:
    harness = Harness()
    now_ms = harness.clock.now_ms()
    given = {
        ("own time", 0): CommittedOffset(1, -1, "", now_ms, now_ms + 1_000),
        ("no time", 0): CommittedOffset(1, -1, "", now_ms, 0),
        ("retention", 0): CommittedOffset(1, -1, "", now_ms),
    }
    harness.groups.offsets.commit("g", "", None, -1, given)

    def left() -> set[str]:
        harness.groups.expire()
        return {topic for topic, _ in harness.groups.offsets.of("g")}

    assert left() == {"own time", "retention"}
    harness.clock.advance(999)
    assert left() == {"own time", "retention"}
    harness.clock.advance(1)
    assert left() == {"retention"}
    harness.clock.advance(RETENTION_MS - 1_001)
    assert left() == {"retention"}
    harness.clock.advance(1)
    assert left() == set()
    assert harness.metrics.offsets_expired.value == 3


def test_a_group_that_was_never_stored_leaves_no_record_of_its_end() -> None:
    harness = Harness()
    harness.commit("g", 5)
    end = harness.log_end("g")
    harness.clock.advance(RETENTION_MS)
    harness.groups.expire()
    assert harness.log_end("g") == end + 1, "the offset's end, and no more"
    assert harness.groups.group("g") is None


def test_the_time_since_when_a_group_is_empty_survives_a_kill() -> None:
    harness = Harness()
    member = harness.stable("g")
    commit_all(harness, "g", "t", member=member)
    keep_alive(harness, member, 30_000)
    harness.groups.leave("g", [(member, None)])
    harness = harness.after_a_kill()
    harness.clock.advance(RETENTION_MS - 1)
    harness.groups.expire()
    assert set(harness.groups.offsets.of("g")) == {("t", 0)}
    harness.clock.advance(1)
    harness.groups.expire()
    assert harness.groups.group("g") is None
    assert harness.after_a_kill().groups.group("g") is None, "its end is written down"


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_a_group_that_gathers_or_is_no_consumer_keeps_all_offsets(protocol_type: str) -> None:
    """Kafka: only a stable group of consumers says what it subscribes to."""
    harness = Harness(limits=GroupLimits(initial_rebalance_delay_ms=0))
    topics = ["u"] if protocol_type == "consumer" else None
    member = harness.stable("g", protocol_type=protocol_type, topics=topics)
    commit_all(harness, "g", "t", "u", member=member)
    keep_alive(harness, member, RETENTION_MS)
    if protocol_type == "consumer":
        second = harness.join("g", metadata=subscription(["u"]))
        assert second is not None
        harness.join("g", second.member_id, metadata=subscription(["u"]))
        assert state(harness) is GroupState.PREPARING
    harness.groups.expire()
    assert set(harness.groups.offsets.of("g")) == {("t", 0), ("u", 0)}


def test_a_group_without_offsets_lives_as_long_as_it_has_members() -> None:
    harness = Harness()
    member = harness.stable("g")
    harness.groups.expire()
    assert harness.groups.heartbeat("g", member, None, 1) is NONE
    required = harness.join("h")
    assert required is not None
    harness.groups.expire()
    joined = harness.join("h", required.member_id)
    assert joined is not None
    assert joined.error is NONE, "an id that was handed out is a member to come"


def test_a_group_that_cannot_expire_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    harness.commit("g", 5)
    harness.clock.advance(RETENTION_MS)
    harness.files.fail("write", errno.ENOSPC, path_part=OFFSETS_TOPIC)
    harness.groups.expire()
    assert "group g does not expire yet: " in caplog.text
    assert harness.committed("g") == 5
