"""AuditedProducer against a real broker: what it claims is what is stored."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock_client import (
    AuditConfigError,
    AuditedProducer,
    ProducerClosedError,
    RecordTooLargeError,
)
from penstock_client.audit import HEADER_NAME, find_audit_header
from polling import until


def test_claims_cover_exactly_what_was_acknowledged(cluster: Any) -> None:
    producer = cluster.producer()
    incarnation = producer.incarnation
    for number in range(3000):
        key = f"k{number % 50}" if number % 3 else None
        producer.produce(cluster.topic, b"v%d" % number if number % 7 else None, key)
        producer.poll(0)
        if number == 1500:
            assert producer.flush() == 0
    assert producer.close()
    assert cluster.assert_balanced(incarnation) == 3000
    events = cluster.events(incarnation)
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert [event.final for event in events] == [False] * (len(events) - 1) + [True]
    assert sum(account.records for account in cluster.accounts(incarnation)) == 3000
    assert cluster.accounts(incarnation)[-1].in_flight == 0
    assert events[0].key == str(incarnation).encode()


def test_java_puts_keys_into_the_same_partitions(cluster: Any) -> None:
    """Known values of Java's murmur2: Utils.toPositive(murmur2(key)) % 3."""
    with cluster.producer() as producer:
        for key in (b"0", b"1", b"2", b"test", b"Kafka"):
            producer.produce(cluster.topic, b"", key)
    placed = {m.key(): m.partition() for m in cluster.messages(cluster.topic)}
    assert placed == {key: _java_partition(key, 3) for key in placed}
    assert len(placed) == 5


