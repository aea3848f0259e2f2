"""Producers on a broker that is killed at any write: every transaction is all there or not at all.

Clients begin, write, commit offsets, commit and abort at random; now and then a write fails, the
process is killed in the middle of whatever it writes, the machine's time passes, or another
instance of a producer starts. A model knows which transactions were committed for sure, which were
aborted for sure, and for which no client got an answer. What consumers read is checked against it.
"""

from __future__ import annotations

import errno
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

import pytest
from txn_harness import TIMEOUT_MS, TOPIC, Harness, KilledError, kill_at

from penstock_broker.cluster.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock_broker.errors import ErrorCode, KafkaError

IDS = ("x", "y", "z")
STEPS = 600


@dataclass
class Client:
    """One instance of a producer, as it sees itself."""

    transactional_id: str
    producer: tuple[int, int]
    sequences: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    added: set[int] = field(default_factory=set)
    written: list[tuple[int, str]] = field(default_factory=list)
    offset: int | None = None
    is_open: bool = False


class World:
    """The broker, its clients, and what is known of their transactions."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = Harness()
        self.clients: dict[str, Client] = {}
        self.committed: list[list[tuple[int, str]]] = []
        self.aborted: list[list[tuple[int, str]]] = []
        self.unknown: list[list[tuple[int, str]]] = []
        self.offsets: set[int | None] = {None}
        """What the group may have committed."""
        self.number = 0

    # -- what happens --------------------------------------------------------------------------

    def step(self) -> None:
        random = self.random
        if random.random() < 0.06:
            kill_at(self.harness.files, random.randrange(1, 9))
        elif random.random() < 0.04:
            topic = random.choice((TRANSACTIONS_TOPIC, TOPIC, OFFSETS_TOPIC))
            path = f"{topic}-{random.randrange(2)}/0"  # a segment, not a checkpoint
            self.harness.files.fail("write", errno.ENOSPC, path_part=path)
        action = random.choices(
            (self.start, self.write, self.commit_offset, self.end, self.wait, self.look),
            (4, 10, 2, 5, 1, 2),
        )[0]
        try:
            action()
        except KilledError:
            self.recover()

    def recover(self) -> None:
        """A new process; who was in the middle of something does not know what became of it."""
        while True:
            try:
                self.harness = self.harness.after_a_kill()
                return
            except KilledError:  # the fault of an action that did not write enough
                continue

    def start(self) -> None:
        """Another instance of a producer; what the old one left open is aborted."""
        transactional_id = self.random.choice(IDS)
        client = self.clients.pop(transactional_id, None)
        if client is not None and client.is_open:
            self.aborted.append(client.written)
        for _ in range(3):
            try:
                producer = self.harness.init(transactional_id)
            except KafkaError as error:
                assert error.retriable or error.code is ErrorCode.NOT_COORDINATOR, error
                self.harness.clock.advance(1_000)
                continue
            self.clients[transactional_id] = Client(transactional_id, producer)
            return

    def client(self) -> Client | None:
        return self.random.choice(list(self.clients.values())) if self.clients else None

    def write(self) -> None:
        client = self.client()
        if client is None:
            return
        index = self.random.randrange(self.harness.partitions)
        self.number += 1
        value = f"{client.transactional_id}-{self.number}"
        try:
            if index not in client.added:
                client.is_open = True
                self.harness.add(client.producer, index, transactional_id=client.transactional_id)
                client.added.add(index)
            self.harness.produce(
                client.producer,
                value,
                index=index,
                sequence=client.sequences[index],
                transactional_id=client.transactional_id,
            )
        except KafkaError as error:
            self.failed(client, error)
            return
        except KilledError:
            self.drop(client)  # its record may be there, and would be if it went on
            raise
        client.sequences[index] += 1
        client.written.append((index, value))

    def commit_offset(self) -> None:
        client = self.client()
        if client is None:
            return
        self.number += 1
        client.is_open = True
        try:
            self.harness.commit_offset(
                client.producer, self.number, transactional_id=client.transactional_id
            )
        except KafkaError as error:
            self.failed(client, error)
            return
        except KilledError:
            self.drop(client)
            raise
        client.offset = self.number

    def end(self) -> None:
        client = self.client()
        if client is None or not client.is_open:
            return
        commit = self.random.random() < 0.6
        try:
            self.harness.end(
                client.producer, commit=commit, transactional_id=client.transactional_id
            )
        except KafkaError as error:
            self.failed(client, error)
            return
        except KilledError:
            self.unknown.append(client.written) if commit else self.aborted.append(client.written)
            if commit:
                self.offsets.add(client.offset)
            del self.clients[client.transactional_id]
            raise
        (self.committed if commit else self.aborted).append(client.written)
        if commit and client.offset is not None:
            self.offsets.add(client.offset)
        client.added, client.written, client.offset, client.is_open = set(), [], None, False

    def failed(self, client: Client, error: KafkaError) -> None:
        """A client gives up its transaction where the error is not retriable."""
        if error.retriable or error.code in {
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.KAFKA_STORAGE_ERROR,
        }:
            self.harness.clock.advance(1_000)
            return
        assert error.code in {
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_TXN_STATE,
        }, error
        self.drop(client)

    def drop(self, client: Client) -> None:
        self.aborted.append(client.written)
        self.clients.pop(client.transactional_id, None)

    def wait(self) -> None:
        """Time passes; what is open for too long is aborted."""
        self.harness.clock.advance(self.random.choice((10, 1_000, TIMEOUT_MS // 2, 2 * TIMEOUT_MS)))
        self.harness.transactions.abort_expired()

    def look(self) -> None:
        """What a consumer may see at any time: only what was committed, or may have been."""
        allowed = {value for each in (*self.committed, *self.unknown) for _, value in each}
        for index in range(self.harness.partitions):
            found = self.harness.read(index, max_bytes=self.random.choice((1, 200, 1 << 20)))
            assert len(found) == len(set(found))
            assert set(found) <= allowed

    # -- the end -------------------------------------------------------------------------------

    def end_everything(self) -> None:
        """No more faults; everything that is open ends by its time, or by its client's."""
        self.recover()
        self.harness.clock.advance(2 * TIMEOUT_MS)
        self.harness.transactions.abort_expired()
        for client in self.clients.values():
            self.aborted.append(client.written)
        self.harness.clock.advance(10_000)

    def check(self) -> None:
        for index in range(self.harness.partitions):
            partition = self.harness.partition(index)
            assert partition.last_stable_offset == partition.high_watermark
        for max_bytes in (1, 300, 1 << 20):
            found = [
                self.harness.read(i, max_bytes=max_bytes) for i in range(self.harness.partitions)
            ]
            for values in found:
                assert len(values) == len(set(values))
            there = {(i, value) for i, values in enumerate(found) for value in values}
            for written in self.committed:
                assert set(written) <= there, "committed, and not there"
            for written in self.aborted:
                assert not set(written) & there, "aborted, and there"
            for written in self.unknown:
                assert set(written) <= there or not set(written) & there, "in part"
            known = {each for w in (*self.committed, *self.unknown) for each in w}
            assert there <= known
        assert self.harness.committed() in self.offsets
        assert self.harness.groups.offsets.undecided("g") == set()


