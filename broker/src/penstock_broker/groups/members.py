"""The values that the group state machine takes and gives: members, answers, effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock_broker.errors import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]

MEMBER_BYTES = 1_000
PROTOCOL_BYTES = 150
"""What they take beside their contents, about, in 64-bit CPython."""


@dataclass(slots=True)
class Member:
    """One member of a group, as it described itself when it last joined.

    ``deadline_ms`` is when its session ends unless it sends a request (a new member that waits for
    its first generation has ``NEW_MEMBER_JOIN_TIMEOUT_MS`` instead, as in Kafka). The callables
    are requests that wait for an answer; a member with one of them waiting does not expire.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: Callable[[JoinResult], None] | None = None
    awaiting_sync: Callable[[SyncResult], None] | None = None
    is_new: bool = False
    deadline_ms: float = 0.0

    @classmethod
    def of(cls, member_id: str, request: JoinRequest) -> Member:
        """A member as it describes itself in its first join."""
        return cls(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocol_type,
            request.protocols,
        )

    def describe(self, request: JoinRequest | Member) -> None:
        """Take over what it says of itself; of its roster, which counts protocols, to call."""
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocol_type = request.protocol_type
        self.protocols = request.protocols

    def metadata(self, protocol: str) -> bytes:
        """What it says to the assignor of ``protocol``."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a client says of itself in JoinGroup. ``member_id`` is empty on the first join.

    ``new_member_id`` is the id that it gets if it needs one: made by the caller, so that the
    state machine draws no random numbers.
    """

    member_id: str
    group_instance_id: str | None
    new_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    require_known_member_id: bool = True
    supports_skipping_assignment: bool = False


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader sees it: what it needs to assign partitions."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to a join; ``members`` only for the leader."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """What a member says in SyncGroup; ``assignments`` (by member id) only from the leader."""

    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The answer to a sync: this member's part of the assignment."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Returned:
    """A static member that is back: answered when its new id is in the log, else undone."""

    waiter: Callable[[JoinResult], None]
    result: JoinResult
    member: Member
    before: Member


@dataclass(frozen=True, slots=True)
class Answer:
    """An effect: hand ``result`` to the request that waits behind ``waiter``."""

    waiter: Callable[[JoinResult], None] | Callable[[SyncResult], None]
    result: JoinResult | SyncResult

    def deliver(self) -> None:
        self.waiter(self.result)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Store:
    """An effect: write the group to the log before any later effect is carried out."""


Effect = Answer | Store


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The settings that a group obeys; milliseconds, Kafka's defaults."""

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    size_max: int = 2_147_483_647

    def allow_session(self, timeout_ms: int) -> bool:
        """Whether a session timeout is within the bounds."""
        return self.session_timeout_min_ms <= timeout_ms <= self.session_timeout_max_ms


@dataclass(slots=True)
class StoredGroup:
    """The part of a group that is stored: its generation with the members' assignments."""

    protocol_type: str | None
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: list[Member] = field(default_factory=list)


def size_of(protocols: Protocols) -> int:
    """About the bytes that a member with these protocols takes, its assignment left out."""
    return MEMBER_BYTES + sum(PROTOCOL_BYTES + len(name) + len(data) for name, data in protocols)


def common_protocols(members: Iterable[Member]) -> set[str]:
    """The protocols that every one of ``members`` supports."""
    names = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*names) if names else set()


def select_protocol(members: Iterable[Member]) -> str:
    """Each member votes for the first of its protocols that all members support."""
    members = list(members)
    common = common_protocols(members)
    known = ([name for name, _ in member.protocols if name in common] for member in members)
    votes = Counter(names[0] for names in known if names)
    return votes.most_common(1)[0][0] if votes else ""
