"""Connections over raw sockets: the order of answers, hostile frames, ApiVersions, acks=0."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Callable

import pytest

from penstock_broker.errors import ErrorCode
from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import ConnectionClosed, RawClient
from penstock_broker.wire.apis import APIS
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock_broker.wire.schema import decode


def batch(*values: bytes, timestamp: int = 1_700_000_000_000) -> bytes:
    return bytes(build_batch([NewRecord(None, value, timestamp) for value in values]))


def produce(topic: str, records: bytes, *, acks: int = -1, partition: int = 0) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(records))
    return ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch(
    topic: str,
    offset: int = 0,
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
) -> FetchRequest:
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes
    )
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def create(client: RawClient, topic: str) -> None:
    """By metadata, as producers do it."""
    answer = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
    assert answer.topics[0].error_code == 0
    assert answer.topics[0].partitions[0].leader_id == 0, "pitfall 48: a leader at once"


def latest(topic: str) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])


# -- order --------------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_requests_behind_a_parked_fetch(
    raw: RawClient, broker: BrokerProcess, topic: str
) -> None:
    create(raw, topic)
    first = raw.send(fetch(topic, wait_ms=10_000), 11)
    second = raw.send(latest(topic), 5)
    third = raw.send(ApiVersionsRequest(), 0)
    assert raw.is_silent(0.3), "everything waits behind the fetch"
    with RawClient(broker.host, broker.port) as other:
        answer = other.ask(produce(topic, batch(b"wake")), 8)
        assert answer.responses[0].partition_responses[0].error_code == 0
    answers = [raw.receive() for _ in range(3)]
    assert [correlation for correlation, _ in answers] == [first, second, third]
    assert len(answers[0][1].responses[0].partitions[0].records) > 0
    assert answers[1][1].topics[0].partitions[0].offset == 0, "asked before the append"


def test_a_parked_fetch_is_answered_when_its_time_is_up(raw: RawClient, topic: str) -> None:
    """Pitfall 40: neither at once nor never."""
    create(raw, topic)
    began = time.monotonic()
    answer = raw.ask(fetch(topic, wait_ms=400), 12)
    assert time.monotonic() - began > 0.35
    assert answer.responses[0].partitions[0].error_code == 0
    assert len(answer.responses[0].partitions[0].records) == 0


def test_a_fetch_waits_for_min_bytes_over_several_appends(
    raw: RawClient, broker: BrokerProcess, topic: str
) -> None:
    create(raw, topic)
    one = batch(b"x" * 100)
    raw.send(fetch(topic, wait_ms=10_000, min_bytes=2 * len(one)), 11)
    with RawClient(broker.host, broker.port) as other:
        other.ask(produce(topic, one), 8)
        assert raw.is_silent(0.2)
        other.ask(produce(topic, one), 8)
    _, answer = raw.receive()
    assert len(answer.responses[0].partitions[0].records) == 2 * len(one)


def test_many_requests_in_one_segment_are_answered_in_order(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    frames = b"".join(raw.frame(produce(topic, batch(b"%d" % n)), 9) for n in range(500))
    raw.send_bytes(frames)
    offsets = [raw.receive()[1].responses[0].partition_responses[0].base_offset for _ in range(500)]
    assert offsets == list(range(500))


def test_a_request_that_comes_byte_by_byte(raw: RawClient) -> None:
    for byte in raw.frame(MetadataRequest(topics=[]), 9):
        raw.send_bytes(bytes([byte]))
    assert raw.receive()[1].cluster_id


def test_a_client_that_never_reads_is_not_read_from(raw: RawClient, topic: str) -> None:
    """It cannot make the broker hold its answers: the broker stops taking its requests."""
    create(raw, topic)
    raw.ask(produce(topic, batch(os.urandom(600_000))), 8)
    frame = raw.frame(fetch(topic, max_bytes=1 << 20), 11)
    raw.socket.settimeout(1.0)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 64 << 20:
            sent += raw.socket.send(frame * 100)


# -- ApiVersions --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_api_versions_in_each_version(raw: RawClient, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1.0")
    answer = raw.ask(request, version)
    assert answer.error_code == 0
    table = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert table[0] == (0, 11), "librdkafka up to 2.11.0 wants Produce 0, or drops compression"
    assert table[1] == (4, 17)
    assert table[3] == (0, 12)
    assert table[18] == (0, 4)
    assert {11, 12, 13, 14} <= {key for key, (low, _) in table.items() if low == 0}


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_from_the_future_is_answered_as_version_0(
    raw: RawClient, version: int
) -> None:
    """Protocol page 2.5, rule 3: error 35, in v0, with the entry of ApiVersions."""
    body = struct.pack(">hhih", 18, version, 77, 3) + b"abc" + b"\0future\0"
    raw.send_bytes(struct.pack(">i", len(body)) + body)
    frame = raw.receive_frame()
    assert struct.unpack_from(">i", frame) == (77,)
    answer, end = decode(ApiVersionsResponse, 0, memoryview(frame), 4)
    assert end == len(frame)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]
    assert raw.ask(ApiVersionsRequest(), 0).error_code == 0, "and the connection continues"


@pytest.mark.parametrize("name", ["", "-dash", "spa ce", "x" * 10 + "\n"])
def test_api_versions_refuses_bad_software_names(raw: RawClient, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert raw.ask(request, 3).error_code == ErrorCode.INVALID_REQUEST


# -- hostile ------------------------------------------------------------------------------------


def test_an_unknown_api_or_version_closes_the_connection(broker: BrokerProcess) -> None:
    """Pitfall 44."""
    for key, version in [(999, 0), (68, 0), (0, 2), (0, 10), (1, 3), (1, 13), (3, 13), (-1, -1)]:
        with RawClient(broker.host, broker.port) as client:
            body = struct.pack(">hhih", key, version, 1, 0) + b"\0" * 40
            client.send_bytes(struct.pack(">i", len(body)) + body)
            assert client.is_closed(), (key, version)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 100 * 1024 * 1024 + 1),
        struct.pack(">i", 0),
        struct.pack(">i", 4) + b"\0\0\0\0",
        struct.pack(">ihhih", 10, 3, 9, 1, 32_000),
        struct.pack(">ihhih", 10, 3, 9, 1, -2),
        struct.pack(">ihhih", 12, 3, 1, 1, 2) + b"\xff\xfe",
        # Produce v9 with a topic array of 2^32-2 entries (protocol page 1.4).
        struct.pack(">ihhih", 26, 0, 9, 1, 0) + b"\0\0\0\1\0\0\0\0\xff\xff\xff\xff\x0f" + b"\0" * 3,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
    ],
)
def test_hostile_frames_close_the_connection(broker: BrokerProcess, data: bytes) -> None:
    with RawClient(broker.host, broker.port) as client:
        client.send_bytes(data)
        assert client.is_closed()


def test_random_bodies_of_every_api_are_answered_or_closed(broker: BrokerProcess) -> None:
    """ "An answer or a closed connection": the fixture finds any traceback in the log."""
    seed = 20_261_121
    chance = random.Random(seed)
    apis = [a for a in APIS.values() if a.key not in {19, 20, 37}]
    for _ in range(600):
        api = chance.choice(apis)
        version = chance.choice(api.versions)
        noise = chance.randbytes(chance.choice([0, 1, 12, 40, 200]))
        if chance.random() < 0.5:
            noise = bytes(byte & chance.choice([0, 1, 3, 255]) for byte in noise)
        body = struct.pack(">hhih", api.key, version, 5, -1) + noise
        with RawClient(broker.host, broker.port) as client:
            client.socket.settimeout(0.5)
            client.send_bytes(struct.pack(">i", len(body)) + body)
            client.socket.shutdown(socket.SHUT_WR)
            try:
                client.socket.recv(4)
            except (TimeoutError, ConnectionError):
                pytest.fail(f"seed {seed}: {api.name} v{version} {noise.hex()} hangs")
    with RawClient(broker.host, broker.port) as client:
        assert client.ask(MetadataRequest(topics=[]), 9).cluster_id


def test_a_client_that_leaves_while_its_fetch_waits(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.host, broker.port) as client:
        create(client, topic)
        client.send(fetch(topic, wait_ms=30_000), 11)
        assert client.is_silent(0.1)
    with RawClient(broker.host, broker.port) as client:
        answer = client.ask(produce(topic, batch(b"no answer")), 8)
        assert answer.responses[0].partition_responses[0].error_code == 0


# -- acks=0 -------------------------------------------------------------------------------------


def test_acks_0_is_never_answered(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    raw.send(produce(topic, batch(b"one"), acks=0), 8)
    answer = raw.ask(latest(topic), 5)
    assert answer.topics[0].partitions[0].offset == 1


def test_an_error_with_acks_0_closes_the_connection(raw: RawClient, topic: str) -> None:
    raw.send(produce(topic, batch(b"no such topic"), acks=0), 8)
    assert raw.is_closed()


# -- bounds -------------------------------------------------------------------------------------


def test_connection_limits(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker(max_connections="3")
    clients = [RawClient(broker.host, broker.port) for _ in range(3)]
    for client in clients:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    with RawClient(broker.host, broker.port) as refused:
        assert refused.is_closed()
    clients.pop().close()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with RawClient(broker.host, broker.port) as again:
            try:
                assert again.ask(ApiVersionsRequest(), 0).error_code == 0
                break
            except ConnectionClosed:
                continue
    else:
        pytest.fail("there is space, and no connection is accepted")
    for client in clients:
        client.close()


def test_silent_connections_are_ended(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker(connections_max_idle_ms="1000")
    with (
        RawClient(broker.host, broker.port) as silent,
        RawClient(broker.host, broker.port) as half,
        RawClient(broker.host, broker.port) as waiting,
    ):
        create(waiting, "idle")
        half.send_bytes(b"\0\0")
        waiting.send(fetch("idle", wait_ms=4_000), 11)
        assert silent.is_closed()
        assert half.is_closed()
        assert waiting.receive()[1].responses[0].partitions[0].error_code == 0, "it waits for us"


def test_requests_above_the_limit_close_before_they_are_read(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    """Pitfall 20."""
    broker = new_broker(socket_request_max_bytes="1000")
    with RawClient(broker.host, broker.port) as client:
        client.send_bytes(struct.pack(">i", 1001))
        assert client.is_closed()
