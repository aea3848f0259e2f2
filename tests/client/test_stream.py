"""MessageStream against a real broker: what was handed out is what is committed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock_client import (
    MessageStream,
    OffsetsLostError,
    StreamClosedError,
    StreamError,
    TopicNotFoundError,
)


def _fill(cluster: Any, count: int) -> None:
    with cluster.producer() as producer:
        for number in range(count):
            producer.produce(cluster.topic, b"%d" % number, partition=number % 3)


def _config(cluster: Any, **settings: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": cluster.bootstrap, **named}


def test_assigned_until_the_end(cluster: Any) -> None:
    _fill(cluster, 600)
    places = [(cluster.topic, 0, OFFSET_BEGINNING), (cluster.topic, 1, 150), (cluster.topic, 2, 0)]
    with MessageStream(_config(cluster), assign=places, until_end=True) as stream:
        values = sorted(int(message.value() or b"") for message in stream)
        assert stream.positions() == {(cluster.topic, p): 200 for p in range(3)}
    assert values == sorted(n for n in range(600) if n % 3 != 1 or n >= 450)


def test_commits_what_was_handed_out_and_no_more(cluster: Any) -> None:
    _fill(cluster, 300)
    group = uuid.uuid4().hex
    config = _config(cluster, group_id=group, auto_offset_reset="earliest")
    with MessageStream(config, [cluster.topic]) as stream:
        stream.commit()  # nothing yet
        first = [int(m.value() or b"") for m in islice(stream, 100)]
        stream.commit()
        list(islice(stream, 50))  # read, and never committed
    with MessageStream(config, [cluster.topic], idle_seconds=3) as stream:
        rest = [int(m.value() or b"") for m in islice(stream, 200)]
    assert sorted(first + rest) == list(range(300))


def test_idle_ends_the_iteration(cluster: Any) -> None:
    with MessageStream(
        _config(cluster), assign=[(cluster.topic, 0, 0)], idle_seconds=0.3
    ) as stream:
        assert list(stream) == []


def test_an_unknown_topic_is_an_error_of_its_own(cluster: Any) -> None:
    with (
        MessageStream(_config(cluster, group_id=uuid.uuid4().hex), ["no-such-topic"]) as stream,
        pytest.raises(TopicNotFoundError, match="does not exist") as caught,
    ):
        next(stream)
    assert isinstance(caught.value, StreamError)
    assert caught.value.name == "UNKNOWN_TOPIC_OR_PART"


def test_offsets_that_are_gone_are_an_error_and_no_silent_jump(cluster: Any) -> None:
    _fill(cluster, 30)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.delete_records([TopicPartition(cluster.topic, 0, 5)]).values():
        future.result(10)
    with (
        MessageStream(_config(cluster), assign=[(cluster.topic, 0, 2)]) as stream,
        pytest.raises(OffsetsLostError, match=f"{cluster.topic}-0"),
    ):
        next(stream)


class Rebalancing:
    """A consumer that takes one partition away in the call that fetches another's records."""

    def __init__(self, _settings: object) -> None:
        self.batches: list[list[Any]] = []
        self.revoked: list[TopicPartition] = []
        self.on_revoke: Any = None
        self.committed: list[TopicPartition] = []

    def subscribe(self, _names: list[str], on_revoke: Any, on_lost: Any) -> None:
        assert on_revoke == on_lost
        self.on_revoke = on_revoke

    def consume(self, _count: int, timeout: float) -> list[Any]:
        del timeout
        if self.revoked:
            self.on_revoke(self, [self.revoked.pop()])
        return self.batches.pop(0) if self.batches else []

    def commit(self, offsets: list[TopicPartition], **_: object) -> list[TopicPartition]:
        self.committed = offsets
        return []

    def close(self) -> None: ...


@dataclass
class Fetched:
    place: int
    at: int

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def error(self) -> None: ...


def test_a_rebalance_in_the_midst_of_a_fetch_loses_nothing_of_kept_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock_client.stream.Consumer", Rebalancing)
    stream = MessageStream({"group.id": "g"}, ["t"], idle_seconds=5)
    consumer: Any = stream._consumer
    consumer.batches = [[Fetched(0, 0), Fetched(1, 0)], [Fetched(0, 1), Fetched(0, 2)]]
    assert [(m.partition(), m.offset()) for m in islice(stream, 2)] == [(0, 0), (1, 0)]
    consumer.revoked = [TopicPartition("t", 1)]
    assert [m.offset() for m in islice(stream, 2)] == [1, 2]
    assert stream.positions() == {("t", 0): 3}, "partition 1 is another member's now"
    stream.commit()
    assert [(place.partition, place.offset) for place in consumer.committed] == [(0, 3)]


def test_what_was_fetched_ahead_of_a_lost_partition_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock_client.stream.Consumer", Rebalancing)
    stream = MessageStream({"group.id": "g"}, ["t"], idle_seconds=5)
    consumer: Any = stream._consumer
    consumer.batches = [[Fetched(0, 0), Fetched(1, 0), Fetched(0, 1), Fetched(1, 1)]]
    assert next(stream).offset() == 0
    consumer.on_revoke(consumer, [TopicPartition("t", 1)])
    assert [(m.partition(), m.offset()) for m in islice(stream, 1)] == [(0, 1)]
    assert stream.positions() == {("t", 0): 2}


def test_closed_is_closed(cluster: Any) -> None:
    stream = MessageStream(_config(cluster), assign=[(cluster.topic, 0, 0)])
    stream.close()
    stream.close()
    with pytest.raises(StreamClosedError):
        next(stream)
    with pytest.raises(StreamClosedError):
        stream.commit()


@pytest.mark.parametrize(
    ("extra", "given"),
    [
        ({}, {}),
        ({}, {"topics": ["t"], "assign": [("t", 0, 0)]}),
        ({"enable.auto.commit": True}, {"topics": ["t"]}),
        ({}, {"topics": ["t"], "until_end": True}),
    ],
)
def test_contradictions_are_refused(extra: dict[str, Any], given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"give either|commit\(\)|until_end"):
        MessageStream({"bootstrap.servers": "localhost:1", **extra}, **given)
