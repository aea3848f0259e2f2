"""Quotas at work: answered at once, then not read from; real clients at the rate that is set."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer

from penstock_broker.errors import ErrorCode
from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterEntityData,
    AlterEntryData,
    OpData,
)
from penstock_broker.wire.messages.api_versions import ApiVersionsRequest
from penstock_broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock_broker.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

Entity = dict[str, str | None]
ASK = ApiVersionsRequest()


def alter(
    client: RawClient, entity: Entity, *, check: bool = False, **values: float | None
) -> ErrorCode:
    entry = AlterEntryData(
        entity=[
            AlterEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[OpData(key=k, value=v or 0.0, remove=v is None) for k, v in values.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=check)
    (answer,) = client.ask(request, 1).entries
    assert {e.entity_type: e.entity_name for e in answer.entity} == entity
    return ErrorCode(answer.error_code)


def describe(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[frozenset, dict[str, float]]:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=k, match_type=m, match=n) for k, m, n in components],
        strict=strict,
    )
    answer = client.ask(request, 1)
    if answer.error_code:
        raise AssertionError(ErrorCode(answer.error_code).name)
    return {
        frozenset((e.entity_type, e.entity_name) for e in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def produce(topic: str, size: int, *, acks: int = 1) -> ProduceRequest:
    batch = bytes(build_batch([NewRecord(None, b"x" * size, 1_700_000_000_000)]))
    data = PartitionProduceData(index=0, records=memoryview(batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch(topic: str) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def create(client: RawClient, topic: str) -> None:
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    assert client.ask(wanted, 9).topics[0].error_code == 0


@pytest.fixture
def own(new_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return new_broker()


def test_a_throttled_client_is_answered_at_once_and_then_not_read(own: BrokerProcess) -> None:
    """Pitfall 45: the answer says how long, and comes before the wait, not after it (KIP-219)."""
    with RawClient(own.host, own.port, client_id="slow") as slow:
        create(slow, "t")
        assert alter(slow, {"client-id": "slow"}, producer_byte_rate=10_000) is ErrorCode.NONE
        began = time.monotonic()
        answer = slow.ask(produce("t", 20_000), 8)
        assert answer.responses[0].partition_responses[0].error_code == 0, "it is done"
        assert 900 < answer.throttle_time_ms < 1_100, "20 kB, 10 kB at once and then 10 kB a second"
        with RawClient(own.host, own.port, client_id="quick") as quick:
            assert quick.ask(produce("t", 20_000), 8).throttle_time_ms == 0
        slow.send(ASK, 0)
        assert slow.is_silent(0.6), "muted"
        assert slow.receive()[1].error_code == 0
        assert time.monotonic() - began > 0.9


def test_acks_0_and_fetches_are_muted_too(own: BrokerProcess) -> None:
    """Pitfall 45: a Produce without an answer has only the mute; a Fetch is charged its records."""
    with RawClient(own.host, own.port, client_id="slow") as slow:
        create(slow, "t")
        alter(slow, {"client-id": None}, producer_byte_rate=10_000, consumer_byte_rate=10_000)
        began = time.monotonic()
        slow.send(produce("t", 15_000, acks=0), 8)
        slow.ask(ASK, 0)
        assert time.monotonic() - began > 0.4
        began = time.monotonic()
        answer = slow.ask(fetch("t"), 11)
        assert 400 < answer.throttle_time_ms < 600
        slow.ask(ASK, 0)
        assert time.monotonic() - began > 0.4


def test_requests_are_charged_their_time(own: BrokerProcess) -> None:
    with RawClient(own.host, own.port, client_id="busy") as busy:
        alter(busy, {"user": "ANONYMOUS", "client-id": "busy"}, request_percentage=0.1)
        everything = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{n}") for n in range(50)])
        began = time.monotonic()
        busy.ask(everything, 9)
        asked = time.monotonic() - began
        busy.ask(ASK, 0)
        waited = time.monotonic() - began - asked
        assert waited > 0.8


def test_partitions_are_made_and_deleted_at_a_rate(own: BrokerProcess) -> None:
    """KIP-599: refused while there is a debt, in versions that know the error."""

    def made(name: str, partitions: int) -> CreateTopicsRequest:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        return CreateTopicsRequest(topics=[topic], timeout_ms=1_000)

    with RawClient(own.host, own.port, client_id="maker") as maker:
        alter(maker, {"client-id": "maker"}, controller_mutation_rate=20)
        answer = maker.ask(made("a", 240), 7)
        assert answer.topics[0].error_code == 0, "ten seconds of the rate may come at once"
        assert 500 < answer.throttle_time_ms <= 2_000
        with RawClient(own.host, own.port, client_id="maker") as another:
            answer = another.ask(made("c", 1), 7)
            assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert 0 < answer.throttle_time_ms <= 2_000
        with RawClient(own.host, own.port, client_id="maker") as old:
            answer = old.ask(made("d", 1), 5)
            assert answer.topics[0].error_code == 0, "it does not know the error, and waits"


def test_a_quota_that_is_removed_holds_no_more(own: BrokerProcess) -> None:
    with RawClient(own.host, own.port, client_id="c") as client:
        create(client, "t")
        alter(client, {"user": None}, producer_byte_rate=1_000_000)
        assert client.ask(produce("t", 500), 9).throttle_time_ms == 0
        alter(client, {"user": None}, producer_byte_rate=1_000)
        assert client.ask(produce("t", 1_500), 9).throttle_time_ms > 0
        alter(client, {"user": None}, producer_byte_rate=None)
        assert client.ask(produce("t", 5_000), 9).throttle_time_ms == 0
        assert describe(client) == {}


def test_what_is_set_is_described_and_outlives_a_restart(own: BrokerProcess) -> None:
    both = {"user": "u", "client-id": None}
    with RawClient(own.host, own.port) as client:
        assert alter(client, both, producer_byte_rate=5, request_percentage=50.5) is ErrorCode.NONE
        assert alter(client, {"ip": "10.0.0.1"}, connection_creation_rate=3) is ErrorCode.NONE
        assert alter(client, both, check=True, producer_byte_rate=7) is ErrorCode.NONE
        assert alter(client, both, producer_byte_rate=0.5) is ErrorCode.INVALID_REQUEST
        assert alter(client, {"shoe": "x"}, producer_byte_rate=5) is ErrorCode.INVALID_REQUEST
    own.restart()
    expected = {"producer_byte_rate": 5.0, "request_percentage": 50.5}
    with RawClient(own.host, own.port) as client:
        assert describe(client, ("user", 0, "u")) == {frozenset(both.items()): expected}
        assert describe(client, ("user", 0, "u"), strict=True) == {}
        assert describe(client, ("user", 2, None), ("client-id", 1, None), strict=True) == {
            frozenset(both.items()): expected
        }
        assert len(describe(client)) == 2
        for bad in [
            [("user", 0, None)],
            [("user", 1, "u")],
            [("user", 9, None)],
            [("", 2, None)],
            [("user", 2, None), ("user", 2, None)],
            [("ip", 2, None), ("user", 2, None)],
            [("shoe", 2, None)],
        ]:
            with pytest.raises(AssertionError, match=r"INVALID_REQUEST|UNSUPPORTED_VERSION"):
                describe(client, *bad)  # type: ignore[arg-type]


def test_real_clients_come_to_their_quota(own: BrokerProcess) -> None:
    """librdkafka waits as it is asked to, says so, and stays within 15 % of the rate."""
    rate, count = 600_000, 4_200
    with RawClient(own.host, own.port) as client:
        entity: Entity = {"client-id": "librdkafka"}
        alter(client, entity, producer_byte_rate=rate, consumer_byte_rate=rate)
    throttles: list[float] = []
    settings = {
        "bootstrap.servers": own.bootstrap,
        "client.id": "librdkafka",
        "throttle_cb": lambda event: throttles.append(event.throttle_time),
    }
    producer = Producer(settings | {"batch.size": 60_000, "linger.ms": 5})
    began = time.monotonic()
    for _ in range(count):
        producer.produce("t", b"x" * 1_000)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert len(throttles) > 3
    # One second of the rate may come at once.
    produced = (count * 1_000 - rate) / (time.monotonic() - began)
    assert produced < 1.15 * rate
    throttles.clear()
    consumer = Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    read, began = 0, time.monotonic()  # librdkafka fetches before the application polls
    deadline = began + 120
    consumer.subscribe(["t"])
    while read < count and time.monotonic() < deadline:
        read += len(consumer.consume(500, 0.2))
    consumed = (count * 1_000 - rate) / (time.monotonic() - began)
    consumer.close()
    assert throttles
    assert read == count
    assert consumed < 1.15 * rate
