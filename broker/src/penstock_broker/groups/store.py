"""What the group coordinator needs of the internal topic, and how failures become errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import StoredGroup
from penstock_broker.groups.offset_records import CommittedOffset, GroupKey, OffsetKey
from penstock_broker.log.keys import ProducerAndEpoch

Change = tuple[OffsetKey, CommittedOffset | None] | tuple[GroupKey, StoredGroup | None]
"""A record: None is a tombstone."""


class GroupStore(Protocol):
    """The internal topic."""

    def write(
        self, group_id: str, changes: Iterable[Change], producer: ProducerAndEpoch | None = None
    ) -> None:
        """Append records, all or nothing; KafkaError when it cannot.

        ``producer``: they are part of its transaction.
        """
        ...

    def partition_of(self, group_id: str) -> int:
        """The partition of the internal topic that a group's records are in."""
        ...

    def problem(self, group_id: str) -> ErrorCode:
        """Why nothing can be said about this group: its partition was not read to the end, or is
        offline. NONE when all is well."""
        ...


def store_error(code: ErrorCode) -> ErrorCode:
    """The error for a member when its group cannot be written: no format allows more bytes."""
    error = commit_error(code)
    return (
        ErrorCode.UNKNOWN_SERVER_ERROR if error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE else error
    )


def commit_error(code: ErrorCode) -> ErrorCode:
    """The error for a client when the internal topic cannot be written (as Kafka maps it)."""
    if code in {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR}:
        return ErrorCode.NOT_COORDINATOR
    if code in {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
    }:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if code in {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
