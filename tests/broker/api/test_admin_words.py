"""What cannot be done with topics and partitions, in the codes and words of Apache Kafka 4.3.1.

The same requests were sent to both; where the words differ on purpose, the difference is an end of
the sentence that Kafka has and this broker has no reason for.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from api_requests import create, topic_id_of

from penstock_broker.errors import ErrorCode
from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock_broker.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock_broker.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock_broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock_broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock_broker.wire.messages.describe_cluster import DescribeClusterRequest
from penstock_broker.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from penstock_broker.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
)
from penstock_broker.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
)
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

ERROR = ErrorCode


def created(client: RawClient, topic: str, **options: Any) -> tuple[int, str | None]:
    given = {"num_partitions": 1, "replication_factor": 1, **options}
    request = CreateTopicsRequest(topics=[CreatableTopic(name=topic, **given)])
    (result,) = client.ask(request, 7).topics
    return result.error_code, result.error_message


def assigned(*partitions: tuple[int, list[int]], **options: int) -> dict[str, Any]:
    return {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in partitions
        ],
        **options,
    }


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (
            {"num_partitions": 0},
            ERROR.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            {"num_partitions": 10_001},
            ERROR.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (
            {"replication_factor": 0},
            ERROR.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            {"replication_factor": 3},
            ERROR.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 "
            "cannot be reached because only 1 broker(s) are registered",
        ),
        (
            assigned((0, [0]), num_partitions=1),
            ERROR.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            assigned((0, [0]), replication_factor=1),
            ERROR.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        ),
        (
            assigned((1, [0])),
            ERROR.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            assigned((0, [0]), (0, [0])),
            ERROR.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            assigned((0, [7])),
            ERROR.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        (
            assigned((0, [])),
            ERROR.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            assigned((0, [0, 0])),
            ERROR.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 0 more than once.",
        ),
    ],
)
def test_topics_that_cannot_be_created(
    raw: RawClient, topic: str, options: dict[str, Any], code: ErrorCode, words: str
) -> None:
    found, message = created(raw, topic, **options)
    assert found == code
    assert message is not None
    assert message.startswith(words)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        (
            {"retention.ms": "abc"},
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"retention.ms": "-5"},
            "Invalid value -5 for configuration retention.ms: Value must be at least -1",
        ),
        (
            {"cleanup.policy": "foo"},
            "Invalid value foo for configuration cleanup.policy: String must be one of: "
            "compact, delete",
        ),
        (
            {"compression.gzip.level": "55"},
            "Invalid value 55 for configuration compression.gzip.level: Value must be between 1 "
            "and 9 or equal to -1",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage.",
        ),
        (
            {"retention.ms": None},
            "Null value not supported for topic configs: retention.ms",
        ),
    ],
)
def test_settings_that_a_topic_cannot_have(
    raw: RawClient, topic: str, settings: dict[str, str | None], words: str
) -> None:
    """Pitfall 23: INVALID_CONFIG, and no topic."""
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
    code, message = created(raw, topic, configs=configs)
    assert (code, message) == (ERROR.INVALID_CONFIG, words)
    assert topic_id_of(raw, topic).int == 0


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics"),
        ("ä", "'ä' contains one or more characters other than ASCII alphanumerics"),
        ("x" * 250, "the length of '" + "x" * 250 + "' is longer than the max allowed length 249"),
    ],
)
def test_names_that_a_topic_cannot_have(raw: RawClient, name: str, problem: str) -> None:
    """Pitfall 23: INVALID_TOPIC_EXCEPTION, by CreateTopics as by Metadata."""
    code, message = created(raw, name)
    assert code == ERROR.INVALID_TOPIC_EXCEPTION
    assert (message or "").startswith(f"Topic name is invalid: {problem}")


def test_settings_of_every_topic_in_kafka_3_9_are_taken(raw: RawClient, topic: str) -> None:
    settings = {
        "leader.replication.throttled.replicas": "*",
        "follower.replication.throttled.replicas": "0:1,1:1",
        "local.retention.ms": "5",
        "remote.storage.enable": "false",
        "compression.gzip.level": "5",
        "compression.lz4.level": "9",
        "compression.zstd.level": "3",
    }
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
    assert created(raw, topic, configs=configs) == (0, None)
    bad = [CreatableTopicConfig(name="leader.replication.throttled.replicas", value="x")]
    assert created(raw, topic + "-b", configs=bad)[0] == ERROR.INVALID_CONFIG


def grown(
    client: RawClient, topic: str, count: int, assignments: list[list[int]] | None = None
) -> tuple[int, str | None]:
    given = None
    if assignments is not None:
        given = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=given)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000)
    (result,) = client.ask(request, 3).results
    return result.error_code, result.error_message


def test_partitions_that_cannot_be_added(raw: RawClient, topic: str) -> None:
    create(raw, topic, 2)
    invalid = ERROR.INVALID_PARTITIONS
    assert grown(raw, topic, 2) == (invalid, "Topic already has 2 partition(s).")
    assert grown(raw, topic, 1) == (
        invalid,
        f"The topic {topic} currently has 2 partition(s); 1 would not be an increase.",
    )
    assert grown(raw, topic + "-none", 2) == (ERROR.UNKNOWN_TOPIC_OR_PARTITION, None)
    wrong = ERROR.INVALID_REPLICA_ASSIGNMENT
    assert grown(raw, topic, 4, [[0]]) == (
        wrong,
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    )
    assert grown(raw, topic, 3, [[9]]) == (
        wrong,
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    )
    assert grown(raw, topic, 3, [[0]]) == (0, None)


def deleted(client: RawClient, *states: DeleteTopicState) -> list[tuple[int, str | None]]:
    answer = client.ask(DeleteTopicsRequest(topics=list(states), timeout_ms=5_000), 6)
    return [(result.error_code, result.error_message) for result in answer.responses]


def test_topics_that_cannot_be_deleted(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    topic_id = topic_id_of(raw, topic)
    refused = ERROR.INVALID_REQUEST
    both = DeleteTopicState(name=topic, topic_id=topic_id)
    text = "You may not specify both topic name and topic id."
    assert deleted(raw, both) == [(refused, text)]
    text = "Neither topic name nor id were specified."
    assert deleted(raw, DeleteTopicState(name=None)) == [(refused, text)]
    named = DeleteTopicState(name=topic)
    assert deleted(raw, named, named) == [(refused, "Duplicate topic name.")]
    unknown = DeleteTopicState(name=None, topic_id=uuid.uuid4())
    assert deleted(raw, unknown)[0][0] == ERROR.UNKNOWN_TOPIC_ID
    assert deleted(raw, DeleteTopicState(name=None, topic_id=topic_id)) == [(0, None)]


def test_leaders_need_no_election(raw: RawClient, topic: str) -> None:
    create(raw, topic)

    def elect(kind: int, partitions: list[int] | None, name: str = topic) -> Any:
        wanted = None
        if partitions is not None:
            wanted = [ElectLeadersTopicPartitions(topic=name, partitions=partitions)]
        answer = raw.ask(ElectLeadersRequest(election_type=kind, topic_partitions=wanted), 2)
        return answer.error_code, [
            (p.partition_id, p.error_code, p.error_message)
            for found in answer.replica_election_results
            for p in found.partition_result
        ]

    calm = (0, ERROR.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    unknown = ERROR.UNKNOWN_TOPIC_OR_PARTITION
    for kind in (0, 1):
        assert elect(kind, [0, 9]) == (0, [calm, (9, unknown, f"No such partition as {topic}-9")])
        assert elect(kind, [0], "none") == (0, [(0, unknown, "No such topic as none")])
        assert elect(kind, None) == (0, [])
    code, results = elect(7, [0])
    assert code == ERROR.INVALID_REQUEST
    assert results == [(0, ERROR.INVALID_REQUEST, "Unknown election type 7")]


def test_the_one_log_directory(raw: RawClient, topic: str) -> None:
    create(raw, topic, 2)

    def describe(topics: list[DescribableLogDirTopic] | None, version: int = 4) -> Any:
        (result,) = raw.ask(DescribeLogDirsRequest(topics=topics), version).results
        return result

    wanted = [
        DescribableLogDirTopic(topic=topic, partitions=[1, 9]),
        DescribableLogDirTopic(topic="none", partitions=[0]),
    ]
    found = describe(wanted)
    assert found.error_code == 0
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in found.topics] == [
        (topic, [1])
    ]
    assert found.topics[0].partitions[0].partition_size == 0
    assert 0 < found.usable_bytes <= found.total_bytes
    assert describe(None, 1).topics
    assert describe([]).topics == []

    def move(path: str, name: str) -> int:
        moved = AlterReplicaLogDirTopic(name=name, partitions=[0])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[moved])])
        return int(raw.ask(request, 2).results[0].partitions[0].error_code)

    assert move(found.log_dir, topic) == 0
    assert move("/elsewhere", topic) == ERROR.LOG_DIR_NOT_FOUND
    assert move(found.log_dir, "none") == ERROR.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_page_by_page(raw: RawClient, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "ab"]
    for name in names:
        create(raw, name, 3)

    def page(limit: int, cursor: Cursor | None = None, *more: str) -> Any:
        asked = [DescribeTopicPartitionsRequestTopic(name=name) for name in (*names, *more)]
        return raw.ask(
            DescribeTopicPartitionsRequest(
                topics=asked, response_partition_limit=limit, cursor=cursor
            ),
            0,
        )

    seen = []
    cursor = None
    for _ in range(3):
        answer = page(2, cursor)
        seen += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        cursor = answer.next_cursor
    assert seen == [(name, index) for name in names for index in range(3)]
    assert cursor is None
    whole = page(2_000, None, "a b", topic + "-none")
    assert [t.error_code for t in whole.topics] == [17, 0, 0, 3]
    assert whole.topics[1].topic_id == topic_id_of(raw, names[0])
    part = whole.topics[1].partitions[0]
    assert (part.leader_id, part.isr_nodes, part.eligible_leader_replicas) == (0, [0], [])
    bad = page(5, Cursor(topic_name=names[0], partition_index=-1))
    assert {t.error_code for t in bad.topics} == {ERROR.INVALID_REQUEST}


def test_endpoints_and_internal_records(raw: RawClient) -> None:
    for kind, code in ((2, ERROR.MISMATCHED_ENDPOINT_TYPE), (9, ERROR.UNSUPPORTED_ENDPOINT_TYPE)):
        assert raw.ask(DescribeClusterRequest(endpoint_type=kind), 1).error_code == code
    wanted = DeleteRecordsPartition(partition_index=0, offset=-1)
    topics = [DeleteRecordsTopic(name="__consumer_offsets", partitions=[wanted])]
    answer = raw.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1_000), 2)
    assert answer.topics[0].partitions[0].error_code == ERROR.INVALID_TOPIC_EXCEPTION


def test_default_replication_is_checked_as_a_given_one(
    new_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = new_broker(default_replication_factor="3")
    with RawClient(broker.host, broker.port) as client:
        refused = ERROR.INVALID_REPLICATION_FACTOR
        assert created(client, topic, replication_factor=-1)[0] == refused
        assert created(client, topic, replication_factor=1)[0] == 0
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic + "-auto")])
        (found,) = client.ask(asked, 12).topics
        assert found.error_code == refused


def test_ids_go_before_names_and_not_before_version_12(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    topic_id = topic_id_of(raw, topic)

    def ask(version: int, name: str | None, wanted: uuid.UUID) -> tuple[int, str | None]:
        named = [MetadataRequestTopic(name=name, topic_id=wanted)]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        (found,) = raw.ask(request, version).topics
        return found.error_code, found.name

    assert ask(12, None, topic_id) == (0, topic)
    assert ask(12, "another", topic_id) == (0, topic)
    assert ask(12, topic, uuid.uuid4()) == (ERROR.UNKNOWN_TOPIC_ID, None)
    for version in (10, 11):
        assert ask(version, topic, uuid.UUID(int=0)) == (0, topic)
        assert ask(version, topic, topic_id)[0] == ERROR.INVALID_REQUEST
        assert ask(version, None, topic_id)[0] == ERROR.INVALID_REQUEST
