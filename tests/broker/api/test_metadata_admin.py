"""Metadata, topics and settings over raw sockets; and the page that describes the protocol."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from penstock_broker.api.registry import api_table
from penstock_broker.api.table import LEFT_OUT, as_markdown, as_text
from penstock_broker.errors import ErrorCode
from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.apis import APIS
from penstock_broker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from penstock_broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock_broker.wire.messages.describe_cluster import DescribeClusterRequest
from penstock_broker.wire.messages.describe_configs import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock_broker.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock_broker.wire.messages.list_groups import ListGroupsRequest
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock_broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock_broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)

ROOT = Path(__file__).resolve().parents[3]


def create(client: RawClient, name: str, partitions: int = 1, replicas: int = 1) -> int:
    new = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    return int(client.ask(CreateTopicsRequest(topics=[new]), 7).topics[0].error_code)


def test_the_page_of_the_protocol_is_fresh() -> None:
    """`penstock-broker api-table --markdown > docs/PROTOCOL.md` renews it."""
    assert (ROOT / "docs/PROTOCOL.md").read_text() == as_markdown()
    assert len(as_text().splitlines()) == len(api_table())


def test_every_api_of_kafka_3_9_is_served_to_its_last_version_or_left_out_for_a_reason() -> None:
    """Pitfall 44: sarama and others with a configured version above ours get a closed connection,
    so the range is Kafka's; kafka-python knows what real brokers answer to ApiVersions."""
    kafka = BROKER_API_VERSIONS[3, 9]
    ours = {row.key: row.advertised.stop - 1 for row in api_table().values()}
    left_out = {key for _, keys, _ in LEFT_OUT for key in keys}
    assert not left_out & set(ours)
    assert set(kafka) - set(ours) <= left_out
    assert set(ours) - set(kafka) == {75}, "DescribeTopicPartitions: 3.9 has it, their table not"
    for_brokers = {24: 3}
    assert {key: ours[key] for key in kafka if key in ours} == {
        key: for_brokers.get(key, last) for key, (_, last) in kafka.items() if key in ours
    }
    smallest = {row.key: row.advertised.start for row in api_table().values()}
    assert {key for key, first in smallest.items() if first > kafka.get(key, (0,))[0]} == {
        1, 2, 8, 9, 19, 20, 23, 29, 30, 31, 32, 34, 35
    }, "those of which Apache Kafka 4 has no version 0 either"  # fmt: skip


def test_every_api_has_a_card_that_says_its_key_and_versions() -> None:
    for key, row in api_table().items():
        first = row.card.splitlines()[0]
        served = row.versions
        shown = (
            f"version {served.start}"
            if len(served) == 1
            else f"versions {served.start}-{served.stop - 1}"
        )
        assert first.startswith(f"{row.name} ({key}), {shown}"), first
        assert "Behaviour:\n" in row.card, row.name
        assert row.name == APIS[key].name
        assert set(served) <= set(APIS[key].versions)


@pytest.mark.parametrize("version", range(13))
def test_metadata_in_each_version(raw: RawClient, topic: str, version: int) -> None:
    assert create(raw, topic, 3) == 0
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    answer = raw.ask(asked, version)
    (found,) = answer.topics
    assert (found.error_code, found.name, found.is_internal) == (0, topic, False)
    assert [p.partition_index for p in found.partitions] == [0, 1, 2]
    for partition in found.partitions:
        assert partition.leader_id == 0
        assert partition.replica_nodes == partition.isr_nodes == [0]
    if version >= 10:
        assert found.topic_id != uuid.UUID(int=0)
    everything = MetadataRequest(topics=[] if version == 0 else None)
    assert topic in {t.name for t in raw.ask(everything, version).topics}
    if version >= 1:
        assert raw.ask(MetadataRequest(topics=[]), version).topics == []


def test_topics_by_id(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    by_name = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    topic_id = raw.ask(by_name, 12).topics[0].topic_id
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    assert raw.ask(by_id, 12).topics[0].name == topic
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=1_000)
    (deleted,) = raw.ask(delete, 6).responses
    assert (deleted.error_code, deleted.name) == (0, topic)
    (gone,) = raw.ask(by_id, 12).topics
    assert (gone.error_code, gone.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert raw.ask(delete, 6).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_auto_creation_only_when_the_request_allows_it(raw: RawClient, topic: str) -> None:
    asked = [MetadataRequestTopic(name=topic)]
    no = raw.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 9)
    assert no.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    yes = raw.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 9)
    assert yes.topics[0].error_code == 0
    assert yes.topics[0].partitions[0].leader_id == 0


