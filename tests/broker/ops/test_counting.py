"""That real traffic is counted to the record, whichever way the requests take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from penstock_broker.testing import RawClient, ThreadBroker
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

Found = dict[tuple[str, ...], float]
RECORDS = 3_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with ThreadBroker(tmp_path / "data", settings) as started:
        yield started


def scrape(broker: ThreadBroker) -> Found:
    text = b"".join(broker.broker.metrics.render()).decode()
    return {
        (sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(found: Found, name: str, *labels: str) -> float:
    return sum(v for key, v in found.items() if key[0] == name and set(labels) <= set(key))


def produce(broker: ThreadBroker, topic: str, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    for number in range(RECORDS):
        producer.produce(topic, b"%08d" % number)
        producer.poll(0)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"batch.num.messages": 1, "linger.ms": 0},
        {"linger.ms": 20},
        {"enable.idempotence": True, "linger.ms": 2, "compression.type": "lz4"},
        {"acks": 0, "batch.num.messages": 10},
    ],
    ids=["one by one", "in batches", "idempotent", "without answers"],
)
def test_produced_records_and_requests(broker: ThreadBroker, settings: dict[str, object]) -> None:
    topic = broker.create_topic("t")
    produce(broker, topic, **settings)
    found = scrape(broker)
    while total(found, "kafka_log_log_logendoffset", "topic=t") < RECORDS:  # acks=0
        found = scrape(broker)
    found = scrape(broker)
    label = "topic=t"
    assert total(found, "kafka_server_brokertopicmetrics_messagesin_total", label) == RECORDS
    in_log = total(found, "kafka_log_log_size", label)
    assert total(found, "kafka_server_brokertopicmetrics_bytesin_total", label) == in_log
    requests = total(found, "kafka_network_requestmetrics_requests_total", "request=Produce")
    assert requests == broker.faults.seen("Produce") > 0
    timed = total(found, "kafka_network_requestmetrics_localtime_seconds_count", "request=Produce")
    assert timed == requests
    assert total(found, "kafka_server_brokertopicmetrics_totalproducerequests_total") == requests
    received = total(found, "kafka_server_socketservermetrics_incoming_byte_total")
    assert received > in_log


def test_consumed_bytes_groups_and_lag(broker: ThreadBroker) -> None:
    topic = broker.create_topic("t")
    produce(broker, topic)
    size = total(scrape(broker), "kafka_log_log_size", "topic=t")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    seen = 0
    last = None
    while seen < RECORDS:
        for message in consumer.consume(min(500, RECORDS - seen), timeout=120):
            seen += 1
            last = message
    assert last is not None
    found = scrape(broker)
    assert total(found, "kafka_server_brokertopicmetrics_bytesout_total", "topic=t") == size
    assert total(found, "kafka_server_socketservermetrics_outgoing_byte_total") > size
    assert found["kafka_consumergroup_members", "consumergroup=readers"] == 1
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsstable",] == 1
    assert total(found, "kafka_coordinator_group_rebalances_total") >= 1
    consumer.commit(message=last, asynchronous=False)
    consumer.close()
    produce(broker, topic)
    found = scrape(broker)
    place = ("consumergroup=readers", "partition=0", "topic=t")
    assert found["kafka_consumergroup_current_offset", *place] == RECORDS
    assert found["kafka_consumergroup_lag", *place] == RECORDS
    assert found["kafka_consumergroup_lag_sum", place[0], place[2]] == RECORDS


def test_waiting_is_timed_apart_from_working(broker: ThreadBroker) -> None:
    topic = broker.create_topic()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    request = FetchRequest(
        max_wait_ms=200,
        min_bytes=1,
        max_bytes=1_000,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    with RawClient(broker.host, broker.port) as client:
        client.ask(request, 11)
    found = scrape(broker)
    prefix, label = "kafka_network_requestmetrics", "request=Fetch"
    assert found[f"{prefix}_remotetime_seconds_sum", label] > 0.15
    assert (f"{prefix}_localtime_seconds_sum", label) in found


def test_failures_are_counted_by_topic_and_code(broker: ThreadBroker) -> None:
    topic = broker.create_topic("t", config={"max.message.bytes": "1000"})
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retries": 0})
    producer.produce(topic, b"x" * 5_000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    assert errors
    found = scrape(broker)
    refused = ("error=MESSAGE_TOO_LARGE", "request=Produce")
    assert total(found, "kafka_network_requestmetrics_errors_total", *refused) == 1
    failed = "kafka_server_brokertopicmetrics_failedproducerequests_total"
    assert total(found, failed, "topic=t") == 1
    rejected = "kafka_server_brokertopicmetrics_bytesrejected_total"
    assert total(found, rejected, "topic=t") > 5_000


def test_batches_that_were_there_already_are_counted_apart(broker: ThreadBroker) -> None:
    topic = broker.create_topic("t")
    broker.faults.drop("Produce", after=True)
    produce(broker, topic, **{"enable.idempotence": True, "reconnect.backoff.ms": 10})
    found = scrape(broker)
    prefix = "kafka_server_brokertopicmetrics"
    assert total(found, f"{prefix}_duplicatebatches_total", "topic=t") >= 1
    assert total(found, f"{prefix}_messagesin_total", "topic=t") == RECORDS


def test_what_is_deleted_is_no_longer_shown(broker: ThreadBroker) -> None:
    broker.create_topic("gone")
    produce(broker, "gone")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_topics(["gone"]).values():
        done.result()
    assert not [key for key in scrape(broker) if "topic=gone" in key]
