"""Fetch sessions and long polls over raw sockets, by topic name (v12) and by id (v17)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from api_requests import create, delete, delete_records, produce, produce_to, records, topic_id_of

from penstock_broker.errors import ErrorCode
from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)


@dataclass
class Consumer:
    """One consumer of one topic, by name or by id."""

    client: RawClient
    topic: str
    version: int
    topic_id: uuid.UUID = field(init=False)

    def __post_init__(self) -> None:
        self.topic_id = topic_id_of(self.client, self.topic)

    def request(
        self,
        session: tuple[int, int],
        offsets: Mapping[int, int] | None = None,
        *,
        remove: Iterable[int] = (),
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
    ) -> FetchRequest:
        wanted = [
            FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=partition_max_bytes)
            for p, o in (offsets or {}).items()
        ]
        named = {"topic": self.topic, "topic_id": self.topic_id}
        gone = list(remove)
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(partitions=wanted, **named)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(partitions=gone, **named)] if gone else [],
        )

    def ask(self, session: tuple[int, int], *args: object, **options: object) -> FetchResponse:
        answer = self.client.ask(self.request(session, *args, **options), self.version)  # type: ignore[arg-type]
        assert isinstance(answer, FetchResponse)
        return answer

    def open(self, offsets: Mapping[int, int], **options: object) -> int:
        answer = self.ask((0, 0), offsets, **options)
        assert answer.error_code == 0
        assert answer.session_id > 0
        assert list(said(answer)) == list(offsets), "a full answer has every partition"
        return answer.session_id


def said(answer: FetchResponse) -> dict[int, PartitionData]:
    """The partitions of an answer, in its order."""
    return {p.partition_index: p for topic in answer.responses for p in topic.partitions}


def sizes(answer: FetchResponse) -> dict[int, int]:
    return {index: len(p.records or b"") for index, p in said(answer).items()}


@pytest.fixture(params=[12, 17], ids=["by-name", "by-id"])
def consumer(request: pytest.FixtureRequest, raw: RawClient, topic: str) -> Consumer:
    """A consumer of a new topic with three partitions."""
    create(raw, topic, 3)
    return Consumer(raw, topic, request.param)


# -- sessions -----------------------------------------------------------------------------------


def test_an_incremental_answer_has_what_changed(consumer: Consumer) -> None:
    session = consumer.open({0: 0, 1: 0, 2: 0})
    assert said(consumer.ask((session, 1))) == {}
    size = len(records(b"x"))
    produce_to(consumer.client, consumer.topic, 1, records(b"x"))
    answer = consumer.ask((session, 2))
    assert (answer.session_id, sizes(answer)) == (session, {1: size})
    assert sizes(consumer.ask((session, 3))) == {1: size}, "the client has not moved on"
    assert said(consumer.ask((session, 4), {1: 1})) == {}
    assert said(consumer.ask((session, 5))) == {}


def test_a_high_watermark_and_a_log_start_are_sent_once(consumer: Consumer) -> None:
    session = consumer.open({0: 0, 1: 0})
    batch = records(b"x" * 500)
    for index in (0, 1):
        produce_to(consumer.client, consumer.topic, index, bytearray(batch))
    first = consumer.ask((session, 1), max_bytes=len(batch) + 30)
    assert sorted(sizes(first).values()) == [0, len(batch)], (
        "the new high watermark is sent without records where they do not fit"
    )
    assert {part.high_watermark for part in said(first).values()} == {1}
    (read,) = [index for index, size in sizes(first).items() if size]
    second = consumer.ask((session, 2), {read: 1}, max_bytes=len(batch) + 30)
    assert sizes(second) == {1 - read: len(batch)}
    produce_to(consumer.client, consumer.topic, 0, records(b"a"))
    session = consumer.open({0: 2})
    assert said(consumer.ask((session, 1))) == {}
    delete_records(consumer.client, consumer.topic, 0, 2)
    assert said(consumer.ask((session, 2), {0: 2}))[0].log_start_offset == 2
    assert said(consumer.ask((session, 3))) == {}


def test_removed_partitions_are_in_no_further_answer(consumer: Consumer) -> None:
    """Pitfall 41 (KIP-227): and a session that has none left is closed."""
    session = consumer.open({0: 0, 1: 0})
    assert said(consumer.ask((session, 1), remove=[1, 2])) == {}
    produce_to(consumer.client, consumer.topic, 1, records(b"x"))
    assert said(consumer.ask((session, 2))) == {}
    assert list(said(consumer.ask((session, 3), {2: 0}))) == [2], "a new partition is in the answer"
    answer = consumer.ask((session, 4), remove=[0, 2])
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
    gone = consumer.ask((session, 5))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_of_sessions(consumer: Consumer) -> None:
    """Pitfall 41: (0, 0) opens, (0, -1) does without, (id, -1) closes, (id, 0) opens another."""
    session = consumer.open({0: 0})
    wrong = consumer.ask((session, 7))
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (wrong.session_id, wrong.responses) == (0, [])
    assert consumer.ask((session, 1)).error_code == 0
    again = consumer.ask((session, 1))
    assert again.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    for stranger in ((0, 5), (session ^ 1, 1)):
        unknown = consumer.ask(stranger)
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    without = consumer.ask((0, -1), {0: 0})
    assert (without.error_code, without.session_id, list(said(without))) == (0, 0, [0])
    another = consumer.ask((session, 0), {0: 0})
    assert another.session_id not in {0, session}
    assert consumer.ask((session, 2)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    closed = consumer.ask((another.session_id, -1))
    assert (closed.error_code, closed.session_id) == (0, 0)
    gone = consumer.ask((another.session_id, 1))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_names_and_ids_do_not_mix(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    by_name, by_id = Consumer(raw, topic, 12), Consumer(raw, topic, 13)
    mixed = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert by_id.ask((by_name.open({0: 0}), 1)).error_code == mixed
    assert by_name.ask((by_id.open({0: 0}), 1)).error_code == mixed


def test_an_error_is_sent_every_time_until_it_is_over(consumer: Consumer) -> None:
    session = consumer.open({0: 0, 1: 0})
    for epoch in (1, 2):
        answer = said(consumer.ask((session, epoch), {0: 99} if epoch == 1 else None))
        assert [answer[0].error_code, len(answer)] == [ErrorCode.OFFSET_OUT_OF_RANGE, 1]
    healed = said(consumer.ask((session, 3), {0: 0}))
    assert [healed[0].error_code, len(healed)] == [0, 1], "that it is over is news, too"
    assert said(consumer.ask((session, 4))) == {}


def test_a_topic_made_again_inside_a_session(consumer: Consumer) -> None:
    """Pitfall 41 (franz-go#1426): an error until the client takes the new topic, and then none."""
    client, topic = consumer.client, consumer.topic
    session = consumer.open({0: 0})
    old = Consumer(client, topic, consumer.version)
    delete(client, topic)
    missing = said(consumer.ask((session, 1)))[0].error_code
    by_id = consumer.version >= 13
    expected = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
    assert missing in expected
    create(client, topic, 3)
    consumer.topic_id = topic_id_of(client, topic)
    produce(client, topic, records(b"new"))
    if not by_id:
        assert sizes(consumer.ask((session, 2)))[0] > 0
        return
    still = said(consumer.ask((session, 2)))[0].error_code
    assert still in {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
    request = consumer.request((session, 3), {0: 0})
    request.forgotten_topics_data = old.request((session, 3), remove=[0]).forgotten_topics_data
    answer = client.ask(request, consumer.version)
    assert (answer.error_code, len(answer.responses)) == (0, 1)
    assert answer.responses[0].topic_id == consumer.topic_id
    assert sizes(answer)[0] > 0


def test_a_client_without_space_for_a_session_is_served(
    new_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = new_broker(max_incremental_fetch_session_cache_slots="1")
    with RawClient(broker.host, broker.port) as client:
        create(client, topic, 1)
        consumer = Consumer(client, topic, 17)
        consumer.open({0: 0})
        produce(client, topic, records(b"x"))
        answer = consumer.ask((0, 0), {0: 0})
        assert (answer.error_code, answer.session_id) == (0, 0)
        assert sizes(answer)[0] > 0


def test_no_partition_of_a_session_starves(consumer: Consumer) -> None:
    """Pitfall 42: a partition that was read goes behind the others."""
    for index in (0, 1, 2):
        for _ in range(3):
            produce_to(consumer.client, consumer.topic, index, records(b"x" * 1_000))
    session = consumer.open({0: 3, 1: 3, 2: 3})
    consumer.ask((session, 1), {0: 0, 1: 0, 2: 0}, max_bytes=100)
    order = []
    for epoch in range(2, 8):
        served = [
            i for i, size in sizes(consumer.ask((session, epoch), max_bytes=100)).items() if size
        ]
        assert len(served) == 1
        order += served
    assert order[:3] == order[3:]
    assert set(order) == {0, 1, 2}


HOUR_MS = 3_600_000  # the client's own timeout ends a test that waits for it

# -- waiting ------------------------------------------------------------------------------------


def elapsed(consumer: Consumer, *args: object, **options: object) -> tuple[float, FetchResponse]:
    begun = time.monotonic()
    answer = consumer.ask(*args, **options)  # type: ignore[arg-type]
    return time.monotonic() - begun, answer


def test_max_wait_is_kept_to(consumer: Consumer) -> None:
    """Pitfall 40: neither at once nor never, with a session and without."""
    for session in ((0, -1), (consumer.open({0: 0, 1: 0, 2: 0}), 1)):
        named = {0: 0, 1: 0} if session[1] == -1 else None
        seconds, answer = elapsed(consumer, session, named, max_wait_ms=300)
        assert seconds >= 0.29
        assert sum(sizes(answer).values()) == 0
        # min_bytes 0 does not wait: the client gives up long before an hour is over.
        consumer.ask(
            (session[0], -1 if session[1] == -1 else 2), named, max_wait_ms=HOUR_MS, min_bytes=0
        )


@pytest.mark.parametrize("in_session", [False, True])
def test_min_bytes_are_counted_over_all_partitions(
    consumer: Consumer, broker: BrokerProcess, in_session: bool
) -> None:
    """Pitfall 40: woken by the append that makes it enough, and by none before."""
    batch = records(b"x" * 400)
    named = {0: 0, 1: 0, 2: 0}
    session = (consumer.open(named), 1) if in_session else (0, -1)
    request = consumer.request(
        session, None if in_session else named, max_wait_ms=HOUR_MS, min_bytes=3 * len(batch)
    )
    with RawClient(broker.host, broker.port) as other:
        consumer.client.send(request, consumer.version)
        for index in (0, 1):
            produce_to(other, consumer.topic, index, bytearray(batch))
        assert consumer.client.is_silent(0.3)
        produce_to(other, consumer.topic, 2, bytearray(batch))
        _, answer = consumer.client.receive()
    assert sizes(answer) == {0: len(batch), 1: len(batch), 2: len(batch)}


def test_what_does_not_fit_any_more_is_not_waited_for(consumer: Consumer) -> None:
    """Pitfall 40: max_bytes below min_bytes, and a batch that the rest has no space for."""
    for index in (0, 1):
        produce_to(consumer.client, consumer.topic, index, records(b"x" * 600))
    for most, least in ((500, 5_000), (1_000, 1_000)):
        answer = consumer.ask(
            (0, -1), {0: 0, 1: 0}, max_wait_ms=HOUR_MS, max_bytes=most, min_bytes=least
        )
        assert sorted(bool(size) for size in sizes(answer).values()) == [False, True]
    answer = consumer.ask((0, -1), {0: 0}, max_wait_ms=HOUR_MS, max_bytes=500, min_bytes=5_000)
    assert sizes(answer)[0] > 500, "all that it may have"


def test_a_topic_that_is_not_there_does_not_end_a_wait(consumer: Consumer) -> None:
    """Pitfall 40: or its clients would ask again at once, forever."""
    seconds, answer = elapsed(consumer, (0, -1), {0: 0, 9: 0}, max_wait_ms=300)
    assert seconds >= 0.29
    assert said(answer)[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert consumer.ask((0, -1), {9: 0}, max_wait_ms=HOUR_MS), "nothing else to wait for"


@pytest.mark.parametrize("in_session", [False, True])
def test_deleting_a_topic_wakes_those_who_wait_for_it(
    consumer: Consumer, broker: BrokerProcess, in_session: bool
) -> None:
    named = {0: 0, 1: 0}
    session = (consumer.open(named), 1) if in_session else (0, -1)
    request = consumer.request(session, None if in_session else named, max_wait_ms=20_000)
    consumer.client.send(request, consumer.version)
    assert consumer.client.is_silent(0.1)
    with RawClient(broker.host, broker.port) as other:
        delete(other, consumer.topic)
    _, answer = consumer.client.receive()
    codes = {part.error_code for part in said(answer).values()}
    assert codes <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
    assert codes


def test_two_fetches_of_one_session_at_once(consumer: Consumer, broker: BrokerProcess) -> None:
    """The one that waited has lost its turn when the other came."""
    session = consumer.open({0: 0})
    consumer.client.send(consumer.request((session, 1), max_wait_ms=2_000), consumer.version)
    assert consumer.client.is_silent(0.1)
    with RawClient(broker.host, broker.port) as client:
        other = Consumer(client, consumer.topic, consumer.version)
        assert other.ask((session, 2)).error_code == 0
        produce(client, consumer.topic, records(b"x"))
    _, answer = consumer.client.receive()
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


# -- ids and versions ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_reads(raw: RawClient, topic: str, version: int) -> None:
    create(raw, topic)
    produce(raw, topic, records(b"x"))
    consumer = Consumer(raw, topic, version)
    answer = consumer.ask((0, -1), {0: 0})
    assert sizes(answer)[0] > 0
    if version >= 13:
        assert answer.responses[0].topic_id == consumer.topic_id
        consumer.topic_id = uuid.uuid4()
        unknown = said(consumer.ask((0, -1), {0: 0}))[0]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_fenced_epoch_comes_with_the_leader_from_version_16(
    raw: RawClient, topic: str, broker: BrokerProcess
) -> None:
    """Pitfall 9: leader, epoch and address of the tags are those of Metadata, or are not there."""
    create(raw, topic)
    delete(raw, topic)
    create(raw, topic)
    for version in (15, 16, 17):
        request = Consumer(raw, topic, version).request((0, -1), {0: 0})
        request.topics[0].partitions[0].current_leader_epoch = 0
        answer = raw.ask(request, version)
        part = answer.responses[0].partitions[0]
        assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
        if version < 16:
            assert (part.current_leader, answer.node_endpoints) == (None, [])
            continue
        (node,) = answer.node_endpoints
        assert part.current_leader is not None
        assert part.current_leader.leader_id == node.node_id
        assert part.current_leader.leader_epoch > 0
        assert f"{node.host}:{node.port}" == broker.bootstrap


def test_topics_stored_as_zstd_are_not_for_old_clients(raw: RawClient, topic: str) -> None:
    """KIP-110: a client below Fetch v10 cannot know the codec."""
    create(raw, topic, compression_type="zstd")
    for version, code in ((9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (10, ErrorCode.NONE)):
        assert said(Consumer(raw, topic, version).ask((0, -1), {0: 0}))[0].error_code == code