def test_the_metadata_cache_sees_changes(raw: RawClient, topic: str) -> None:
    from penstock_broker.wire.messages.create_partitions import (  # noqa: PLC0415
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )

    create(raw, topic)
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    assert len(raw.ask(asked, 9).topics[0].partitions) == 1
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=4)], timeout_ms=1_000
    )
    assert raw.ask(grow, 3).results[0].error_code == 0
    assert len(raw.ask(asked, 9).topics[0].partitions) == 4
    delete = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1_000)
    assert raw.ask(delete, 5).responses[0].error_code == 0
    assert raw.ask(asked, 9).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_cannot_be_created(raw: RawClient, topic: str) -> None:
    assert create(raw, topic) == 0
    assert create(raw, topic) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert create(raw, topic + "-b", replicas=3) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(raw, topic + "-b", replicas=0) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(raw, topic + "-b", partitions=0) == ErrorCode.INVALID_PARTITIONS
    assert create(raw, topic + "-b", partitions=2**31 - 1) == ErrorCode.POLICY_VIOLATION
    assert create(raw, "x" * 250) == ErrorCode.INVALID_TOPIC_EXCEPTION
    twice = CreatableTopic(name=topic + "-c", num_partitions=1, replication_factor=1)
    (result,) = raw.ask(CreateTopicsRequest(topics=[twice, twice]), 7).topics
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_created_by_assignment_defaults_and_on_trial(raw: RawClient, topic: str) -> None:
    def ask(new: CreatableTopic, *, validate_only: bool = False) -> tuple[int, int]:
        request = CreateTopicsRequest(topics=[new], validate_only=validate_only)
        (result,) = raw.ask(request, 7).topics
        return result.error_code, result.num_partitions

    def assigned(*brokers: list[int]) -> CreatableTopic:
        return CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=n, broker_ids=ids)
                for n, ids in enumerate(brokers)
            ],
        )

    assert ask(assigned([0], [9]))[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert ask(assigned([0], [0]), validate_only=True) == (0, 2)
    assert ask(assigned([0], [0])) == (0, 2)
    defaults = CreatableTopic(name=topic + "-d", num_partitions=-1, replication_factor=-1)
    assert ask(defaults) == (0, 1)


def test_the_cluster_and_its_coordinator(raw: RawClient, broker: BrokerProcess) -> None:
    cluster = raw.ask(DescribeClusterRequest(), 0)
    assert len(cluster.cluster_id) == 22
    assert [(b.host, b.port) for b in cluster.brokers] == [(broker.host, broker.port)]
    assert raw.ask(MetadataRequest(topics=[]), 9).cluster_id == cluster.cluster_id
    for version in range(4):
        found = raw.ask(FindCoordinatorRequest(key="g"), version)
        assert (found.error_code, found.port) == (0, broker.port)
    many = raw.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
    assert [(c.key, c.port) for c in many.coordinators] == [
        ("g", broker.port),
        ("h", broker.port),
    ]
    transaction = raw.ask(FindCoordinatorRequest(key="t", key_type=1), 3)
    assert not ErrorCode(transaction.error_code).retriable  # type: ignore[call-arg]
    internal = raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]), 9)
    assert internal.topics[0].is_internal


