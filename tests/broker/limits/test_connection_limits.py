"""Clients that come too fast, send too slowly, read nothing, or ask for too much at once."""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any

import pytest
from in_process import Link, frame_of, with_broker

from penstock_broker.config import BrokerConfig, ConfigError
from penstock_broker.errors import ErrorCode
from penstock_broker.server.broker import Broker
from penstock_broker.server.connection import OUT_BYTES_MAX
from penstock_broker.wire.framing import CAPACITY, FIRST_CAPACITY
from penstock_broker.wire.messages.api_versions import ApiVersionsRequest
from penstock_broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.init_producer_id import InitProducerIdRequest
from penstock_broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from polling import until_async

ASK = ApiVersionsRequest()


def fetch(topic: str, wait_ms: int, *, times: int = 1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted] * times)],
    )


async def _muted(broker: Broker) -> None:
    link = Link(broker)
    link.connection.mute(30.0)
    first = link.connection._muted
    link.connection.mute(0.001)
    assert link.connection._muted is first, "a short silence does not end a longer one"
    link.connection.mute(60.0)
    second = link.connection._muted
    assert first is not None
    assert second is not None
    assert second.when() > first.when()
    link.close()


def test_a_mute_never_shortens_a_longer_one() -> None:
    with_broker(_muted)


# -- how many, how fast -------------------------------------------------------------------------


def test_connections_from_one_address() -> None:
    """Pitfall 46: per address, with exceptions, and in all."""

    async def body(broker: Broker) -> None:
        near = [Link(broker, "10.0.0.1") for _ in range(3)]
        far = [Link(broker, "::1") for _ in range(4)]
        await asyncio.sleep(0)
        assert [link.is_closed for link in near] == [False, False, True]
        assert [link.is_closed for link in far] == [False, False, False, True]
        others = [Link(broker, f"10.0.1.{n}") for n in range(2)]
        assert [link.is_closed for link in others] == [False, True], "max.connections is 6"
        near[0].close()
        assert not Link(broker, "10.0.0.1").is_closed

    with_broker(
        body,
        max_connections=6,
        max_connections_per_ip=2,
        max_connections_per_ip_overrides="[::1]:3",
    )


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:x", ":5", "10.0.0.1:-1"])
def test_bad_overrides_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig.parse({"max.connections.per.ip.overrides": text})


def test_connections_beyond_the_rate_wait_for_their_turn() -> None:
    """Pitfall 46, KIP-612: ``max.connection.creation.rate``."""

    async def body(broker: Broker) -> None:
        links = [Link(broker) for _ in range(40)]
        held = [link for link in links if link.transport.is_paused]
        assert held, "ten at once, and ten a second while these forty were made"
        assert not links[0].transport.is_paused
        assert await links[0].ask(ASK, 0)
        await until_async(
            "all are read", lambda: not any(link.transport.is_paused for link in links)
        )
        assert await links[-1].ask(ASK, 0), "it is served when it is its turn"

    with_broker(body, max_connection_creation_rate=10)


def test_an_address_beyond_its_rate_is_held_and_closed() -> None:
    """Pitfall 46, KIP-612: the quota ``connection_creation_rate`` of an address."""

    async def body(broker: Broker) -> None:
        broker.quotas.alter([("ip", "10.0.0.1")], {"connection_creation_rate": 2})
        broker.quotas.save()
        links = [Link(broker, "10.0.0.1") for _ in range(3)]
        other = Link(broker, "10.0.0.2")
        assert [link.transport.is_paused for link in links] == [False, False, True]
        assert not other.transport.is_paused
        began = time.monotonic()
        await until_async("the third connection ends", lambda: links[2].is_closed)
        assert time.monotonic() - began > 0.3
        assert not links[0].is_closed

    with_broker(body)


def test_connections_end_where_descriptors_do() -> None:
    async def body(broker: Broker) -> None:
        limits = broker.listeners.limits
        limits._descriptors = len(limits) + 2 + 128
        limits._other_files = 0
        links = [Link(broker) for _ in range(4)]
        assert [link.is_closed for link in links] == [False, False, True, True]
        assert await links[0].ask(ASK, 0)

    with_broker(body)


# -- slow ---------------------------------------------------------------------------------------


def test_a_request_that_comes_byte_by_byte_ends_the_connection() -> None:
    """Pitfall 46: a frame has ``request.receive.timeout.ms``, however little is sent and often."""

    async def body(broker: Broker) -> None:
        half, drip, silent = Link(broker), Link(broker), Link(broker)
        data = frame_of(MetadataRequest(topics=None), 9, client="c" * 1_000)
        half.put(data[:7])
        rest = iter(data)

        def next_byte_ends_it() -> bool:
            drip.put(bytes([next(rest)]))
            return drip.is_closed

        await until_async("the slow connection ends", next_byte_ends_it)
        assert half.is_closed
        assert not silent.is_closed, "it has begun nothing"
        assert await silent.ask(ASK, 0)

    with_broker(body, request_receive_timeout_ms=300)


