"""Any order of events: the group never breaks its own rules, and never leaves a client waiting."""

from __future__ import annotations

import copy
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from simulated_group import SimulatedGroup

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.group_state import Group
from penstock_broker.groups.members import (
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
    size_of,
)
from penstock_broker.groups.states import GroupState

SESSION_MS = 10_000
REBALANCE_MS = 30_000
LABELS = ["a", "b", "c", "d"]
PROTOCOLS = [
    (("range", b"1"),),
    (("range", b"2"), ("roundrobin", b"2")),
    (("roundrobin", b"3"), ("range", b"3")),
]


class Client:
    """A client that keeps to the protocol as far as it feels like it."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.instance: str | None = None
        self.member_id = ""
        self.generation_id = -1
        self.is_leader = False
        self.members: list[str] = []


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.simulated = SimulatedGroup(delay_ms=1_000)
        self.clients = {label: Client(label) for label in LABELS}
        self.open_waiters = 0
        self.ids = 0
        self.generations: dict[int, tuple[str, str | None]] = {}
        self.leaders: dict[int, set[str]] = {}
        self.last_generation = 0
        self.known: set[str] = set()

    @property
    def group(self) -> Group:
        return self.simulated.group

    # -- requests that wait ------------------------------------------------------------------

    def once(self, then: Callable[[JoinResult | SyncResult], None]) -> Callable[..., None]:
        self.open_waiters += 1
        answered = False

        def waiter(result: JoinResult | SyncResult) -> None:
            nonlocal answered
            assert not answered, "a waiter is answered once"
            answered = True
            self.open_waiters -= 1
            then(result)

        return waiter

    # -- events ------------------------------------------------------------------------------

    @rule(
        label=st.sampled_from(LABELS),
        protocols=st.sampled_from(PROTOCOLS),
        without_id=st.booleans(),
        static=st.booleans(),
        old_version=st.booleans(),
    )
    def join(
        self,
        label: str,
        protocols: tuple[tuple[str, bytes], ...],
        without_id: bool,
        static: bool,
        old_version: bool,
    ) -> None:
        client = self.clients[label]
        if without_id:
            client.member_id = ""
            client.instance = f"i-{label}" if static else None
        self.ids += 1
        request = JoinRequest(
            client.member_id,
            client.instance,
            f"{label}-{self.ids}",
            label,
            "/h",
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            protocols,
            require_known_member_id=not old_version,
        )

        def joined(result: JoinResult | SyncResult) -> None:
            assert isinstance(result, JoinResult)
            if result.error in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
                client.member_id = result.member_id
            if result.error is ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id = ""
            if result.error is ErrorCode.NONE:
                self.saw_generation(client, result)

        self.simulated.carry_out(self.group.join(request, self.once(joined), self.simulated.now))

    def saw_generation(self, client: Client, result: JoinResult) -> None:
        client.generation_id = result.generation_id
        client.is_leader = result.leader == result.member_id
        client.members = [m.member_id for m in result.members]
        assert result.protocol_name
        known = self.generations.setdefault(
            result.generation_id, (result.protocol_name, result.protocol_type)
        )
        assert known == (result.protocol_name, result.protocol_type)
        if client.is_leader:
            assert client.member_id in client.members
            self.leaders.setdefault(result.generation_id, set()).add(client.label)
            assert len(self.leaders[result.generation_id]) == 1, "one leader a generation"
        else:
            assert not client.members

    @rule(label=st.sampled_from(LABELS))
    def sync(self, label: str) -> None:
        client = self.clients[label]
        assignments = {m: m.encode() for m in client.members} if client.is_leader else {}
        request = SyncRequest(
            client.member_id, client.instance, client.generation_id, None, None, assignments
        )
        asked = client.member_id

        def synced(result: JoinResult | SyncResult) -> None:
            assert isinstance(result, SyncResult)
            if result.error is ErrorCode.NONE and result.assignment and client.instance is None:
                assert result.assignment == asked.encode(), "no member gets another's part"

        self.simulated.carry_out(self.group.sync(request, self.once(synced), self.simulated.now))

    @rule(label=st.sampled_from(LABELS))
    def heartbeat(self, label: str) -> None:
        client = self.clients[label]
        code = self.group.heartbeat(
            client.member_id, client.instance, client.generation_id, self.simulated.now
        )
        if code is ErrorCode.NONE:
            assert client.member_id in self.group.members

    @rule(label=st.sampled_from(LABELS))
    def commit(self, label: str) -> None:
        client = self.clients[label]
        code = self.group.commit_allowed(
            client.member_id, client.instance, client.generation_id, self.simulated.now
        )
        if code is ErrorCode.NONE and client.generation_id >= 0:
            assert client.generation_id == self.group.generation_id

    @rule(label=st.sampled_from(LABELS), by_instance=st.booleans())
    def leave(self, label: str, by_instance: bool) -> None:
        client = self.clients[label]
        member_id = "" if by_instance and client.instance else client.member_id
        _, effects = self.group.leave(member_id, client.instance, self.simulated.now)
        self.simulated.carry_out(effects)

    @rule(ms=st.sampled_from([1, 500, 1_000, 4_000, 11_000, 31_000]))
    def time_passes(self, ms: int) -> None:
        self.simulated.advance(ms)

    @rule(fails=st.booleans())
    def storage(self, fails: bool) -> None:
        self.simulated.store_error = ErrorCode.NOT_COORDINATOR if fails else ErrorCode.NONE

    @precondition(lambda self: self.group.state is GroupState.STABLE)
    @rule()
    def restart(self) -> None:
        """The broker restarts: no member waits in a stable group, so nothing is lost."""
        stored = self.group.stored(0)
        self.simulated.group = Group("g", self.group.rebalance.limits)
        self.group.restore(stored, self.simulated.now)

    # -- rules that always hold --------------------------------------------------------------

    @invariant()
    def is_consistent(self) -> None:
        group = self.group
        members = group.members
        assert all(key == member.member_id for key, member in members.items())
        assert group.generation_id >= self.last_generation
        self.last_generation = group.generation_id
        if group.state is GroupState.EMPTY:
            assert not members
            assert group.leader is None
        else:
            assert members or group.pending or group.state is GroupState.PREPARING
        if members:
            assert group.leader in members
        assert set(group.static_ids.values()) <= set(members)
        joining = [m for m in members.values() if m.awaiting_join is not None]
        syncing = [m for m in members.values() if m.awaiting_sync is not None]
        assert not joining or group.state is GroupState.PREPARING
        assert not syncing or group.state is GroupState.COMPLETING
        assert self.open_waiters == len(joining) + len(syncing)
        assert group.roster.size == sum(
            size_of(m.protocols) + len(m.assignment) for m in members.values()
        )
        came, went = group.roster.take_changes()
        assert not set(came) & set(went)
        self.known = (self.known - set(went)) | set(came)
        assert self.known == set(members), "each member that joins or leaves is reported once"
        deadline = copy.copy(group.rebalance).next_deadline_ms()
        assert deadline is None or group.may_be_due_before(deadline + 1)
        if self.open_waiters:
            assert deadline is not None, "who waits has a deadline"

    def teardown(self) -> None:
        """Without events, every group becomes stable, and no member waits forever."""
        for _ in range(40):
            self.time_passes(31_000)
        assert self.open_waiters == 0
        assert self.group.state is GroupState.EMPTY


TestGroupProperties = GroupMachine.TestCase
TestGroupProperties.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
