"""A fetch that waits and is woken: what it looks up again, and what it does not."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable

import pytest
from in_process import Link, frame_of, in_process

from penstock_broker.api import fetch as fetch_module
from penstock_broker.errors import ErrorCode
from penstock_broker.log.markers import Marker
from penstock_broker.server.broker import Broker
from penstock_broker.server.connection import UNANSWERED_MAX
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.header import skip_header_tags
from penstock_broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock_broker.wire.schema import decode
from polling import until_async

VERSION = 17  # topics by id
READ_COMMITTED = 1
PRODUCER = 7
NOW_MS = int(time.time() * 1000)


def fetch_of(broker: Broker, topic: str) -> bytes:
    """A fetch without a session that waits a day for one byte."""
    known = broker.metadata.topic(topic)
    assert known is not None
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=86_400_000,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=known.topic_id, partitions=[wanted])],
    )
    return frame_of(request, VERSION)


def append_to_transaction(broker: Broker, sequence: int) -> None:
    data = build_batch(
        [NewRecord(None, b"x", NOW_MS)],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    broker.replicas.partition("t", 0).append(memoryview(data), is_verified=True)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def answer_of(link: Link) -> FetchResponse:
    for _ in range(1_000):
        await asyncio.sleep(0)
        for found in link.answers():
            response, _ = decode(
                FetchResponse, VERSION, memoryview(found), skip_header_tags(found, 4)
            )
            assert isinstance(response, FetchResponse)
            return response
    raise AssertionError("no answer")


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The topics whose names fetches have looked up."""
    found: list[object] = []
    name: Callable[..., str | None] = fetch_module._name

    def noted(services: object, topic: FetchTopic, by_id: bool) -> str | None:
        found.append(topic.topic_id)
        return name(services, topic, by_id)

    monkeypatch.setattr(fetch_module, "_name", noted)
    return found


def test_a_wake_looks_up_no_names_while_topics_stay_as_they_are(looked_up: list[object]) -> None:
    """Appends of an open transaction wake a read_committed fetch that can read none of them."""

    async def run() -> None:
        async with in_process() as broker:
            broker.replicas.create_topic("t", 1, {})
            link = Link(broker)
            link.put(fetch_of(broker, "t"))
            await turns()
            assert len(looked_up) == 1
            for sequence in range(5):
                append_to_transaction(broker, sequence)
                await turns()
            assert len(broker.purgatory) == 1
            assert len(looked_up) == 1
            broker.replicas.create_topic("another", 1, {})
            append_to_transaction(broker, 5)
            await turns()
            assert len(looked_up) == 2, "a topic may have another name now, or be gone"
            marker = Marker(is_commit=True, coordinator_epoch=0)

            broker.replicas.partition("t", 0).append_marker(PRODUCER, 0, marker, NOW_MS)
            response = await answer_of(link)
            (data,) = response.responses[0].partitions
            assert data.error_code == 0
            assert data.last_stable_offset == 7
            assert len(looked_up) == 2
            link.close()

    asyncio.run(run())


def test_a_topic_made_again_is_not_read_under_the_id_of_the_deleted_one() -> None:
    """Both happen before the fetch that waits for the old one has its turn."""

    async def run() -> None:
        async with in_process() as broker:
            broker.replicas.create_topic("t", 1, {})
            before = broker.metadata.topic("t")
            link = Link(broker)
            link.put(fetch_of(broker, "t"))
            await turns()
            broker.replicas.delete_topic("t")
            broker.replicas.create_topic("t", 1, {})
            data = build_batch([NewRecord(None, b"new", NOW_MS)])
            broker.replicas.partition("t", 0).append(memoryview(data))
            response = await answer_of(link)
            assert before is not None
            assert response.responses[0].topic_id == before.topic_id != uuid.UUID(int=0)
            (found,) = response.responses[0].partitions
            assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            assert not found.records
            link.close()

    asyncio.run(run())


def test_who_leaves_while_a_fetch_waits_is_noticed_at_once() -> None:
    """Its connection is read from meanwhile: an end comes like any other bytes."""

    async def run() -> None:
        async with in_process() as broker:
            broker.replicas.create_topic("t", 1, {})
            _, writer = await asyncio.open_connection(*broker.listeners.address_of("PLAINTEXT"))
            writer.write(fetch_of(broker, "t"))
            await until_async("the fetch waits", lambda: len(broker.purgatory) == 1)
            writer.close()
            await until_async("its end is noticed", lambda: not broker.purgatory)
            assert not len(broker.listeners)

    asyncio.run(run())


def test_who_leaves_with_too_many_fetches_waiting_is_noticed_when_one_is_answered() -> None:
    """The connection is not read from until then, as Kafka reads nothing while a request is
    under way: what was sent before the end, which may be records, is still to be read."""

    async def run() -> None:
        async with in_process() as broker:
            broker.replicas.create_topic("t", 1, {})
            _, writer = await asyncio.open_connection(*broker.listeners.address_of("PLAINTEXT"))
            writer.write(fetch_of(broker, "t") * (UNANSWERED_MAX + 1))
            await until_async(
                "as many wait as may", lambda: len(broker.purgatory) == UNANSWERED_MAX
            )
            writer.close()
            await writer.wait_closed()
            await turns()
            assert len(broker.purgatory) == UNANSWERED_MAX
            data = build_batch([NewRecord(None, b"x", NOW_MS)])
            broker.replicas.partition("t", 0).append(memoryview(data))
            await until_async(
                "its end is noticed",
                lambda: not broker.purgatory and not len(broker.listeners),
            )

    asyncio.run(run())
