"""Consumers that live, die, restart and lose answers, against a broker that is killed, by seed.

The clients here keep to the protocol as librdkafka and the Java client do. Whatever happens to
them, no partition has two owners in one generation; and when the trouble is over, the group comes
to rest with every partition owned by a live member. ``PENSTOCK_SEED`` replays one run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from random import Random

import pytest
from group_harness import NONE, Harness, subscription

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.members import (
    GroupLimits,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from penstock_broker.groups.offset_records import CommittedOffset
from penstock_broker.groups.states import GroupState

GROUP = "g"
TOPIC = "t"
PARTITIONS = 8
HEARTBEAT_MS = 1_000
BACKOFF_MS = 100
REQUEST_TIMEOUT_MS = 15_000
QUIET_MS = 120_000
SEEDS = [int(os.environ["PENSTOCK_SEED"])] if "PENSTOCK_SEED" in os.environ else list(range(40))

Result = JoinResult | SyncResult


class World:
    """A broker that can be killed, a network that loses answers, and who owns what."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        limits = GroupLimits(self.random.choice([0, 500, 3_000]), 1_000)
        self.harness = Harness(limits=limits)
        self.clock = self.harness.clock
        self.loss = 0.0
        self.owners: dict[tuple[int, int], str] = {}
        self.clients: list[Client] = []

    def after(self, ms: float, then: Callable[[], None]) -> None:
        self.clock.call_at(self.clock.monotonic() + ms / 1000, then)

    def kill_broker(self) -> None:
        """Clients that wait for an answer get none; only what is in the log remains."""
        self.harness = self.harness.after_a_kill()

    def ask(
        self, send: Callable[[Harness, Callable[[Result], None]], None], client: Client
    ) -> Callable[[Callable[[Result], None]], None]:
        """Send a request of a client's; ``then`` gets the answer unless it is lost on the way, in
        which case the client tries again when it has waited for long enough."""

        def run(then: Callable[[Result], None]) -> None:
            turn = client.next_turn()
            harness = self.harness

            def answered(result: Result) -> None:
                if harness is not self.harness or self.random.random() < self.loss:
                    return
                delay_ms = self.random.choice([0, 1, 5, 200])
                self.after(delay_ms, lambda: then(result) if client.turn == turn else None)

            def give_up() -> None:
                if client.turn == turn:
                    client.join()

            self.after(REQUEST_TIMEOUT_MS, give_up)
            try:
                send(harness, answered)
            except KafkaError:
                self.after(BACKOFF_MS, give_up)

        return run

    def own(self, generation: int, partition: int, name: str) -> None:
        """A commit was accepted: its sender owns the partition in that generation."""
        owner = self.owners.setdefault((generation, partition), name)
        assert owner == name, f"{owner} and {name} own {partition} in generation {generation}"


class Client:
    """A consumer: dynamic, or static with an instance id."""

    def __init__(self, world: World, name: str, *, static: bool, session_ms: int) -> None:
        self.world = world
        self.name = name
        self.instance = name if static else None
        self.session_ms = session_ms
        self.member_id = ""
        self.generation = -1
        self.assignment: list[int] = []
        self.alive = False
        self.turn = 0
        world.clients.append(self)

    def next_turn(self) -> int:
        self.turn += 1
        return self.turn

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        self.alive = True
        self.member_id = ""
        self.join()

    def die(self) -> None:
        """No goodbye."""
        self.alive = False
        self.assignment = []
        self.next_turn()

    def stop(self) -> None:
        """As a client that closes: a dynamic one says goodbye, a static one does not."""
        if self.instance is None and self.member_id:
            with contextlib.suppress(KafkaError):
                self.world.harness.groups.leave(GROUP, [(self.member_id, None)])
        self.die()

    # -- the protocol --------------------------------------------------------------------------

    def join(self) -> None:
        if not self.alive:
            return
        self.assignment = []
        request = JoinRequest(
            self.member_id,
            self.instance,
            "",
            self.name,
            "/h",
            self.session_ms,
            10_000,
            "consumer",
            (("range", subscription([TOPIC])),),
            supports_skipping_assignment=bool(self.turn % 2),
        )
        self.world.ask(lambda h, waiter: h.groups.join(GROUP, request, waiter), self)(self.joined)

    def joined(self, result: Result) -> None:
        assert isinstance(result, JoinResult)
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
            self.join()
        elif result.error is NONE:
            self.member_id, self.generation = result.member_id, result.generation_id
            plan: dict[str, bytes] = {}
            if result.leader == result.member_id and not result.skip_assignment:
                names = sorted(m.member_id for m in result.members)
                plan = {
                    name: bytes(range(at, PARTITIONS, len(names))) for at, name in enumerate(names)
                }
            self.sync(plan)
        else:
            self.failed(result.error)

    def sync(self, plan: dict[str, bytes]) -> None:
        request = SyncRequest(
            self.member_id, self.instance, self.generation, "consumer", "range", plan
        )
        self.world.ask(lambda h, waiter: h.groups.sync(GROUP, request, waiter), self)(self.synced)

    def synced(self, result: Result) -> None:
        assert isinstance(result, SyncResult)
        if result.error is not NONE:
            self.failed(result.error)
            return
        self.assignment = list(result.assignment)
        turn = self.next_turn()
        self.commit()
        self.world.after(HEARTBEAT_MS, lambda: self.heartbeat(turn))

    def heartbeat(self, turn: int) -> None:
        if self.turn != turn or not self.alive:
            return
        try:
            code = self.world.harness.groups.heartbeat(
                GROUP, self.member_id, self.instance, self.generation
            )
        except KafkaError as error:
            code = error.code
        if code is NONE:
            self.commit()
            self.world.after(HEARTBEAT_MS, lambda: self.heartbeat(turn))
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.commit()
            self.join()
        else:
            self.failed(code)

    def failed(self, code: ErrorCode) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.die()
            return
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        turn = self.next_turn()
        self.world.after(BACKOFF_MS, lambda: self.join() if self.turn == turn else None)

    def commit(self) -> None:
        for partition in self.assignment:
            offset = CommittedOffset(self.turn, -1, "", self.world.clock.now_ms())
            code = self.world.harness.groups.offsets.commit(
                GROUP,
                self.member_id,
                self.instance,
                self.generation,
                {(TOPIC, partition): offset},
            )[TOPIC, partition]
            if code is NONE:
                self.world.own(self.generation, partition, self.name)


