"""A group with a clock that the test moves; it carries out effects as the coordinator does."""

from __future__ import annotations

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.group_state import Group
from penstock_broker.groups.members import (
    Answer,
    Effect,
    GroupLimits,
    JoinRequest,
    JoinResult,
    Store,
    SyncRequest,
    SyncResult,
)
from penstock_broker.groups.states import GroupState

SESSION_MS = 10_000
REBALANCE_MS = 60_000
NONE = ErrorCode.NONE


class SimulatedGroup:
    """A group, its clock, and the answers that its members have had."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = 1_000) -> None:
        self.group = Group("g", GroupLimits(delay_ms, 6_000, 1_800_000, size_max))
        self.now = 0.0
        self.joins: dict[str, list[JoinResult]] = {}
        self.syncs: dict[str, list[SyncResult]] = {}
        self.stores = 0
        self.store_error = NONE
        self._ids = 0

    def carry_out(self, effects: list[Effect]) -> None:
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            if isinstance(effect, Answer):
                effect.deliver()
                continue
            assert isinstance(effect, Store)
            self.stores += 1
            if self.store_error is NONE:
                queue += self.group.assignment_stored(self.now)
            else:
                queue += self.group.store_failed(self.store_error, self.now)

    def join(
        self,
        label: str,
        member_id: str = "",
        *,
        instance: str | None = None,
        known: bool = False,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"r"), ("roundrobin", b"rr")),
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        skipping: bool = False,
    ) -> JoinResult | None:
        """Join; the answer if there already is one. ``known``: needs no id beforehand."""
        self._ids += 1
        answers = self.joins.setdefault(label, [])
        count = len(answers)
        request = JoinRequest(
            member_id,
            instance,
            f"{label}-{self._ids}",
            label,
            "/127.0.0.1",
            session_ms,
            rebalance_ms,
            "consumer",
            protocols,
            require_known_member_id=not known,
            supports_skipping_assignment=skipping,
        )
        self.carry_out(self.group.join(request, answers.append, self.now))
        return answers[-1] if len(answers) > count else None

    def sync(
        self,
        label: str,
        member_id: str,
        *,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
        protocol: str | None = None,
    ) -> SyncResult | None:
        answers = self.syncs.setdefault(label, [])
        count = len(answers)
        request = SyncRequest(
            member_id,
            instance,
            self.group.generation_id if generation is None else generation,
            None,
            protocol,
            assignments or {},
        )
        self.carry_out(self.group.sync(request, answers.append, self.now))
        return answers[-1] if len(answers) > count else None

    def advance(self, ms: float) -> None:
        """Let time pass, ticking at every deadline on the way."""
        end = self.now + ms
        for _ in range(10_000):
            deadline = self.group.next_deadline_ms()
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            self.carry_out(self.group.tick(self.now))
        else:
            raise AssertionError("the group is never at rest")
        self.now = end

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        code, effects = self.group.leave(member_id, instance, self.now)
        self.carry_out(effects)
        return code

    def heartbeat(self, member_id: str, generation: int | None = None) -> ErrorCode:
        given = self.group.generation_id if generation is None else generation
        return self.group.heartbeat(member_id, None, given, self.now)

    def stable(self, *labels: str, instances: bool = False) -> list[str]:
        """Bring ``labels`` into one stable generation; their member ids, the leader first."""
        for label in labels:
            self.join(label, known=True, instance=f"i-{label}" if instances else None)
        if self.group.state is GroupState.COMPLETING and len(labels) > 1:
            # The first was alone in its generation: it has to come back.
            first = self.joins[labels[0]][-1].member_id
            self.join(labels[0], first, instance=f"i-{labels[0]}" if instances else None)
        for label in labels[:-1]:
            if self.joins[label][-1].generation_id != self.group.generation_id:
                self.join(label, self.joins[label][-1].member_id)
        self.advance(0)
        ids = [self.joins[label][-1].member_id for label in labels]
        assert self.group.state is GroupState.COMPLETING
        leader = self.group.leader
        for label, member_id in zip(labels, ids, strict=True):
            self.sync(
                label,
                member_id,
                assignments={m: m.encode() for m in ids} if member_id == leader else None,
                instance=f"i-{label}" if instances else None,
            )
        assert self.group.state is GroupState.STABLE
        return ids


def stable_group(*labels: str, instances: bool = False) -> tuple[SimulatedGroup, list[str]]:
    """A simulated group whose members have joined within the initial delay and are stable."""
    simulated = SimulatedGroup(delay_ms=1_000)
    for label in labels:
        simulated.join(label, known=True, instance=f"i-{label}" if instances else None)
    simulated.advance(1_000 * (len(labels) + 1))
    ids = [simulated.joins[label][-1].member_id for label in labels]
    for label, member_id in zip(labels, ids, strict=True):
        simulated.sync(
            label,
            member_id,
            assignments={m: m.encode() for m in ids}
            if member_id == simulated.group.leader
            else None,
            instance=f"i-{label}" if instances else None,
        )
    assert simulated.group.state is GroupState.STABLE
    return simulated, ids


def two_joined(**options: int) -> tuple[SimulatedGroup, str, str]:
    """A group that waits for its leader's assignment, and the ids of its members a and b.

    ``options``: timeouts that both of them join with, as :meth:`SimulatedGroup.join` takes them.
    """
    simulated = SimulatedGroup(delay_ms=1_000)
    for label in "ab":
        simulated.join(label, known=True, **options)  # type: ignore[arg-type]
    simulated.advance(3_000)
    a, b = (simulated.joins[label][0].member_id for label in "ab")
    return simulated, a, b
