"""confluent-kafka (librdkafka) against a broker process: what its users do every day."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from penstock_broker.testing.broker_process import BrokerProcess

WAIT = 120.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def create(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    given = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, partitions, 1, config=given)
    admin.create_topics([new])[topic].result(WAIT)


def produce(broker: BrokerProcess, topic: str, values: list[bytes], **settings: Any) -> list[int]:
    """Produce to partition 0; the offsets, in the order of ``values``."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **given})
    offsets: dict[int, int] = {}
    failures: list[KafkaError] = []

    def delivered(number: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                offsets[number] = message.offset()

        return note

    for number, value in enumerate(values):
        producer.produce(topic, value, partition=0, on_delivery=delivered(number))
        producer.poll(0)
    assert producer.flush(WAIT) == 0
    assert not failures
    return [offsets[number] for number in range(len(values))]


def consumer(broker: BrokerProcess, group: str, **settings: Any) -> Consumer:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 200,
            **given,
        }
    )


def read(source: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + WAIT
    while len(messages) < count and time.monotonic() < deadline:
        for message in source.consume(count - len(messages), 0.2):
            assert message.error() is None, message.error()
            messages.append(message)
    assert len(messages) == count
    return messages


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_as_it_was_sent(
    broker: BrokerProcess, topic: str, group: str, codec: str
) -> None:
    values = [b"%d-" % n + b"payload " * 20 for n in range(500)]
    produce(broker, topic, values, compression_type=codec, linger_ms=20)
    source = consumer(broker, group)
    source.assign([TopicPartition(topic, 0, 0)])
    assert [m.value() for m in read(source, 500)] == values
    source.close()


def test_keys_headers_and_timestamps_are_kept(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(
        topic, None, b"key", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123
    )
    assert producer.flush(WAIT) == 0
    source = consumer(broker, group)
    source.assign([TopicPartition(topic, 0, 0)])
    (message,) = read(source, 1)
    assert (message.key(), message.value()) == (b"key", None)
    assert message.headers() == [("h", b"1"), ("h", None)]
    assert message.timestamp()[1] == 1_700_000_000_123
    source.close()


def test_an_idempotent_producer_writes_each_record_once(broker: BrokerProcess, topic: str) -> None:
    values = [b"%d" % n for n in range(2_000)]
    offsets = produce(broker, topic, values, enable_idempotence=True, batch_num_messages=10)
    assert offsets == list(range(2_000))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(broker: BrokerProcess, admin: AdminClient, topic: str, acks: str) -> None:
    create(admin, topic)
    produce(broker, topic, [b"x"] * 100, acks=acks)
    wanted = TopicPartition(topic, 0)
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        end = admin.list_offsets({wanted: OffsetSpec.latest()})[wanted].result(WAIT).offset
        if end == 100:
            return
    pytest.fail(f"{end} of 100 records arrived")


def test_a_record_above_the_limit_is_refused(broker: BrokerProcess, admin: AdminClient) -> None:
    """Pitfall 19."""
    topic = f"small-{uuid.uuid4().hex[:8]}"
    create(admin, topic, max_message_bytes="1000")
    seen: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"x" * 2_000, on_delivery=lambda error, _: seen.append(error))
    producer.produce(topic, b"x" * 100, on_delivery=lambda error, _: seen.append(error))
    assert producer.flush(WAIT) == 0
    codes = {error.code() if error is not None else 0 for error in seen}
    assert KafkaError.MSG_SIZE_TOO_LARGE in codes


# -- groups -------------------------------------------------------------------------------------


def test_a_group_continues_where_it_committed(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    produce(broker, topic, [b"%d" % n for n in range(20)])
    first = consumer(broker, group)
    first.subscribe([topic])
    read(first, 10)
    first.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
    first.close()
    second = consumer(broker, group)
    second.subscribe([topic])
    assert [m.value() for m in read(second, 10)] == [b"%d" % n for n in range(10, 20)]
    second.close()


def test_members_share_the_partitions_and_a_late_one_gets_its_part(
    broker: BrokerProcess, admin: AdminClient, topic: str, group: str
) -> None:
    create(admin, topic, 4)
    members = [consumer(broker, group, session_timeout_ms=6_000) for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    assert _await_shares(members) == [2, 2]
    members.append(consumer(broker, group))
    members[-1].subscribe([topic])
    assert sorted(_await_shares(members)) == [1, 1, 2]
    members.pop(0).close()
    assert _await_shares(members) == [2, 2]
    for member in members:
        member.close()


def _await_shares(members: list[Consumer], total: int = 4) -> list[int]:
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        for member in members:
            member.poll(0.05)
        shares = [len(member.assignment()) for member in members]
        if sum(shares) == total and all(shares):
            return shares
    pytest.fail(f"the partitions are not shared evenly: {shares}")


MEMBER = """
import sys
from confluent_kafka import Consumer
c = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
              "session.timeout.ms": 1000, "heartbeat.interval.ms": 200})
c.subscribe([sys.argv[3]])
while not c.assignment():
    c.poll(0.1)
print("assigned", flush=True)
while True:
    c.poll(0.1)
"""


def test_a_killed_member_is_replaced_within_its_session(
    broker: BrokerProcess, admin: AdminClient, topic: str, group: str
) -> None:
    """Pitfall 35 (redpanda#3300): it says no goodbye."""
    create(admin, topic, 4)
    victim = subprocess.Popen(
        [sys.executable, "-c", MEMBER, broker.bootstrap, group, topic], stdout=subprocess.PIPE
    )
    try:
        assert victim.stdout is not None
        assert victim.stdout.readline().strip() == b"assigned"
        survivor = consumer(broker, group, session_timeout_ms=6_000)
        survivor.subscribe([topic])
        deadline = time.monotonic() + WAIT
        while len(survivor.assignment()) != 2:
            assert time.monotonic() < deadline
            survivor.poll(0.05)
    finally:
        victim.kill()
        victim.wait()
        victim.stdout.close()
    assert _await_shares([survivor]) == [4]
    survivor.close()


def test_groups_can_be_listed_described_and_deleted(
    broker: BrokerProcess, admin: AdminClient, topic: str, group: str
) -> None:
    produce(broker, topic, [b"x"])
    member = consumer(broker, group)
    member.subscribe([topic])
    read(member, 1)
    member.commit(asynchronous=False)
    listed = {g.group_id: g for g in admin.list_consumer_groups().result(WAIT).valid}
    assert group in listed
    described = admin.describe_consumer_groups([group])[group].result(WAIT)
    assert described.state.name == "STABLE"
    (only,) = described.members
    assert [(p.topic, p.partition) for p in only.assignment.topic_partitions] == [(topic, 0)]
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(WAIT)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.close()
    wanted = ConsumerGroupTopicPartitions(group)
    (offsets,) = admin.list_consumer_group_offsets([wanted]).values()
    assert offsets.result(WAIT).topic_partitions[0].offset == 1
    change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
    (changed,) = admin.alter_consumer_group_offsets([change]).values()
    assert changed.result(WAIT).topic_partitions[0].error is None
    admin.delete_consumer_groups([group])[group].result(WAIT)
    assert group not in {g.group_id for g in admin.list_consumer_groups().result(WAIT).valid}


def test_offsets_of_a_group_that_never_was(broker: BrokerProcess, topic: str) -> None:
    """Pitfall 33: no error, and nothing committed."""
    produce(broker, topic, [b"x"])
    source = consumer(broker, f"never-{uuid.uuid4().hex[:8]}")
    (found,) = source.committed([TopicPartition(topic, 0)], WAIT)
    assert found.error is None
    assert found.offset < 0
    source.close()


# -- admin --------------------------------------------------------------------------------------


def test_topic_settings_are_described_and_changed(admin: AdminClient, topic: str) -> None:
    create(admin, topic, 2, retention_ms="120000")
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def settings() -> dict[str, ConfigEntry]:
        return admin.describe_configs([resource])[resource].result(WAIT)  # type: ignore[no-any-return]

    assert settings()["retention.ms"].value == "120000"
    assert not settings()["retention.ms"].is_default
    assert settings()["segment.bytes"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("segment.bytes", "65536", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(WAIT)
    assert settings()["retention.ms"].is_default
    assert settings()["segment.bytes"].value == "65536"
    assert settings()["cleanup.policy"].value == "delete,compact"
    bad = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("segment.bytes", "many", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([bad])[bad].result(WAIT)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "config", "code"),
    [
        ("not valid!", {}, KafkaError.TOPIC_EXCEPTION),
        ("..", {}, KafkaError.TOPIC_EXCEPTION),
        ("ok-name", {"no.such.setting": "1"}, KafkaError.INVALID_CONFIG),
        ("ok-name", {"max.message.bytes": "-5"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_bad_topics_are_refused(
    admin: AdminClient, name: str, config: dict[str, str], code: int
) -> None:
    """Pitfall 23."""
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(WAIT)
    assert refused.value.args[0].code() == code


def test_an_invalid_name_is_not_created_by_metadata(broker: BrokerProcess) -> None:
    """Pitfall 23 (librdkafka 0057)."""
    seen: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 5_000})
    producer.produce("not valid!", b"x", on_delivery=lambda error, _: seen.append(error))
    producer.flush(WAIT)
    assert seen[0] is not None
    assert seen[0].code() == KafkaError.TOPIC_EXCEPTION


def test_partitions_can_be_added(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    create(admin, topic, 1)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT)
    assert len(admin.list_topics(topic, WAIT).topics[topic].partitions) == 3
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT)
    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_records_can_be_deleted(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    produce(broker, topic, [b"%d" % n for n in range(10)])
    wanted = TopicPartition(topic, 0, 4)
    deleted = admin.delete_records([wanted])[wanted].result(WAIT)
    assert deleted.low_watermark == 4
    source = consumer(broker, "any")
    assert source.get_watermark_offsets(TopicPartition(topic, 0), WAIT) == (4, 10)
    source.assign([TopicPartition(topic, 0, 0)])
    assert read(source, 1)[0].offset() == 4, "out of range goes to the earliest"
    source.close()


def test_records_of_a_compacted_topic_are_not_deleted(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    """As in Kafka: its policy does not say delete."""
    create(admin, topic, cleanup_policy="compact")
    wanted = TopicPartition(topic, 0, 0)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([wanted])[wanted].result(WAIT)
    assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION


def test_offsets_by_time(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    """Pitfalls 12 and 13: the first record at or after, also inside compressed batches."""
    base = 1_700_000_000_000
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": "zstd", "linger.ms": 50}
    )
    for step in (0, 10, 30, 20, 40):
        producer.produce(topic, b"x", partition=0, timestamp=base + step)
    assert producer.flush(WAIT) == 0
    place = TopicPartition(topic, 0)

    def at(spec: OffsetSpec) -> int:
        return int(admin.list_offsets({place: spec})[place].result(WAIT).offset)

    assert at(OffsetSpec.for_timestamp(base)) == 0
    assert at(OffsetSpec.for_timestamp(base + 11)) == 2
    assert at(OffsetSpec.for_timestamp(base + 31)) == 4
    assert at(OffsetSpec.for_timestamp(base + 41)) == -1
    assert at(OffsetSpec.earliest()) == 0
    assert at(OffsetSpec.latest()) == 5
    assert at(OffsetSpec.max_timestamp()) == 4


def test_a_topic_that_is_made_again_is_another_topic(
    broker: BrokerProcess, admin: AdminClient, topic: str, group: str
) -> None:
    """Pitfall 48: empty, another id, and no old offsets."""
    create(admin, topic)
    produce(broker, topic, [b"old"] * 5)
    source = consumer(broker, group)
    source.subscribe([topic])
    read(source, 5)
    source.commit(asynchronous=False)
    source.close()

    def topic_id() -> str:
        described = admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT)
        return str(described.topic_id)

    before = topic_id()
    admin.delete_topics([topic])[topic].result(WAIT)
    create(admin, topic)
    assert topic_id() != before
    assert produce(broker, topic, [b"new"]) == [0]
    again = consumer(broker, group)
    again.subscribe([topic])
    assert read(again, 1)[0].value() == b"new"
    again.close()


def test_auto_creation_obeys_the_setting_and_the_client(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker(auto_create_topics_enable="false")
    seen: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 3_000})
    producer.produce("absent", b"x", on_delivery=lambda error, _: seen.append(error))
    producer.flush(WAIT)
    assert seen[0] is not None
    assert seen[0].code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MSG_TIMED_OUT}


def test_everything_is_there_after_a_restart(
    new_broker: Callable[..., BrokerProcess], topic: str, group: str
) -> None:
    broker = new_broker()
    values = [b"%d" % n for n in range(100)]
    produce(broker, topic, values, enable_idempotence=True)
    source = consumer(broker, group)
    source.subscribe([topic])
    read(source, 50)
    source.commit(offsets=[TopicPartition(topic, 0, 50)], asynchronous=False)
    source.close()
    assert broker.stop() == 0
    broker.start()
    again = consumer(broker, group)
    again.subscribe([topic])
    assert [m.value() for m in read(again, 50)] == values[50:]
    again.close()
