"""The coordinator and its internal topic on a simulated disk, and what a kill leaves of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from penstock_broker.cluster.metadata_store import LocalMetadataStore
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups import offsets as offsets_module
from penstock_broker.groups.coordinator import CoordinatorLimits, GroupCoordinator
from penstock_broker.groups.members import (
    GroupLimits,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.groups.offsets import OFFSETS_TOPIC, OffsetsTopic
from penstock_broker.groups.states import GroupState
from penstock_broker.log.manager import LogManager
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.testing import MemFiles, SimClock

NONE = ErrorCode.NONE
DATA = Path("/data")


class House:
    """A broker's storage and its coordinator, without a network."""

    def __init__(self, files: MemFiles | None = None, clock: SimClock | None = None) -> None:
        self.files = files or MemFiles()
        self.clock = clock or SimClock()
        config = BrokerConfig.parse({"offsets.topic.num.partitions": "2"})
        logs = LogManager(DATA, self.clock, self.files)
        logs.open()
        metadata = LocalMetadataStore(DATA / "metadata.json", self.files, self.clock, 0)
        self.replicas = ReplicaManager(config, metadata, logs)
        self.replicas.start()
        self.store = OffsetsTopic(
            config=config,
            clock=self.clock,
            metadata=metadata,
            replicas=self.replicas,
            create=lambda: self.replicas.create_topic(OFFSETS_TOPIC, 2, {}) and None,
        )
        numbers = itertools.count()
        self.groups = GroupCoordinator(
            clock=self.clock,
            timers=self.clock,
            store=self.store,
            group_limits=GroupLimits(initial_rebalance_delay_ms=0),
            limits=CoordinatorLimits(offset_metadata_bytes_max=10, offsets_retention_ms=60_000),
            new_id=lambda: str(next(numbers)),
        )
        self.groups.load(self.store.replay())

    def after_a_kill(self) -> House:
        return House(self.files.kill(), self.clock)

    def commit(
        self, group: str, offset: int, *, generation: int = -1, member: str = ""
    ) -> ErrorCode:
        given = {("t", 0): CommittedOffset(offset, 3, "", self.clock.now_ms())}
        return self.groups.commit(group, member, None, generation, given)["t", 0]

    def committed(self, group: str) -> int | None:
        found = self.groups.committed(group).get(("t", 0))
        return found.offset if found is not None else None

    def join(self, group: str, member_id: str = "") -> JoinResult | None:
        answers: list[JoinResult] = []
        request = JoinRequest(
            member_id, None, "", "c", "/h", 10_000, 20_000, "consumer", (("range", b"s"),)
        )
        self.groups.join(group, request, answers.append)
        return answers[0] if answers else None

    def stable(self, group: str) -> str:
        """A group of one; its member."""
        required = self.join(group)
        assert required is not None
        assert required.error is ErrorCode.MEMBER_ID_REQUIRED
        joined = self.join(group, required.member_id)
        assert joined is not None
        assert joined.error is NONE
        answers: list[SyncResult] = []
        request = SyncRequest(
            joined.member_id, None, joined.generation_id, None, None, {joined.member_id: b"mine"}
        )
        self.groups.sync(group, request, answers.append)
        assert answers[0].assignment == b"mine"
        return joined.member_id


def test_commits_survive_a_kill() -> None:
    house = House()
    assert house.commit("g", 5) is NONE
    assert house.commit("g", 7) is NONE
    assert house.commit("h", 1) is NONE
    house = house.after_a_kill()
    assert house.committed("g") == 7
    assert house.committed("h") == 1
    assert house.groups.committed("g")["t", 0].leader_epoch == 3


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
    assert house.commit("g", 6) is ErrorCode.NOT_COORDINATOR
    assert house.committed("g") == 5


def test_an_assignment_that_cannot_be_written_reaches_nobody() -> None:
    house = House()
    required = house.join("g")
    assert required is not None
    joined = house.join("g", required.member_id)
    assert joined is not None
    house.store.ensure_topic()
    index = house.store.partition_of("g")
    house.replicas.partition(OFFSETS_TOPIC, index).log.fail("for the test")
    answers: list[SyncResult] = []
    request = SyncRequest(joined.member_id, None, 1, None, None, {joined.member_id: b"x"})
    house.groups.sync("g", request, answers.append)
    assert [a.error for a in answers] == [ErrorCode.NOT_COORDINATOR]


def test_commit_rules() -> None:
    house = House()
    assert house.commit("g", 1, generation=4, member="m") is ErrorCode.ILLEGAL_GENERATION
    member = house.stable("g")
    assert house.commit("g", 1) is ErrorCode.UNKNOWN_MEMBER_ID, "pitfall 39"
    assert house.commit("g", 1, generation=2, member=member) is ErrorCode.ILLEGAL_GENERATION
    assert house.commit("g", 1, generation=1, member=member) is NONE
    long = {("t", 0): CommittedOffset(1, -1, "x" * 11, 0), ("t", 1): CommittedOffset(2, -1, "", 0)}
    codes = house.groups.commit("g", member, None, 1, long)
    assert codes == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE, ("t", 1): NONE}


def test_unknown_groups() -> None:
    house = House()
    assert house.groups.committed("nobody") == {}
    assert house.groups.delete("nobody") is ErrorCode.GROUP_ID_NOT_FOUND
    assert house.groups.heartbeat("nobody", "m", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert house.groups.leave("nobody", [("m", None)]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    with pytest.raises(KafkaError) as refused:
        house.groups.heartbeat("", "m", None, 1)
    assert refused.value.code is ErrorCode.INVALID_GROUP_ID


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


def test_offsets_of_a_deleted_topic_are_forgotten() -> None:
    """Pitfall 48: also by those who replay."""
    house = House()
    house.commit("g", 5)
    house.groups.forget_topic("t")
    assert house.committed("g") is None
    assert house.after_a_kill().committed("g") is None


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


def test_the_internal_topic_is_rewritten_when_it_is_mostly_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offsets_module, "REWRITE_BYTES", 20_000)
    house = House()
    house.stable("m")
    for number in range(400):
        house.commit("g", number)
        house.commit("h", number)

    def rewrite() -> int:
        return house.store.rewrite(
            [g.group_id for g in house.groups.groups()], house.groups.snapshot
        )

    assert rewrite() == len({house.store.partition_of(g) for g in "gh"})
    assert rewrite() == 0 or house.store.partition_count() == 2
    partition = house.replicas.partition(OFFSETS_TOPIC, house.store.partition_of("g"))
    assert partition.log_start_offset >= 400
    house = house.after_a_kill()
    assert house.committed("g") == 399
    assert house.committed("h") == 399
    group = house.groups.group("m")
    assert group is not None
    assert group.state is GroupState.STABLE


def test_a_member_that_falls_silent_is_noticed_by_its_timer() -> None:
    house = House()
    house.stable("g")
    house.clock.advance(9_999)
    group = house.groups.group("g")
    assert group is not None
    assert group.state is GroupState.STABLE
    house.clock.advance(2)
    assert group.state is GroupState.EMPTY