@pytest.mark.parametrize("seed", range(6))
def test_transactions_are_all_or_nothing_whenever_the_broker_is_killed(seed: int) -> None:
    """Pitfall 29: aborted transactions are sorted by their first offset, in any order of ends."""
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.end_everything()
    world.check()
    assert world.committed, f"seed {seed} committed nothing"
    assert world.aborted, f"seed {seed} aborted nothing"
    world.harness = world.harness.after_a_stop()
    world.check()


class PowerlessWorld(World):
    """The machine loses its power, and with it any part of what has not been synced."""

    def recover(self) -> None:
        for client in list(self.clients.values()):
            self.drop(client)
        while True:
            try:
                self.harness = self.harness.after(self.harness.files.power_cut(self.random))
                return
            except KilledError:
                continue

    def failed(self, client: Client, error: KafkaError) -> None:
        self.drop(client)

    def look(self) -> None:
        """What was never synced may be gone, or half of it: there is nothing to hold it against."""


@pytest.mark.parametrize("seed", range(20))
def test_no_transaction_hangs_whatever_a_power_cut_takes(seed: int) -> None:
    """Read_committed consumers get past it, in pieces of any size, and the group's offsets are
    decided."""
    world = PowerlessWorld(seed)
    for _ in range(STEPS // 2):
        world.step()
    world.end_everything()
    for index in range(world.harness.partitions):
        partition = world.harness.partition(index)
        assert partition.last_stable_offset == partition.high_watermark
        for max_bytes in (1, 300, 1 << 20):
            world.harness.read(index, max_bytes=max_bytes)
    assert world.harness.groups.offsets.undecided("g") == set()
