"""The vocabulary of a group: its states, what can happen, and what is answered in each state.

Two tables say it all: ``TRANSITIONS`` (which event leads where; any other pair is a bug and
raises) and ``ANSWERS`` (the error that a request of a known member gets in each state).
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto

from penstock_broker.errors import ErrorCode


class GroupState(StrEnum):
    """Kafka's names, as ListGroups and DescribeGroups print them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """What can happen to a group as a whole."""

    REBALANCE = "a member joined, left or changed"
    GENERATION = "all members have joined, or time is up"
    EMPTIED = "the join ended without members"
    ASSIGNED = "the leader's assignment is stored"
    DELETED = "the group was deleted"


TRANSITIONS: dict[GroupState, dict[Event, GroupState]] = {
    GroupState.EMPTY: {
        Event.REBALANCE: GroupState.PREPARING,
        Event.DELETED: GroupState.DEAD,
    },
    GroupState.PREPARING: {
        Event.GENERATION: GroupState.COMPLETING,
        Event.EMPTIED: GroupState.EMPTY,
    },
    GroupState.COMPLETING: {
        Event.REBALANCE: GroupState.PREPARING,
        Event.ASSIGNED: GroupState.STABLE,
    },
    GroupState.STABLE: {
        Event.REBALANCE: GroupState.PREPARING,
    },
    GroupState.DEAD: {},
}


class Request(Enum):
    """Requests whose answer to a valid member depends on the state alone."""

    HEARTBEAT = auto()
    SYNC = auto()
    COMMIT = auto()


ANSWERS: dict[Request, dict[GroupState, ErrorCode]] = {
    Request.HEARTBEAT: {
        GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        GroupState.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
        GroupState.COMPLETING: ErrorCode.NONE,
        GroupState.STABLE: ErrorCode.NONE,
        GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
    Request.SYNC: {
        GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        GroupState.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
        GroupState.COMPLETING: ErrorCode.NONE,
        GroupState.STABLE: ErrorCode.NONE,
        GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
    Request.COMMIT: {
        GroupState.EMPTY: ErrorCode.NONE,
        GroupState.PREPARING: ErrorCode.NONE,  # of the generation that is ending
        GroupState.COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
        GroupState.STABLE: ErrorCode.NONE,
        GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
}
