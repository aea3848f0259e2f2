"""Groups as real clients make them: every assignor, members that come, go, restart and die.

One test body per story, run by several client families that share no code.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor as PythonRange
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as PythonRoundRobin
from kafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as PythonSticky,
)
from kafka.errors import KafkaError as PythonError

from penstock_broker.testing.broker_process import BrokerProcess
from polling import until, until_async

WAIT = 120.0
PARTITIONS = 6


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def wide_topic(broker: BrokerProcess, topic: str) -> str:
    """A topic with six partitions."""
    create(broker, topic)
    return topic


def create(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT)


def produce(broker: BrokerProcess, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, b"%d" % value, partition=value % PARTITIONS)
    assert producer.flush(WAIT) == 0


class Member:
    """A librdkafka consumer that is polled, commits what it has seen, and counts rebalances."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, **settings: Any) -> None:
        self.seen: set[int] = set()
        self.assignments = 0
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 100,
                "reconnect.backoff.max.ms": 200,
                **given,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, _consumer: Consumer, _places: list[TopicPartition]) -> None:
        self.assignments += 1

    def poll(self) -> None:
        for message in self.consumer.consume(50, 0.05):
            if message.error() is None:
                self.seen.add(int(message.value()))
        with suppress(KafkaException):  # no offset yet, or a rebalance: the next one will do
            self.consumer.commit(asynchronous=False)

    def share(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}


def poll_until_shared(members: list[Member]) -> None:
    """Poll until every partition has an owner and each member has its share."""
    deadline = time.monotonic() + WAIT
    even = PARTITIONS // len(members)
    while True:
        for member in members:
            member.poll()
        shares = [member.share() for member in members]
        total = sum(len(share) for share in shares)
        if total == len(set().union(*shares)) == PARTITIONS and min(map(len, shares)) >= even:
            return
        assert time.monotonic() < deadline, f"the partitions are not shared evenly: {shares}"


def read_all(members: list[Member], gone: list[Member], values: range) -> None:
    deadline = time.monotonic() + WAIT
    while missing := set(values) - set().union(*(m.seen for m in members + gone)):
        assert time.monotonic() < deadline, f"{len(missing)} records were not consumed"
        for member in members:
            member.poll()


# -- librdkafka ---------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_rolling_restart_of_members_consumes_everything(
    broker: BrokerProcess, wide_topic: str, group: str, strategy: str
) -> None:
    """Pitfall 35: each goodbye and each newcomer ends in an even group."""
    settings = {"partition_assignment_strategy": strategy}
    members = [Member(broker, group, wide_topic, **settings) for _ in range(3)]
    gone: list[Member] = []
    poll_until_shared(members)
    for turn in range(2):
        produce(broker, wide_topic, range(turn * 60, turn * 60 + 60))
        leaving = members.pop(0)
        leaving.consumer.close()
        gone.append(leaving)
        poll_until_shared(members)
        members.append(Member(broker, group, wide_topic, **settings))
        poll_until_shared(members)
    read_all(members, gone, range(120))
    for member in members:
        member.consumer.close()


def test_static_members_restart_without_a_rebalance(
    broker: BrokerProcess, wide_topic: str, group: str
) -> None:
    """Pitfall 36: they say no goodbye, and the others notice nothing."""

    def start(number: int) -> Member:
        return Member(broker, group, wide_topic, group_instance_id=f"i-{number}")

    members = [start(number) for number in range(3)]
    poll_until_shared(members)
    before = [member.share() for member in members]
    counts = [member.assignments for member in members]
    for number in range(3):
        members[number].consumer.close()
        members[number] = start(number)
        poll_until_shared(members)
        counts[number] = 1
        assert [member.share() for member in members] == before
        assert [member.assignments for member in members] == counts
    for member in members:
        member.consumer.close()


def test_a_group_lives_through_restarts_of_the_broker(
    new_broker: Callable[..., BrokerProcess], topic: str, group: str
) -> None:
    """Pitfall 38: its members are known to the broker that comes back, in their generation."""
    broker = new_broker()
    create(broker, topic)
    members = [Member(broker, group, topic) for _ in range(2)]
    produce(broker, topic, range(60))
    poll_until_shared(members)
    before = [(member.share(), member.assignments) for member in members]
    for turn in range(1, 3):
        if turn == 1:
            broker.stop()
        else:
            broker.kill()
        broker.start()
        produce(broker, topic, range(60 * turn, 60 * turn + 60))
        read_all(members, [], range(60 * turn + 60))
    poll_until_shared(members)
    assert [(member.share(), member.assignments) for member in members] == before
    for member in members:
        member.consumer.close()
    source = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    assert sum(place.offset for place in source.committed(places, WAIT)) == 180
    source.close()


