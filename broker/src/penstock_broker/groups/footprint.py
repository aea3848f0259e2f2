"""About how much memory groups take, so that there is an end to it.

Any client may invent groups, join with megabytes of metadata, or commit offsets with metadata for
every partition. So each group is charged, and what would exceed the bound is refused with
GROUP_MAX_SIZE_REACHED; existing members and offsets stay. The figures are those of 64-bit CPython.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.members import MEMBER_BYTES, JoinRequest, Member, size_of
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.log.keys import TopicPartition

GROUP_BYTES = 2_000
OFFSET_BYTES = 300


class Footprint:
    """What all groups of a coordinator take."""

    def __init__(self, groups_max: int, bytes_max: int) -> None:
        self.total = 0
        """Bytes, about."""
        self._groups_max = groups_max
        self._bytes_max = bytes_max
        self._members: dict[str, int] = {}
        self._offsets: dict[str, int] = {}

    def require_space(self, group_id: str, more: int) -> None:
        """Whether a group, perhaps a new one, may take ``more`` bytes. GROUP_MAX_SIZE_REACHED."""
        if more <= 0 and group_id in self._members:
            return
        if group_id not in self._members:
            if len(self._members) >= self._groups_max:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"There are {self._groups_max} groups (group.coordinator.max.groups).",
                )
            more += GROUP_BYTES + len(group_id)
        if self.total + more > self._bytes_max:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"Groups take {self.total} bytes (group.coordinator.max.bytes).",
            )

    def record_members(self, group_id: str, size: int, pending: int) -> None:
        """A group's members take ``size`` bytes now, beside so many ids that were handed out."""
        now = GROUP_BYTES + len(group_id) + size + MEMBER_BYTES * pending
        self.total += now - self._members.get(group_id, 0)
        self._members[group_id] = now

    def record_offsets(self, group_id: str, more: int) -> None:
        """A group's offsets take so many bytes more (commit) or, negative, less (delete)."""
        self.total += more
        self._offsets[group_id] = self._offsets.get(group_id, 0) + more

    def set_offsets(self, group_id: str, count: int) -> None:
        """A group's offsets take so many bytes."""
        self.record_offsets(group_id, count - self._offsets.get(group_id, 0))

    def remove(self, group_id: str) -> None:
        """The group is gone."""
        self.total -= self._members.pop(group_id, 0) + self._offsets.pop(group_id, 0)


def of_join(request: JoinRequest, known: Member | None) -> int:
    """What a member that joins so takes, beyond what it takes if it is known already."""
    before = size_of(known.protocols) if known is not None else 0
    return size_of(request.protocols) - before


def of_offset(offset: CommittedOffset) -> int:
    """What a committed offset takes."""
    return OFFSET_BYTES + len(offset.metadata)


def of_offsets(offsets: Mapping[TopicPartition, CommittedOffset]) -> int:
    """What committed offsets take."""
    return sum(map(of_offset, offsets.values()))