def test_groups_of_kinds_that_are_not_here(raw: RawClient, topic: str) -> None:
    """FindCoordinator 5 and 6 and ListGroups 5 know of consumer and share groups (KIP-848, 932)."""
    for version in (4, 5, 6):
        share = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"])
        (refused,) = raw.ask(share, version).coordinators
        assert (refused.error_code, refused.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        (found,) = raw.ask(FindCoordinatorRequest(coordinator_keys=["g"]), version).coordinators
        assert (found.error_code, found.node_id) == (0, 0)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    committed = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
    raw.ask(OffsetCommitRequest(group_id=topic, topics=committed), 9)

    def listed(**filters: list[str]) -> dict[str, str]:
        answer = raw.ask(ListGroupsRequest(**filters), 5)  # type: ignore[arg-type]
        assert answer.error_code == 0
        return {group.group_id: group.group_type for group in answer.groups}

    assert listed()[topic] == "classic"
    assert listed(types_filter=["Classic", "share"])[topic] == "classic"
    assert listed(types_filter=["consumer"]) == {}
    assert listed(types_filter=["classic"], states_filter=["empty"])[topic] == "classic"
    assert topic not in listed(states_filter=["Stable"])


def test_offsets_of_an_unknown_group(raw: RawClient, topic: str) -> None:
    """Pitfall 33, in the old form and the new."""
    asked = OffsetFetchRequest(
        group_id="unknown", topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    )
    for version in range(1, 8):
        answer = raw.ask(asked, version)
        (found,) = answer.topics[0].partitions
        assert answer.error_code == 0
        assert (found.error_code, found.committed_offset, found.metadata) == (0, -1, "")
    groups = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="unknown", topics=None)])
    (group,) = raw.ask(groups, 8).groups
    assert (group.error_code, group.topics) == (0, [])


def test_broker_settings_are_described(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker(num_partitions="7")
    with RawClient(broker.host, broker.port) as client:
        resource = DescribeConfigsResource(resource_type=RESOURCE_BROKER, resource_name="0")
        answer = client.ask(DescribeConfigsRequest(resources=[resource]), 4)
        found = {c.name: c for c in answer.results[0].configs}
        assert found["num.partitions"].value == "7"
        assert found["num.partitions"].config_source == 4
        assert found["log.segment.bytes"].config_source == 5
        other = DescribeConfigsResource(resource_type=RESOURCE_BROKER, resource_name="9")
        refused = client.ask(DescribeConfigsRequest(resources=[other]), 4).results[0]
        assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_the_cluster_id_stays(new_broker: Callable[..., BrokerProcess]) -> None:
    broker = new_broker()

    def cluster_id() -> str:
        with RawClient(broker.host, broker.port) as client:
            return str(client.ask(DescribeClusterRequest(), 0).cluster_id)

    before = cluster_id()
    broker.kill()
    broker.start()
    assert cluster_id() == before


@pytest.mark.parametrize(
    ("name", "partitions"), [("__consumer_offsets", 3), ("__transaction_state", 5)]
)
def test_the_brokers_own_topics_are_made_for_metadata_as_their_coordinators_make_them(
    new_broker: Callable[..., BrokerProcess], name: str, partitions: int
) -> None:
    """With the defaults retention would delete, after a week, which epochs are fenced."""
    broker = new_broker(num_partitions="2", transaction_state_log_num_partitions="5")
    with RawClient(broker.host, broker.port) as client:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        (found,) = client.ask(asked, 9).topics
        assert (found.error_code, len(found.partitions)) == (0, partitions)
        wanted = DescribeConfigsResource(resource_type=RESOURCE_TOPIC, resource_name=name)
        (described,) = client.ask(DescribeConfigsRequest(resources=[wanted]), 4).results
    assert {c.name: c.value for c in described.configs}["cleanup.policy"] == "compact"


def test_the_brokers_own_topic_is_not_for_clients(raw: RawClient) -> None:
    from penstock_broker.wire.messages.create_partitions import (  # noqa: PLC0415
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )
    from penstock_broker.wire.messages.produce import (  # noqa: PLC0415
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )

    name = "__consumer_offsets"
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    found = raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9).topics[0]
    assert len(found.partitions) == 3, "made with its own settings, not num.partitions"
    for parts in (1, 2):
        data = [PartitionProduceData(index=p, records=memoryview(b"x" * 70)) for p in range(parts)]
        produce = ProduceRequest(
            acks=1, timeout_ms=0, topic_data=[TopicProduceData(name=name, partition_data=data)]
        )
        answer = raw.ask(produce, 9).responses[0].partition_responses[0]
        assert answer.error_code == refused
    delete = DeleteTopicsRequest(topic_names=[name], timeout_ms=1_000)
    assert raw.ask(delete, 5).responses[0].error_code == refused
    grow = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=60)], timeout_ms=1_000
    )
    assert raw.ask(grow, 3).results[0].error_code == refused
