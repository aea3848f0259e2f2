"""A coordinator with its internal topic on a simulated disk: everything but the network."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

from storage import Storage

from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.errors import ErrorCode
from penstock_broker.groups.coordinator import CoordinatorLimits, GroupCoordinator
from penstock_broker.groups.members import (
    GroupLimits,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.metrics import Metrics
from penstock_broker.testing import MemFiles, SimClock

NONE = ErrorCode.NONE
DATA = Path("/data")


def subscription(topics: list[str]) -> bytes:
    """What a consumer says in JoinGroup."""
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Harness:
    """A broker's storage and its coordinator, without a network."""

    def __init__(
        self,
        files: MemFiles | None = None,
        clock: SimClock | None = None,
        *,
        limits: GroupLimits | None = None,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.numbers = numbers or itertools.count()
        self.limits = limits or GroupLimits(initial_rebalance_delay_ms=0)
        self.files = files or MemFiles()
        self.clock = clock or SimClock()
        self.metrics = Metrics()
        settings = {"offsets.topic.num.partitions": "2"}
        storage = Storage(DATA, self.clock, self.files, settings)
        self.replicas = storage.replicas
        self.store = storage.offsets_topic()
        self.groups = GroupCoordinator(
            clock=self.clock,
            timers=self.clock,
            store=self.store,
            group_limits=self.limits,
            limits=CoordinatorLimits(offset_metadata_bytes_max=10, offsets_retention_ms=60_000),
            metrics=self.metrics,
            new_id=lambda: str(next(self.numbers)),
        )
        self.groups.load(self.store.load())

    def after_a_kill(self) -> Harness:
        return Harness(self.files.kill(), self.clock, limits=self.limits, numbers=self.numbers)

    def commit(
        self, group: str, offset: int, *, generation: int = -1, member: str = ""
    ) -> ErrorCode:
        given = {("t", 0): CommittedOffset(offset, 3, "", self.clock.now_ms())}
        return self.groups.offsets.commit(group, member, None, generation, given)["t", 0]

    def committed(self, group: str) -> int | None:
        found = self.groups.offsets.of(group).get(("t", 0))
        return found.offset if found is not None else None

    def log_end(self, group: str) -> int:
        """The end of the log that the records of a group are in."""
        index = self.store.partition_of(group)
        return self.replicas.partition(OFFSETS_TOPIC, index).log_end_offset

    def join(
        self,
        group: str,
        member_id: str = "",
        *,
        protocol_type: str = "consumer",
        metadata: bytes = b"s",
        instance: str | None = None,
    ) -> JoinResult | None:
        answers: list[JoinResult] = []
        request = JoinRequest(
            member_id,
            instance,
            "",
            "c",
            "/h",
            10_000,
            20_000,
            protocol_type,
            (("range", metadata),),
        )
        self.groups.join(group, request, answers.append)
        return answers[0] if answers else None

    def stable(
        self, group: str, *, protocol_type: str = "consumer", topics: list[str] | None = None
    ) -> str:
        """A group of one; its member. Without ``topics`` its subscription is unreadable."""
        metadata = b"s" if topics is None else subscription(topics)
        required = self.join(group, protocol_type=protocol_type, metadata=metadata)
        assert required is not None
        assert required.error is ErrorCode.MEMBER_ID_REQUIRED
        joined = self.join(
            group, required.member_id, protocol_type=protocol_type, metadata=metadata
        )
        assert joined is not None
        assert joined.error is NONE
        answers: list[SyncResult] = []
        request = SyncRequest(
            joined.member_id, None, joined.generation_id, None, None, {joined.member_id: b"mine"}
        )
        self.groups.sync(group, request, answers.append)
        assert answers[0].assignment == b"mine"
        return joined.member_id