def test_a_large_request_that_keeps_coming_may_take_longer() -> None:
    async def body(broker: Broker) -> None:
        link = Link(broker)
        link.put(struct.pack(">i", 50 << 20))
        began = time.monotonic()

        def next_part_is_late() -> bool:
            link.put(bytes(100_000))
            return time.monotonic() - began > 1.5

        await until_async("five times the timeout has passed", next_part_is_late)
        assert not link.is_closed

    with_broker(body, request_receive_timeout_ms=300)


def test_a_client_that_reads_nothing_is_ended() -> None:
    """What it holds until then is bounded: its requests are not read any more."""

    async def body(broker: Broker) -> None:
        for number in range(3):
            broker.topics.create(f"{number}-{'x' * 200}", 50, {})
        link, other = Link(broker), Link(broker)
        request = frame_of(MetadataRequest(topics=None), 9)
        for _ in range(10_000):
            # It is paused after a request that took long, too, for a moment.
            if link.transport.is_paused and link.connection.unsent_bytes > OUT_BYTES_MAX:
                break
            link.put(request)
            await asyncio.sleep(0)
        held = link.connection.unsent_bytes
        assert OUT_BYTES_MAX < held < OUT_BYTES_MAX + 200_000
        await until_async("the connection ends", lambda: link.is_closed)
        assert link.connection.unsent_bytes == 0
        assert await other.ask(ASK, 0)

    with_broker(body, response_send_timeout_ms=10_000)


def test_those_who_leave_most_unread_go_first() -> None:
    """``queued.max.response.bytes`` over all connections."""

    async def body(broker: Broker) -> None:
        for number in range(3):
            broker.topics.create(f"{number}-{'x' * 200}", 50, {})
        request = frame_of(MetadataRequest(topics=None), 9)
        links = [Link(broker) for _ in range(4)]
        for share, link in enumerate(links, start=1):
            for _ in range(10_000):
                if link.transport.is_paused or link.connection.unsent_bytes > share * 200_000:
                    break
                link.put(request)
        await until_async("the one that leaves most unread ends", lambda: links[-1].is_closed)
        assert not links[0].is_closed

    with_broker(body, queued_max_response_bytes=1_500_000)


def test_answers_that_wait_behind_another_are_bounded() -> None:
    """A parked fetch, and after it on the same connection requests with large answers."""

    async def body(broker: Broker) -> None:
        broker.topics.create("t", 1, {})
        for number in range(3):
            broker.topics.create(f"{number}-{'x' * 200}", 50, {})
        link = Link(broker)
        link.put(frame_of(fetch("t", 60_000), 11))
        request = frame_of(MetadataRequest(topics=None), 9)
        for _ in range(10_000):
            if link.transport.is_paused:
                break
            link.put(request)
        held = sum(len(b"".join(p.parts)) for p in link.connection._pending if p.parts)
        assert held < OUT_BYTES_MAX + 200_000

    with_broker(body)


# -- memory -------------------------------------------------------------------------------------


def test_an_idle_connection_holds_next_to_nothing() -> None:
    async def body(broker: Broker) -> None:
        link = Link(broker)
        frames = link.connection._frames
        assert len(frames._view) == FIRST_CAPACITY
        await link.ask(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 200)] * 100), 9)
        assert len(frames._view) >= CAPACITY
        link.connection.active_at -= 60
        await until_async("the buffer is small again", lambda: len(frames._view) == FIRST_CAPACITY)
        assert await link.ask(ASK, 0)

    with_broker(body)


def test_large_requests_wait_for_memory() -> None:
    """``queued.max.request.bytes``: as in Kafka a request is received while anything is left."""

    async def body(broker: Broker) -> None:
        first, second, small = Link(broker), Link(broker), Link(broker)
        head = struct.pack(">i", 900_000)
        first.put(head + bytes(1_000))
        second.put(head + bytes(1_000))
        assert not first.transport.is_paused
        assert not second.transport.is_paused, "something was left"
        third = Link(broker)
        third.put(head + bytes(1_000))
        assert third.transport.is_paused
        assert await small.ask(ASK, 0), "small requests need no reservation"
        first.close()
        await until_async("the third connection is read", lambda: not third.transport.is_paused)
        assert not third.is_closed

    with_broker(body, queued_max_request_bytes=1_000_000)


def test_who_holds_memory_and_sends_little_goes_when_others_wait() -> None:
    async def body(broker: Broker) -> None:
        holder, waiting = Link(broker), Link(broker)
        head = struct.pack(">i", 1_500_000)
        holder.put(head + bytes(100))
        waiting.put(head + bytes(100))
        assert waiting.transport.is_paused
        began = time.monotonic()
        await until_async("the holder's connection ends", lambda: holder.is_closed, seconds=300)
        assert time.monotonic() - began > 4
        assert not waiting.transport.is_paused

    # It is no matter of request.receive.timeout.ms, which is longer than this test waits.
    with_broker(body, queued_max_request_bytes=1_000_000, request_receive_timeout_ms=3_600_000)