def test_a_commit_of_a_former_generation_is_refused(
    broker: BrokerProcess, wide_topic: str, group: str
) -> None:
    """Pitfall 37: during the rebalance the old generation may commit, afterwards it may not."""
    first = Member(broker, group, wide_topic)
    poll_until_shared([first])
    second = Member(broker, group, wide_topic)
    poll_until_shared([first, second])
    outsider = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    with pytest.raises(KafkaException) as refused:  # pitfall 39: a simple consumer
        outsider.commit(offsets=[TopicPartition(wide_topic, 0, 1)], asynchronous=False)
    assert refused.value.args[0].name() == "UNKNOWN_MEMBER_ID"
    for member in (first, second):
        member.consumer.close()
    outsider.commit(offsets=[TopicPartition(wide_topic, 0, 1)], asynchronous=False)
    outsider.close()


# -- kafka-python -------------------------------------------------------------------------------


class PythonMember(threading.Thread):
    """A kafka-python consumer in a thread of its own."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, assignor: type) -> None:
        super().__init__()
        self.share: set[int] = set()
        self.stopping = threading.Event()
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=100,
            partition_assignment_strategy=[assignor],
        )

    def run(self) -> None:
        while not self.stopping.is_set():
            # A poll that is over before its join is leaves kafka-python 3.0.12 turning in circles
            # (against Apache Kafka, too), so it gets time.
            with suppress(PythonError):
                self.consumer.poll(1_500)
            self.share = {place.partition for place in self.consumer.assignment()}
        self.consumer.close()

    def stop(self) -> None:
        self.stopping.set()
        self.join(WAIT)
        self.share = set()


@pytest.fixture
def python_members() -> Iterator[list[PythonMember]]:
    members: list[PythonMember] = []
    yield members
    for member in members:
        member.stop()


def are_even(shares: list[set[int]]) -> bool:
    """Whether every partition is in one share, and all shares have one size."""
    size = PARTITIONS // len(shares)
    return all(len(s) == size for s in shares) and len(set().union(*shares)) == PARTITIONS


def await_even(members: list[PythonMember]) -> None:
    until("the members share evenly", lambda: are_even([member.share for member in members]))


@pytest.mark.parametrize(
    "assignor", [PythonRange, PythonRoundRobin, PythonSticky, CooperativeStickyAssignor]
)
def test_kafka_python_shares_with_each_of_its_assignors(
    broker: BrokerProcess,
    wide_topic: str,
    group: str,
    assignor: type,
    python_members: list[PythonMember],
) -> None:
    for _ in range(2):
        member = PythonMember(broker, group, wide_topic, assignor)
        python_members.append(member)
        member.start()
    await_even(python_members)
    python_members.pop().stop()
    await_even(python_members)


# -- aiokafka -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
)
async def test_aiokafka_shares_with_each_of_its_assignors(
    broker: BrokerProcess, wide_topic: str, group: str, assignor: type
) -> None:
    def member(number: int) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            wide_topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            group_instance_id=f"a-{number}" if assignor is StickyPartitionAssignor else None,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=100,
            partition_assignment_strategy=[assignor],
        )

    members = [member(number) for number in range(3)]
    await asyncio.gather(*(each.start() for each in members))

    async def even(among: list[AIOKafkaConsumer]) -> None:
        def holds() -> bool:
            return are_even([{place.partition for place in each.assignment()} for each in among])

        await until_async("the members share evenly", holds)

    await even(members)
    if assignor is not StickyPartitionAssignor:  # its members are static: they do not leave
        await members.pop().stop()
        await even(members)
    for each in members:
        await each.stop()


# -- together -----------------------------------------------------------------------------------


def test_two_families_share_one_group(
    broker: BrokerProcess, wide_topic: str, group: str, python_members: list[PythonMember]
) -> None:
    """The leader assigns to all members, from the metadata that they sent to the broker."""
    first = Member(broker, group, wide_topic, partition_assignment_strategy="range")
    python_members.append(PythonMember(broker, group, wide_topic, PythonRange))
    python_members[0].start()
    deadline = time.monotonic() + WAIT
    while True:
        first.poll()
        shares = [first.share(), python_members[0].share]
        if all(len(s) == 3 for s in shares) and len(set().union(*shares)) == PARTITIONS:
            break
        assert time.monotonic() < deadline, f"the partitions are not shared evenly: {shares}"
    first.consumer.close()
