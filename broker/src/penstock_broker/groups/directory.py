"""The groups of this broker by id, each with its offsets and its timer, and what they all take."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock_broker.clock import Timer
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups import footprint
from penstock_broker.groups.footprint import Footprint
from penstock_broker.groups.group_state import Group
from penstock_broker.groups.members import GroupLimits
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.groups.states import GroupState
from penstock_broker.groups.store import GroupStore
from penstock_broker.log.keys import TopicPartition


@dataclass(slots=True)
class Entry:
    """A group with what belongs to it."""

    group: Group
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    state_timestamp_ms: int = -1
    """When the group was last written, -1 if never."""
    timer: Timer | None = None
    timer_at_ms: float = 0.0
    recorded: tuple[GroupState, int] = (GroupState.EMPTY, 0)
    """State and generation of the last line about it in the log."""


class GroupDirectory:
    """All groups. Owned by the event loop."""

    def __init__(
        self, store: GroupStore, group_limits: GroupLimits, groups_max: int, bytes_max: int
    ) -> None:
        self.entries: dict[str, Entry] = {}
        self.footprint = Footprint(groups_max, bytes_max)
        self._store = store
        self._group_limits = group_limits

    def require_well(self, group_id: str) -> None:
        """Refuse a group whose records cannot be read. It is not unknown, and its offsets are not
        -1 (or its consumers would start over). KafkaError NOT_COORDINATOR."""
        problem = self._store.problem(group_id)
        if problem is not ErrorCode.NONE:
            raise KafkaError(problem)

    def find(self, group_id: str) -> Entry | None:
        """A group that there is. KafkaError as :meth:`require_well`."""
        self.require_well(group_id)
        return self.entries.get(group_id)

    def find_or_add(self, group_id: str) -> Entry:
        """A group, perhaps a new one."""
        entry = self.entries.get(group_id)
        if entry is None:
            entry = self.entries[group_id] = Entry(Group(group_id, self._group_limits))
            self.footprint.record_members(group_id, 0, 0)
        return entry

    def remove(self, entry: Entry) -> None:
        """Remove a group."""
        if entry.timer is not None:
            entry.timer.cancel()
        del self.entries[entry.group.group_id]
        self.footprint.remove(entry.group.group_id)

    def record_members(self, entry: Entry) -> None:
        """Charge a group with the members that it has."""
        group = entry.group
        self.footprint.record_members(group.group_id, group.roster.size, len(group.pending))

    def recount(self) -> None:
        """Charge each group with what it has: transactions that abort leave too much behind."""
        for group_id, entry in self.entries.items():
            self.record_members(entry)
            self.footprint.set_offsets(group_id, footprint.of_offsets(entry.offsets))