def test_waiting_requests_name_no_more_partitions_than_they_may() -> None:
    async def body(broker: Broker) -> None:
        broker.topics.create("t", 1, {})
        waits, does_not = Link(broker), Link(broker)
        waits.put(frame_of(fetch("t", 3_600_000, times=900), 11))
        answer = await does_not.ask(fetch("t", 3_600_000, times=200), 11, 120.0)
        assert len(answer.responses[0].partitions) == 200
        assert not waits.answers()
        assert broker.purgatory.named == 900
        waits.close()
        assert broker.purgatory.named == 0

    with_broker(body, purgatory_max_partitions=1_000)


# -- much ---------------------------------------------------------------------------------------


def create(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=0)


def test_no_more_partitions_than_there_may_be() -> None:
    async def body(broker: Broker) -> None:
        link = Link(broker)
        assert (await link.ask(create("a", 60), 4)).topics[0].error_code == 0
        answer = await link.ask(create("b", 41), 4)
        assert answer.topics[0].error_code == ErrorCode.POLICY_VIOLATION
        assert (await link.ask(create("c", 40), 4)).topics[0].error_code == 0
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="d")])
        assert (await link.ask(wanted, 9)).topics[0].error_code == ErrorCode.POLICY_VIOLATION

    with_broker(body, max_broker_partitions=100)


def test_a_long_request_leaves_others_their_turn() -> None:
    """Thousands of topics in one request: made one by one, and others are served between."""

    async def body(broker: Broker) -> None:
        link, other = Link(broker), Link(broker)
        topics = [
            CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(80)
        ]
        link.put(frame_of(CreateTopicsRequest(topics=topics, timeout_ms=0), 4))
        assert link.transport.is_paused, "it has one long request at a time"
        turns = 0
        while not (answers := link.answers()):
            await asyncio.sleep(0)
            assert await other.ask(ASK, 0)
            turns += 1
        assert turns > 3
        assert len(answers) == 1
        assert len(broker.metadata.topics) == 80
        assert await link.ask(ASK, 0), "and it continues"

    with_broker(body)


def test_who_leaves_during_a_long_request_leaves_nothing_behind() -> None:
    async def body(broker: Broker) -> None:
        link, other = Link(broker), Link(broker)
        link.put(frame_of(create("big", 2_000), 4))
        assert broker.metadata.topic("big") is None, "its logs are being made"
        same = await other.ask(create("big", 1), 4)
        assert same.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        link.close()
        await until_async("the logs are gone", lambda: broker.replicas.total_partitions == 0)
        assert broker.metadata.topic("big") is None
        assert (await other.ask(create("big", 1), 4)).topics[0].error_code == 0

    with_broker(body)


def test_too_many_partitions_for_one_fetch() -> None:
    async def body(broker: Broker) -> None:
        broker.topics.create("t", 1, {})
        answer = await Link(broker).ask(fetch("t", 0, times=10_001), 11)
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    with_broker(body)


@pytest.mark.parametrize("size", [4_097, 32_767])
def test_giant_client_ids_end_the_connection(size: int) -> None:
    async def body(broker: Broker) -> None:
        link = Link(broker)
        link.put(frame_of(ASK, 0, client="c" * size))
        await until_async("the connection ends", lambda: link.is_closed)

    with_broker(body)


# -- groups -------------------------------------------------------------------------------------


def join(member: str = "", *, metadata: int = 10, protocols: int = 1) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=200,
        member_id=member,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name=f"p{n}", metadata=b"m" * metadata)
            for n in range(protocols)
        ],
    )


def test_a_member_that_never_syncs_is_put_out() -> None:
    async def body(broker: Broker) -> None:
        answer = await Link(broker).ask(join(), 3)
        assert answer.error_code == 0
        group = broker.groups.group("g")
        assert group is not None
        await until_async("the member is out", lambda: not group.members)

    with_broker(body)


def test_members_and_protocols_without_end() -> None:
    async def body(broker: Broker) -> None:
        links = [Link(broker) for _ in range(5)]
        answers: list[Any] = []
        for link in links:
            link.put(frame_of(join(), 3))
        await until_async(
            "a join is answered", lambda: answers.extend(links[4].answers()) or answers
        )
        assert struct.unpack_from(">ih", answers[0], 4)[1] == ErrorCode.GROUP_MAX_SIZE_REACHED
        many = await Link(broker).ask(join(protocols=101), 3)
        assert many.error_code == ErrorCode.INVALID_REQUEST
        huge = await Link(broker).ask(join(metadata=2 << 20), 3)
        assert huge.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED

    with_broker(body, group_max_size=3, group_coordinator_max_bytes=1 << 20)


# -- transactions -------------------------------------------------------------------------------


def test_transactional_ids_have_an_end() -> None:
    async def body(broker: Broker) -> None:
        link = Link(broker)

        async def init(name: str) -> int:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000)
            return int((await link.ask(request, 4)).error_code)

        assert [await init(name) for name in "abca"] == [0, 0, ErrorCode.POLICY_VIOLATION, 0]
        assert await init("x" * 5_000) == ErrorCode.INVALID_REQUEST

    with_broker(body, transaction_coordinator_max_ids=2, transaction_state_log_num_partitions=1)