def _java_partition(data: bytes, partitions: int) -> int:
    """The Java client's murmur2, written down from org.apache.kafka.common.utils.Utils."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % partitions


def test_the_stamp_is_the_last_header_and_there_is_one(cluster: Any) -> None:
    with cluster.producer() as producer:
        incarnation = producer.incarnation
        producer.produce(
            cluster.topic, "a", headers=[("x", b"1"), (HEADER_NAME, b"old"), ("x", "2")]
        )
        producer.produce(cluster.topic, "b", headers={"y": None}, timestamp=1234)
        producer.produce(cluster.topic, "c", partition=2)
    by_value = {m.value(): m for m in cluster.messages(cluster.topic)}
    assert [name for name, _ in by_value[b"a"].headers()] == ["x", "x", HEADER_NAME]
    assert [name for name, _ in by_value[b"b"].headers()] == ["y", HEADER_NAME]
    assert by_value[b"b"].timestamp()[1] == 1234
    assert by_value[b"c"].partition() == 2
    headers = [find_audit_header(m.headers()) for m in by_value.values()]
    assert sorted(h.sequence for h in headers if h) == [0, 1, 2]
    assert {h.incarnation for h in headers if h} == {incarnation}
    assert cluster.assert_balanced(incarnation) == 3


def test_callbacks_are_called_as_ever(cluster: Any) -> None:
    seen: list[tuple[str, Any, bytes]] = []

    def record(name: str) -> Callable[[Any, Any], None]:
        return lambda error, message: seen.append((name, error, message.value()))

    with AuditedProducer({**cluster.config(), "on_delivery": record("default")}) as producer:
        producer.produce(cluster.topic, b"1")
        producer.produce(cluster.topic, b"2", on_delivery=record("own"))
        producer.produce(cluster.topic, b"3", callback=record("alias"))
        assert len(producer) == 3
        assert producer.flush(10) == 0
        assert len(producer) == 0
        assert bool(producer)
    assert sorted(seen) == [("alias", None, b"3"), ("default", None, b"1"), ("own", None, b"2")]


def test_a_callback_that_raises_costs_no_claim(cluster: Any) -> None:
    producer = cluster.producer()
    incarnation = producer.incarnation

    def trouble(_error: Any, _message: Any) -> None:
        raise RuntimeError("the application's own trouble")

    for number in range(200):
        producer.produce(cluster.topic, b"v", on_delivery=trouble if number % 10 == 0 else None)
    raised = 0
    while len(producer):
        try:
            producer.poll(0.2)
        except RuntimeError:
            raised += 1
    assert raised
    producer.close()
    assert cluster.assert_balanced(incarnation) == 200


def claimed(cluster: Any, producer: AuditedProducer) -> int:
    return sum(account.records for account in cluster.accounts(producer.incarnation))


def test_flush_sends_an_event(cluster: Any) -> None:
    producer = cluster.producer()
    for number in range(10):
        producer.produce(cluster.topic, b"v%d" % number)
    assert producer.flush() == 0
    assert sum(account.records for account in cluster.accounts(producer.incarnation)) == 10
    assert producer.flush() == 0  # nothing new: nothing to say
    assert len(cluster.events(producer.incarnation)) == 1
    for _ in range(30):  # flushing after every record does not make an event of every record
        producer.produce(cluster.topic, b"w")
        producer.flush()
    until("all is claimed", lambda: claimed(cluster, producer) == 40)
    assert cluster.assert_balanced(producer.incarnation) == 40
    assert len(cluster.events(producer.incarnation)) < 25
    producer.close()


def test_events_come_every_interval_even_if_the_application_never_polls(cluster: Any) -> None:
    producer = cluster.producer(audit_interval_ms=200)
    threads: list[threading.Thread] = []
    producer.produce(
        cluster.topic, b"v", on_delivery=lambda *_: threads.append(threading.current_thread())
    )
    until("all is claimed", lambda: claimed(cluster, producer) == 1)
    until("heartbeats continue", lambda: len(cluster.events(producer.incarnation)) >= 3)
    assert threads == []  # the callback waits for the application's own poll
    assert len(producer) == 1
    assert producer.poll(0) >= 1
    assert threads == [threading.main_thread()]
    assert len(producer) == 0
    producer.close()


def test_several_producers_in_a_process_and_threads_that_share_one(cluster: Any) -> None:
    producers = [cluster.producer() for _ in range(3)]
    incarnations = [producer.incarnation for producer in producers]
    assert len(set(incarnations)) == 3

    def work(producer: AuditedProducer) -> None:
        for number in range(400):
            producer.produce(cluster.topic, b"x%d" % number, b"%d" % (number % 5))
            producer.poll(0)

    threads = [threading.Thread(target=work, args=(p,)) for p in producers for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for producer in producers:
        producer.close()
    assert [cluster.assert_balanced(incarnation) for incarnation in incarnations] == [1200] * 3


def test_several_topics_have_sequences_of_their_own(cluster: Any) -> None:
    other = cluster.create(f"{cluster.topic}-other")
    with cluster.producer() as producer:
        incarnation = producer.incarnation
        for number in range(20):
            producer.produce(cluster.topic if number % 2 else other, b"v")
    assert cluster.assert_balanced(incarnation) == 10
    assert cluster.assert_balanced(incarnation, other) == 10
    assert cluster.accounts(incarnation, other)[-1].sequences[-1][1] == 10


@pytest.mark.parametrize("headers", [None, {"trace": "x" * 100}])
def test_a_record_over_the_limit_is_refused_with_its_sizes(
    cluster: Any, headers: dict[str, str] | None
) -> None:
    producer = cluster.producer(message_max_bytes=2000)
    incarnation = producer.incarnation
    producer.produce(cluster.topic, b"fits")
    with pytest.raises(RecordTooLargeError) as caught:
        producer.produce(cluster.topic, b"v" * 1950, b"key", headers=headers)
    assert isinstance(caught.value, KafkaException)
    assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    text = str(caught.value)
    assert "key 3 + value 1950" in text
    assert "message.max.bytes=2000" in text
    assert f"headers {105 if headers else 0} +" in text
    producer.produce(cluster.topic, b"v" * 1000)
    producer.close()
    assert cluster.assert_balanced(incarnation) == 2
    assert all(not account.failed for account in cluster.accounts(incarnation))


def test_a_full_queue_refuses_and_leaves_no_gap(cluster: Any) -> None:
    producer = cluster.producer(queue_buffering_max_messages=50)
    incarnation = producer.incarnation
    refused = sent = 0
    while sent < 500:
        try:
            producer.produce(cluster.topic, b"v")
            sent += 1
        except BufferError:
            refused += 1
            producer.poll(0.05)
    producer.close()
    assert refused
    assert cluster.assert_balanced(incarnation) == 500
    assert all(not account.failed for account in cluster.accounts(incarnation))


def test_a_wrong_argument_is_refused_and_leaves_no_gap(cluster: Any) -> None:
    with cluster.producer() as producer:
        incarnation = producer.incarnation
        with pytest.raises(TypeError):
            producer.produce(cluster.topic, 5)  # type: ignore[arg-type]
        producer.produce(cluster.topic, b"v")
    assert cluster.assert_balanced(incarnation) == 1
    assert cluster.accounts(incarnation)[-1].failed == ()


def test_failed_deliveries_are_reported(cluster: Any) -> None:
    errors: list[str] = []
    small = cluster.create(f"{cluster.topic}-small", max_message_bytes="500")
    producer = cluster.producer(linger_ms=0)
    incarnation = producer.incarnation
    for number in range(6):
        value = b"v" * (2000 if number % 2 else 10)
        producer.produce(small, value, on_delivery=lambda e, _: errors.append(e and e.name()))
        producer.flush()
    producer.close()
    assert sorted(error for error in errors if error) == ["MSG_SIZE_TOO_LARGE"] * 3
    assert cluster.assert_balanced(incarnation, small) == 3
    failed = [f for account in cluster.accounts(incarnation, small) for f in account.failed]
    assert [(f.first, f.end, f.error) for f in failed] == [
        (1, 2, "MSG_SIZE_TOO_LARGE"),
        (3, 4, "MSG_SIZE_TOO_LARGE"),
        (5, 6, "MSG_SIZE_TOO_LARGE"),
    ]


def test_records_that_time_out_or_are_purged_are_reported(cluster: Any) -> None:
    errors: list[str] = []
    producer = cluster.producer(linger_ms=5000)
    incarnation = producer.incarnation
    for _ in range(3):
        producer.produce(cluster.topic, b"v", on_delivery=lambda e, _: errors.append(e.name()))
    producer.purge()
    until("all have failed", lambda: producer.poll(0.1) >= 0 and len(errors) == 3)
    producer.close()
    assert errors == ["_PURGE_QUEUE"] * 3
    (account,) = [a for a in cluster.accounts(incarnation) if a.failed]
    assert [(f.first, f.end, f.error) for f in account.failed] == [(0, 3, "_PURGE_QUEUE")]


def test_closing_gives_up_what_does_not_get_through() -> None:
    errors: list[str] = []
    producer = AuditedProducer(
        {
            "bootstrap.servers": "localhost:1",
            "log_level": 0,
            "on_delivery": lambda e, _: errors.append(e.name()),
        }
    )
    producer.produce("t", b"v")
    session = producer._session
    assert session is not None
    session._finish = lambda _deadline: False  # type: ignore[method-assign]  # no broker: no wait
    assert producer.close(timeout=0.1) is False
    assert errors == ["_PURGE_QUEUE"]


def test_an_event_that_fails_is_sent_again_with_its_number(cluster: Any) -> None:
    """Events are purged with the rest of the queue, and come again: none lost, none renumbered."""
    producer = cluster.producer(audit_interval_ms=150, linger_ms=100)
    incarnation = producer.incarnation
    producer.produce(cluster.topic, b"v")
    producer.flush()
    failed = 0
    session = producer._session
    assert session is not None
    completed = session.journal.completed

    def count(number: int, *, acknowledged: bool) -> None:
        nonlocal failed
        failed += not acknowledged
        completed(number, acknowledged=acknowledged)

    session.journal.completed = count  # type: ignore[method-assign]

    def purged() -> bool:
        producer.purge()
        producer.poll(0)
        return failed >= 2

    until("two events have failed", purged)
    producer.close()
    events = cluster.events(incarnation)
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert events[-1].final
    assert cluster.assert_balanced(incarnation) == 1


def test_without_an_audit_topic_records_still_flow(
    cluster: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_client.session.EVENT_WAIT_SECONDS", 0.5)
    producer = AuditedProducer(
        cluster.config(audit_topic="not..a/topic", topic_metadata_propagation_max_ms=100)
    )
    producer.produce(cluster.topic, b"v")
    assert producer.flush(10) == 0
    assert producer.close() is False
    assert len(cluster.messages(cluster.topic)) == 1
    assert "monitoring events" in caplog.text
    assert "unaudited" in caplog.text


def test_audit_off_is_a_bare_producer(cluster: Any) -> None:
    seen: list[Any] = []
    with cluster.producer(audit_enable="false") as producer:
        producer.produce(
            cluster.topic, b"v", headers={"a": "b"}, on_delivery=lambda e, _: seen.append(e)
        )
        assert producer.flush(10) == 0
    (message,) = cluster.messages(cluster.topic)
    assert [name for name, _ in message.headers()] == ["a"]
    assert seen == [None]
    assert cluster.events() == []


def test_closed_is_closed(cluster: Any) -> None:
    producer = cluster.producer()
    producer.produce(cluster.topic, b"v")
    assert producer.close()
    assert producer.close()
    assert producer.flush() == 0
    assert producer.poll(0) == 0
    assert len(producer) == 0
    with pytest.raises(ProducerClosedError):
        producer.produce(cluster.topic, b"w")
    assert not [t for t in threading.enumerate() if t.name == "penstock-audit" and not t.daemon]


def test_a_producer_that_was_never_used_says_nothing(cluster: Any) -> None:
    with cluster.producer(audit_interval_ms=100) as producer:
        assert producer.list_topics(timeout=120).topics[cluster.topic].partitions.keys() == {
            0,
            1,
            2,
        }
        assert producer.list_topics(cluster.topic).topics.keys() == {cluster.topic}
        assert producer.flush() == 0
    assert cluster.events() == []


def test_the_audit_topic_takes_no_records(cluster: Any) -> None:
    with cluster.producer() as producer, pytest.raises(AuditConfigError, match="the audit itself"):
        producer.produce(cluster.audit_topic, b"v")
