"""The cluster through its protocol: our broker, or the Kafka that PENSTOCK_TEST_KAFKA names."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_platform.kafka import batches, calls
from penstock_platform.kafka import cluster as kafka_module
from penstock_platform.kafka.batches import unread_offsets
from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.kafka.errors import ClusterError, UnknownTopicError
from penstock_platform.ranges import OffsetRange
from penstock_platform.settings import KafkaSettings, Settings
from penstock_platform.testing.clock import ManualClock

pytestmark = pytest.mark.services


@pytest.fixture
def topic(kafka):
    """A topic of three partitions with 30, 20 and 0 records, their values being their offsets."""
    name = f"cluster-test-{uuid.uuid4().hex[:8]}"
    assert kafka.create(name, 3, configs={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka._bootstrap_servers})
    for partition, count in ((0, 30), (1, 20)):
        for n in range(count):
            producer.produce(name, str(n).encode(), partition=partition, timestamp=1000 + n)
    assert producer.flush(30) == 0
    return name


def spans(offsets):
    return {p: (o.log_start, o.last_stable, o.high_watermark) for p, o in offsets.items()}


def test_topics_are_described_with_their_ids(kafka, topic):
    found = kafka.describe(topic)
    assert found.ref.cluster_id == kafka.cluster_id()
    assert found.ref == kafka.ref(topic)
    assert len(found.ref.topic_id) == 22
    assert not set(found.ref.topic_id) & set("+/=")
    assert (found.partitions, found.replicas) == (3, 1)
    assert found.configs["retention.ms"] == "-1"
    assert found.set_configs["retention.ms"] == "-1"
    assert topic in kafka.topics()
    assert not kafka.broker_stamps(topic)


def test_creating_twice_is_an_error(kafka, topic):
    assert not kafka.create(topic, 3)


def test_a_recreated_topic_has_another_id(kafka):
    name = f"cluster-test-{uuid.uuid4().hex[:8]}"
    kafka.create(name, 1)
    before = kafka.ref(name)
    kafka.delete(name)
    while not kafka.create(name, 1):  # a deletion may still be under way
        continue
    assert kafka.ref(name).topic_id != before.topic_id


def test_partitions_grow_and_configs_change(kafka, topic):
    kafka.grow(topic, 4)
    kafka.alter(topic, {"segment.bytes": "1048576", "retention.ms": None})
    found = kafka.describe(topic)
    assert found.partitions == 4
    assert found.set_configs == {"segment.bytes": "1048576"}
    kafka.alter(topic, {"message.timestamp.type": "LogAppendTime"})
    assert kafka.broker_stamps(topic)
    with pytest.raises(ClusterError, match="cannot give topic"):
        kafka.grow(topic, 2)


def test_offsets_and_their_deletion(kafka, topic):
    assert spans(kafka.offsets(topic)) == {0: (0, 30, 30), 1: (0, 20, 20), 2: (0, 0, 0)}
    assert kafka.delete_records(topic, {0: 12, 1: 0}) == {0: 12, 1: 0}
    assert spans(kafka.offsets(topic))[0] == (12, 30, 30)
    assert kafka.delete_records(topic, {0: 5}) == {0: 12}, "a log start never goes back"
    assert kafka.delete_records(topic, {}) == {}
    with pytest.raises(ClusterError, match="delete records"):
        kafka.delete_records(topic, {0: 31})


def test_offsets_are_found_by_time(kafka, topic):
    assert kafka.offsets_for_time(topic, 1007) == {0: 7, 1: 7, 2: None}
    assert kafka.offsets_for_time(topic, 1025) == {0: 25, 1: None, 2: None}


def test_landed_offsets_are_committed_to_a_group(kafka, topic):
    group = f"penstock.bronze.{topic}"
    kafka.commit_group(group, topic, {0: 10, 1: 0})
    kafka.commit_group(group, topic, {0: 20})
    assert kafka.group_offsets(group, topic) == {0: 20, 1: 0}
    assert kafka.group_offsets(f"{group}-unknown", topic) == {}
    kafka.commit_group(group, topic, {})


def test_exactly_a_range_is_read(kafka, topic):
    wanted = [OffsetRange(0, 5, 12), OffsetRange(1, 19, 20), OffsetRange(2, 0, 0)]
    found = sorted((m.partition(), int(m.value())) for m in kafka.read_range(topic, wanted))
    assert found == [(0, n) for n in range(5, 12)] + [(1, 19)]
    assert list(kafka.read_range(topic, [OffsetRange(0, 4, 4)])) == []
    parts = [OffsetRange(0, 20, 22), OffsetRange(0, 3, 5), OffsetRange(0, 4, 6)]
    found = [int(m.value()) for m in kafka.read_range(topic, parts)]
    assert found == [3, 4, 5, 20, 21]


def test_reading_what_the_log_no_longer_holds_fails(kafka, topic):
    kafka.delete_records(topic, {0: 12})
    with pytest.raises(ClusterError, match=f"cannot read topic {topic}"):
        list(kafka.read_range(topic, [OffsetRange(0, 5, 15)]))


def test_reading_past_the_end_gives_up(kafka, topic, monkeypatch):
    monkeypatch.setattr(kafka_module, "READ_STALL_SECONDS", 1.0)
    with pytest.raises(ClusterError, match=r"still to read: partition 0 offsets 28-34"):
        list(kafka.read_range(topic, [OffsetRange(0, 28, 35)]))


def test_an_unknown_topic_is_an_error_that_says_what_to_do(kafka):
    with pytest.raises(UnknownTopicError, match="has no topic nowhere; materialise its asset"):
        kafka.offsets("nowhere")


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(calls, "DEADLINE_SECONDS", 0.5)
    settings = Settings(home=Path("home"), kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    with pytest.raises(ClusterError, match=r"no Kafka broker answers at 127\.0\.0\.1:1"):
        KafkaCluster(settings).cluster_id()


def test_no_offset_is_rightly_unread_where_there_are_no_transactions(cluster_settings, topic):
    doubtful = [OffsetRange(0, 3, 9), OffsetRange(1, 0, 20), OffsetRange(2, 0, 0)]
    assert unread_offsets(cluster_settings, topic, doubtful) == ()
    assert unread_offsets(cluster_settings, topic, []) == ()
    with pytest.raises(ClusterError, match="cannot be fetched"):
        unread_offsets(cluster_settings, topic, [OffsetRange(0, 40, 41)])
    with pytest.raises(ClusterError, match="cannot read the batches of topic nowhere"):
        unread_offsets(cluster_settings, "nowhere", [OffsetRange(0, 0, 1)])


def test_markers_and_aborted_transactions_are_rightly_unread(kafka, cluster_settings, topic):
    producer = Producer(
        {
            "bootstrap.servers": cluster_settings.bootstrap_servers,
            "transactional.id": f"tx-{topic}",
        }
    )
    producer.init_transactions()
    for n in range(4):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"t", partition=2)
        producer.flush()
        (producer.commit_transaction if n % 2 else producer.abort_transaction)()
    whole = OffsetRange(2, 0, kafka.offsets(topic)[2].last_stable)
    unread = unread_offsets(cluster_settings, topic, [whole])
    given = {m.offset() for m in kafka.read_range(topic, [whole])}
    assert {o for r in unread for o in range(r.start, r.end)} == set(range(16)) - given
    assert given == {4, 5, 6, 12, 13, 14}
    # asked in the middle of an aborted transaction
    assert unread_offsets(cluster_settings, topic, [OffsetRange(2, 9, 10)]) == (
        OffsetRange(2, 9, 10),
    )


@pytest.fixture
def faulty(tmp_path):
    """A broker that does what a test orders, with one aborted record in a topic."""
    with BrokerProcess(tmp_path / "data", {}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "one"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("moved", b"x", partition=0)
        producer.flush()
        producer.abort_transaction(30)
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap)
        yield broker, Settings(home=tmp_path, kafka=kafka)


@pytest.mark.parametrize(
    "error", ["NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH"]
)
def test_a_leader_that_moves_is_followed(faulty, error):
    broker, settings = faulty
    broker.faults.fail("Fetch", error, times=2)
    whole = OffsetRange(0, 0, 2)
    assert unread_offsets(settings, "moved", [whole]) == (whole,)
    assert broker.faults.seen("Fetch") >= 3


def test_a_connection_that_breaks_is_made_again(faulty):
    broker, settings = faulty
    broker.faults.drop("Fetch", times=1)
    whole = OffsetRange(0, 0, 2)
    assert unread_offsets(settings, "moved", [whole]) == (whole,)


def test_a_leader_that_never_answers_as_one_is_asked_for_a_bounded_time(faulty, monkeypatch):
    monkeypatch.setattr(batches, "DEADLINE_SECONDS", 1.0)
    broker, settings = faulty
    broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=None)
    with pytest.raises(ClusterError, match=r"cannot read the batches of topic moved.* error 6"):
        unread_offsets(settings, "moved", [OffsetRange(0, 0, 2)], ManualClock())


def test_what_will_not_pass_is_not_tried_again(faulty):
    broker, settings = faulty
    broker.faults.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=None)
    with pytest.raises(ClusterError, match="cannot be fetched: Kafka's error 29"):
        unread_offsets(settings, "moved", [OffsetRange(0, 0, 2)])
    assert broker.faults.seen("Fetch") == 1