def check_rest(world: World) -> None:
    """The trouble is over: everything is owned, by those who are alive, once."""
    group = world.harness.groups.group(GROUP)
    alive = [client for client in world.clients if client.alive]
    if not alive:
        assert group is None or group.state is GroupState.EMPTY
        return
    assert group is not None
    assert group.state is GroupState.STABLE
    assert not group.pending
    assert {client.member_id for client in alive} == set(group.members)
    owned = sorted(partition for client in alive for partition in client.assignment)
    assert owned == list(range(PARTITIONS))
    for client in alive:
        assert bytes(client.assignment) == group.members[client.member_id].assignment


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_every_partition_ends_with_one_living_owner(seed: int) -> None:
    """Pitfalls 34, 35, 36: unused ids, members dying in every state, static ones."""
    world = World(seed)
    random = world.random
    for number in range(random.randint(2, 6)):
        client = Client(
            world,
            f"c{number}",
            static=random.random() < 0.4,
            session_ms=random.choice([1_500, 6_000, 20_000]),
        )
        world.after(random.randint(0, 5_000), client.start)
    world.clock.advance(random.randint(0, 8_000))
    world.loss = random.choice([0.0, 0.05, 0.2])
    for _ in range(40):
        client = random.choice(world.clients)
        event = random.randrange(12)
        if event < 3 and client.alive:
            client.die()
        elif event < 5 and client.alive:
            client.stop()
        elif event < 9 and not client.alive:
            client.start()
        elif event == 9:
            world.harness.join(GROUP, metadata=subscription([TOPIC]))  # an id, and never a member
        elif event == 10:
            world.kill_broker()
        world.clock.advance(random.choice([0, 1, 50, 700, 3_000, 12_000]))
    world.loss = 0.0
    world.clock.advance(QUIET_MS)
    check_rest(world)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_a_rolling_restart_of_static_members_moves_nothing(seed: int) -> None:
    """Pitfall 36: no other member notices, not even when the broker restarts in between."""
    world = World(seed)
    clients = [Client(world, f"s{n}", static=True, session_ms=20_000) for n in range(4)]
    for client in clients:
        client.start()
    world.clock.advance(QUIET_MS)
    check_rest(world)
    before = {client.name: (client.generation, client.assignment) for client in clients}
    for client in world.random.sample(clients, 4):
        client.stop()
        world.clock.advance(world.random.randint(0, 15_000))
        if world.random.random() < 0.3:
            world.kill_broker()
        client.start()
        world.clock.advance(5_000)
        assert {c.name: (c.generation, c.assignment) for c in clients} == before
    check_rest(world)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_a_rolling_restart_of_dynamic_members_leaves_nothing_alone(seed: int) -> None:
    """Pitfall 35: after each goodbye and each return, within one heartbeat and a join."""
    world = World(seed)
    clients = [Client(world, f"d{n}", static=False, session_ms=20_000) for n in range(4)]
    for client in clients:
        client.start()
    world.clock.advance(QUIET_MS)
    for client in world.random.sample(clients, 4):
        client.stop()
        world.clock.advance(3 * HEARTBEAT_MS)
        check_rest(world)
        client.start()
        world.clock.advance(3 * HEARTBEAT_MS)
        check_rest(world)


def test_an_unused_id_delays_a_rebalance_for_its_session_only() -> None:
    """Pitfall 34: it is waited for, as in Kafka, and then removed."""
    world = World(0)
    first = Client(world, "first", static=False, session_ms=6_000)
    first.start()
    world.clock.advance(QUIET_MS)
    assert world.harness.join(GROUP, metadata=subscription([TOPIC])) is not None  # session 10 s
    second = Client(world, "second", static=False, session_ms=6_000)
    second.start()
    world.clock.advance(9_000)
    group = world.harness.groups.group(GROUP)
    assert group is not None
    assert group.state is GroupState.PREPARING
    world.clock.advance(2_000)
    assert group.state is GroupState.STABLE
    check_rest(world)
