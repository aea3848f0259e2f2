"""Every API that touches a resource refuses who has no right to it, and needs no more than Kafka.

The table below has a request for each API, what it must be refused with, and the rights that
suffice. A test walks the registry: an API without a row fails.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import penstock_broker.api  # noqa: F401 (registers the APIs)
from penstock_broker.api.registry import api_table
from penstock_broker.errors import ErrorCode
from penstock_broker.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
)
from penstock_broker.wire.schema import Struct

NO_RIGHTS_NEEDED = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXN = ResourceType.TRANSACTIONAL_ID
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TXN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
REFUSALS = {NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TXN}

Right = tuple[Operation, ResourceType]


@dataclass
class Scene:
    """What the requests are about: a topic, a group and a transactional id that exist."""

    topic: str
    topic_id: uuid.UUID
    group: str
    txn: str

    def name(self, kind: ResourceType) -> str:
        return {TOPIC: self.topic, GROUP: self.group, CLUSTER: CLUSTER_NAME, TXN: self.txn}[kind]


@dataclass
class Row:
    """One request."""

    api: str
    version: int
    make: Callable[[Scene], Struct]
    refusal: ErrorCode | None
    """None: nothing is refused, and nothing shown."""
    rights: list[list[Right]] = field(default_factory=list)
    """Each of these sets of rights suffices, and nothing less than a whole one of them does."""

    def __str__(self) -> str:
        return f"{self.api}-{self.version}"


def batch(*, transactional: bool) -> bytes:
    record = NewRecord(b"k", b"v", int(time.time() * 1000))
    if not transactional:
        return bytes(build_batch([record]))
    return bytes(
        build_batch([record], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    )


def produced(topics: list[str], partitions: int, transactional_id: str | None = None) -> Struct:
    return produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=1,
        timeout_ms=1000,
        topic_data=[
            produce.TopicProduceData(
                name=name,
                partition_data=[
                    produce.PartitionProduceData(
                        index=n, records=batch(transactional=transactional_id is not None)
                    )
                    for n in range(partitions)
                ],
            )
            for name in topics
        ],
    )


def fetched(s: Scene, *, by_id: bool = False) -> Struct:
    return fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        topics=[
            fetch.FetchTopic(
                topic="" if by_id else s.topic,
                topic_id=s.topic_id,
                partitions=[
                    fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
                ],
            )
        ],
    )


def configs(module: Any, **more: Any) -> Any:
    return module.AlterConfigsResource(
        resource_type=describe_configs.RESOURCE_TOPIC, resource_name=more.pop("name"), configs=[]
    )


def broker_resource(module: Any) -> Any:
    return module.AlterConfigsResource(
        resource_type=describe_configs.RESOURCE_BROKER, resource_name="0", configs=[]
    )


def any_acl(cls: type[Any]) -> Any:
    return cls(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="User:nobody",
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def committed(module: Any, s: Scene) -> Any:
    kind = module.__name__.rpartition(".")[2].title().replace("_", "")
    partition = getattr(module, f"{kind}RequestPartition")
    topic = getattr(module, f"{kind}RequestTopic")
    return topic(name=s.topic, partitions=[partition(partition_index=0, committed_offset=1)])


R, W, D = Operation.READ, Operation.WRITE, Operation.DESCRIBE

ROWS = [
    *(
        Row("Produce", v, lambda s: produced([s.topic], 1), NO_TOPIC, [[(W, TOPIC)]])
        for v in (3, 7, 9, 11)  # a batch for one partition: the short way
    ),
    Row("Produce", 9, lambda s: produced([s.topic], 2), NO_TOPIC, [[(W, TOPIC)]]),
    Row(
        "Produce",
        9,
        lambda s: produced([s.topic], 1, s.txn),
        NO_TXN,
        [[(W, TXN), (W, TOPIC)]],
    ),
    Row("Fetch", 4, fetched, NO_TOPIC, [[(R, TOPIC)]]),
    Row("Fetch", 12, fetched, NO_TOPIC, [[(R, TOPIC)]]),
    Row("Fetch", 16, lambda s: fetched(s, by_id=True), NO_TOPIC, [[(R, TOPIC)]]),
    Row(
        "ListOffsets",
        7,
        lambda s: list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=s.topic,
                    partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)],
                )
            ],
        ),
        NO_TOPIC,
        [[(D, TOPIC)], [(R, TOPIC)], [(Operation.ALTER, TOPIC)]],
    ),
    *(
        Row(
            "Metadata",
            v,
            lambda s: metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(name=s.topic)]
            ),
            NO_TOPIC,
            [[(D, TOPIC)], [(W, TOPIC)], [(Operation.DELETE, TOPIC)]],
        )
        for v in (0, 4, 12)
    ),
    Row(
        "Metadata",
        12,
        lambda s: metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=None, topic_id=s.topic_id)]
        ),
        ErrorCode.UNKNOWN_TOPIC_ID,
        [[(D, TOPIC)]],
    ),
    Row(
        "Metadata",
        9,
        lambda s: metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=f"{s.topic}-{uuid.uuid4().hex}")]
        ),
        NO_TOPIC,
    ),
    Row("Metadata", 9, lambda s: metadata.MetadataRequest(topics=None), None),
    Row(
        "DescribeTopicPartitions",
        0,
        lambda s: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.DescribeTopicPartitionsRequestTopic(name=s.topic)],
            response_partition_limit=10,
        ),
        NO_TOPIC,
        [[(D, TOPIC)]],
    ),
    Row(
        "DescribeTopicPartitions",
        0,
        lambda s: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[], response_partition_limit=10
        ),
        None,
    ),
    Row("DescribeCluster", 1, lambda s: describe_cluster.DescribeClusterRequest(), None),
    Row(
        "OffsetCommit",
        8,
        lambda s: offset_commit.OffsetCommitRequest(
            group_id=s.group, topics=[committed(offset_commit, s)]
        ),
        NO_GROUP,
        [[(R, GROUP), (R, TOPIC)]],
    ),
    *(
        Row(
            "OffsetFetch",
            v,
            lambda s: offset_fetch.OffsetFetchRequest(
                group_id=s.group,
                topics=[offset_fetch.OffsetFetchRequestTopic(name=s.topic, partition_indexes=[0])],
                groups=[
                    offset_fetch.OffsetFetchRequestGroup(
                        group_id=s.group,
                        topics=[
                            offset_fetch.OffsetFetchRequestTopics(
                                name=s.topic, partition_indexes=[0]
                            )
                        ],
                    )
                ],
            ),
            NO_GROUP,
            [[(D, GROUP), (D, TOPIC)]],
        )
        for v in (1, 7, 9)
    ),
    *(
        Row(
            "FindCoordinator",
            v,
            lambda s: find_coordinator.FindCoordinatorRequest(
                key=s.group, coordinator_keys=[s.group]
            ),
            NO_GROUP,
            [[(D, GROUP)]],
        )
        for v in (0, 3, 6)
    ),
    *(
        Row(
            "FindCoordinator",
            v,
            lambda s: find_coordinator.FindCoordinatorRequest(
                key=s.txn, coordinator_keys=[s.txn], key_type=1
            ),
            NO_TXN,
            [[(D, TXN)]],
        )
        for v in (2, 4)
    ),
    Row(
        "JoinGroup",
        5,
        lambda s: join_group.JoinGroupRequest(
            group_id=s.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=1_000,
            member_id="",
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        NO_GROUP,
        [[(R, GROUP)]],
    ),
    Row(
        "SyncGroup",
        3,
        lambda s: sync_group.SyncGroupRequest(group_id=s.group, generation_id=1, member_id="m"),
        NO_GROUP,
        [[(R, GROUP)]],
    ),
    Row(
        "Heartbeat",
        3,
        lambda s: heartbeat.HeartbeatRequest(group_id=s.group, generation_id=1, member_id="m"),
        NO_GROUP,
        [[(R, GROUP)]],
    ),
    Row(
        "LeaveGroup",
        3,
        lambda s: leave_group.LeaveGroupRequest(
            group_id=s.group, members=[leave_group.MemberIdentity(member_id="m")]
        ),
        NO_GROUP,
        [[(R, GROUP)]],
    ),
    Row(
        "DescribeGroups",
        5,
        lambda s: describe_groups.DescribeGroupsRequest(groups=[s.group]),
        NO_GROUP,
        [[(D, GROUP)], [(R, GROUP)]],
    ),
    Row("ListGroups", 4, lambda s: list_groups.ListGroupsRequest(), None),
    Row(
        "DeleteGroups",
        2,
        lambda s: delete_groups.DeleteGroupsRequest(groups_names=[s.group]),
        NO_GROUP,
        [[(Operation.DELETE, GROUP)]],
    ),
    Row(
        "OffsetDelete",
        0,
        lambda s: offset_delete.OffsetDeleteRequest(
            group_id=s.group,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name=s.topic,
                    partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)],
                )
            ],
        ),
        NO_GROUP,
        [[(Operation.DELETE, GROUP), (R, TOPIC)]],
    ),
    Row(
        "CreateTopics",
        7,
        lambda s: create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(name=s.topic, num_partitions=1, replication_factor=1)
            ],
            timeout_ms=1000,
            validate_only=True,
        ),
        NO_TOPIC,
        [[(Operation.CREATE, TOPIC)], [(Operation.CREATE, CLUSTER)]],
    ),
    Row(
        "DeleteTopics",
        5,
        lambda s: delete_topics.DeleteTopicsRequest(topic_names=[s.topic], timeout_ms=1000),
        NO_TOPIC,
        [[(Operation.DELETE, TOPIC)]],
    ),
    Row(
        "DeleteTopics",
        6,
        lambda s: delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=None, topic_id=s.topic_id)],
            timeout_ms=1000,
        ),
        NO_TOPIC,
        [[(Operation.DELETE, TOPIC)]],
    ),
    Row(
        "CreatePartitions",
        3,
        lambda s: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name=s.topic, count=5)],
            timeout_ms=1000,
            validate_only=True,
        ),
        NO_TOPIC,
        [[(Operation.ALTER, TOPIC)]],
    ),
    Row(
        "DeleteRecords",
        2,
        lambda s: delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name=s.topic,
                    partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)],
                )
            ],
            timeout_ms=1000,
        ),
        NO_TOPIC,
        [[(Operation.DELETE, TOPIC)]],
    ),
    Row(
        "OffsetForLeaderEpoch",
        3,
        lambda s: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic=s.topic,
                    partitions=[
                        offset_for_leader_epoch.OffsetForLeaderPartition(
                            partition=0, leader_epoch=0
                        )
                    ],
                )
            ]
        ),
        NO_TOPIC,
        [[(D, TOPIC)], [(Operation.CLUSTER_ACTION, CLUSTER)]],
    ),
    Row(
        "DescribeConfigs",
        4,
        lambda s: describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=describe_configs.RESOURCE_TOPIC, resource_name=s.topic
                )
            ]
        ),
        NO_TOPIC,
        [[(Operation.DESCRIBE_CONFIGS, TOPIC)], [(Operation.ALTER_CONFIGS, TOPIC)]],
    ),
    Row(
        "DescribeConfigs",
        1,
        lambda s: describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=describe_configs.RESOURCE_BROKER, resource_name="0"
                )
            ]
        ),
        NO_CLUSTER,
        [[(Operation.DESCRIBE_CONFIGS, CLUSTER)]],
    ),
    Row(
        "AlterConfigs",
        2,
        lambda s: alter_configs.AlterConfigsRequest(
            resources=[configs(alter_configs, name=s.topic)], validate_only=True
        ),
        NO_TOPIC,
        [[(Operation.ALTER_CONFIGS, TOPIC)]],
    ),
    Row(
        "AlterConfigs",
        2,
        lambda s: alter_configs.AlterConfigsRequest(
            resources=[broker_resource(alter_configs)], validate_only=True
        ),
        NO_CLUSTER,
        [[(Operation.ALTER_CONFIGS, CLUSTER)]],
    ),
    Row(
        "IncrementalAlterConfigs",
        1,
        lambda s: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[configs(incremental_alter_configs, name=s.topic)], validate_only=True
        ),
        NO_TOPIC,
        [[(Operation.ALTER_CONFIGS, TOPIC)]],
    ),
    Row(
        "IncrementalAlterConfigs",
        1,
        lambda s: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[broker_resource(incremental_alter_configs)], validate_only=True
        ),
        NO_CLUSTER,
        [[(Operation.ALTER_CONFIGS, CLUSTER)]],
    ),
    Row(
        "InitProducerId",
        4,
        lambda s: init_producer_id.InitProducerIdRequest(transaction_timeout_ms=1000),
        NO_CLUSTER,
        [[(Operation.IDEMPOTENT_WRITE, CLUSTER)], [(W, TOPIC)]],
    ),
    Row(
        "InitProducerId",
        4,
        lambda s: init_producer_id.InitProducerIdRequest(
            transactional_id=s.txn, transaction_timeout_ms=1000
        ),
        NO_TXN,
        [[(W, TXN)]],
    ),
    Row(
        "AddPartitionsToTxn",
        3,
        lambda s: add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=s.txn,
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=s.topic, partitions=[0])
            ],
        ),
        NO_TXN,
        [[(W, TXN), (W, TOPIC)]],
    ),
    Row(
        "AddOffsetsToTxn",
        3,
        lambda s: add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=s.txn, producer_id=1, producer_epoch=0, group_id=s.group
        ),
        NO_TXN,
        [[(W, TXN), (R, GROUP)]],
    ),
    Row(
        "EndTxn",
        3,
        lambda s: end_txn.EndTxnRequest(
            transactional_id=s.txn, producer_id=1, producer_epoch=0, committed=True
        ),
        NO_TXN,
        [[(W, TXN)]],
    ),
    Row(
        "TxnOffsetCommit",
        3,
        lambda s: txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=s.txn,
            group_id=s.group,
            producer_id=1,
            producer_epoch=0,
            topics=[committed(txn_offset_commit, s)],
        ),
        NO_TXN,
        [[(W, TXN), (R, GROUP), (R, TOPIC)]],
    ),
    Row(
        "DescribeProducers",
        0,
        lambda s: describe_producers.DescribeProducersRequest(
            topics=[
                describe_producers.DescribeProducersRequestTopic(
                    name=s.topic, partition_indexes=[0]
                )
            ]
        ),
        NO_TOPIC,
        [[(R, TOPIC)]],
    ),
    Row(
        "DescribeTransactions",
        0,
        lambda s: describe_transactions.DescribeTransactionsRequest(transactional_ids=[s.txn]),
        NO_TXN,
        [[(D, TXN)]],
    ),
    Row("ListTransactions", 0, lambda s: list_transactions.ListTransactionsRequest(), None),
    Row(
        "DescribeAcls",
        3,
        lambda s: any_acl(describe_acls.DescribeAclsRequest),
        NO_CLUSTER,
        [[(D, CLUSTER)], [(Operation.ALTER, CLUSTER)]],
    ),
    Row(
        "CreateAcls",
        3,
        lambda s: create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(
                    resource_type=TOPIC,
                    resource_name="unrelated",
                    principal="User:nobody",
                    host="*",
                    operation=R,
                    permission_type=Permission.ALLOW,
                )
            ]
        ),
        NO_CLUSTER,
        [[(Operation.ALTER, CLUSTER)]],
    ),
    Row(
        "DeleteAcls",
        3,
        lambda s: delete_acls.DeleteAclsRequest(filters=[any_acl(delete_acls.DeleteAclsFilter)]),
        NO_CLUSTER,
        [[(Operation.ALTER, CLUSTER)]],
    ),
    Row(
        "DescribeUserScramCredentials",
        0,
        lambda s: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(),
        NO_CLUSTER,
        [[(D, CLUSTER)]],
    ),
    Row(
        "AlterUserScramCredentials",
        0,
        lambda s: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[
                alter_user_scram_credentials.ScramCredentialDeletion(name="nobody", mechanism=1)
            ]
        ),
        NO_CLUSTER,
        [[(Operation.ALTER, CLUSTER)]],
    ),
    Row(
        "DescribeClientQuotas",
        1,
        lambda s: describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False),
        NO_CLUSTER,
        [[(Operation.DESCRIBE_CONFIGS, CLUSTER)]],
    ),
    Row(
        "AlterClientQuotas",
        1,
        lambda s: alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.AlterEntryData(
                    entity=[
                        alter_client_quotas.AlterEntityData(
                            entity_type="user", entity_name="nobody"
                        )
                    ],
                    ops=[],
                )
            ],
            validate_only=True,
        ),
        NO_CLUSTER,
        [[(Operation.ALTER_CONFIGS, CLUSTER)]],
    ),
    Row(
        "DescribeLogDirs",
        4,
        lambda s: describe_log_dirs.DescribeLogDirsRequest(topics=None),
        NO_CLUSTER,
        [[(D, CLUSTER)]],
    ),
    Row("DescribeLogDirs", 1, lambda s: describe_log_dirs.DescribeLogDirsRequest(), None),
    Row(
        "AlterReplicaLogDirs",
        2,
        lambda s: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="elsewhere",
                    topics=[
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(name=s.topic, partitions=[0])
                    ],
                )
            ]
        ),
        NO_CLUSTER,
        [[(Operation.ALTER, CLUSTER)]],
    ),
    Row(
        "ElectLeaders",
        2,
        lambda s: elect_leaders.ElectLeadersRequest(
            topic_partitions=[
                elect_leaders.ElectLeadersTopicPartitions(topic=s.topic, partitions=[0])
            ]
        ),
        NO_CLUSTER,
        [[(Operation.ALTER, CLUSTER)]],
    ),
]
SERVED = {row.name: row.versions for row in api_table().values()}
ROWS = [row for row in ROWS if row.version in SERVED.get(row.api, ())]


def test_the_table_has_every_api() -> None:
    """An API that is added to the registry is refused to strangers, or this fails."""
    assert set(SERVED) - {row.api for row in ROWS} == NO_RIGHTS_NEEDED


def codes(value: Any) -> set[int]:
    """Every error code in an answer."""
    found: set[int] = set()
    if isinstance(value, list | tuple):
        for each in value:
            found |= codes(each)
    elif isinstance(value, Struct):
        for name in value.__slots__:
            part = getattr(value, name)
            if name.endswith("error_code") and isinstance(part, int):
                found.add(part)
            else:
                found |= codes(part)
    return found


@pytest.fixture(scope="module")
def admin(guarded: Any) -> Iterator[RawClient]:
    with RawClient(*guarded.address("SASL")) as client:
        yield guarded.log_in(client, "admin")


@pytest.fixture
def scene(admin: RawClient) -> Scene:
    """A topic that only the admin may know of."""
    name = f"secret-{uuid.uuid4().hex[:8]}"
    made = admin.ask(
        create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
            ],
            timeout_ms=5000,
        ),
        7,
    )
    assert made.topics[0].error_code == 0
    group = f"group-{name}"
    commit = offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=0
                    )
                ],
            )
        ],
    )
    assert codes(admin.ask(commit, 8)) == {0}
    return Scene(name, made.topics[0].topic_id, group, f"txn-{name}")


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_who_has_no_rights_is_refused(
    guarded: Any, connect: Callable[..., RawClient], scene: Scene, row: Row
) -> None:
    for listener, user in (("SASL", "bob"), ("PLAIN", None)):
        client = connect(guarded, listener, user)
        answer = client.ask(row.make(scene), row.version)
        if row.refusal is None:
            assert codes(answer) <= {0, NO_CLUSTER}, answer
            assert scene.topic not in repr(answer)
        else:
            assert row.refusal in codes(answer), answer
            assert codes(answer) <= {row.refusal, 0}, answer


def _grant(admin: RawClient, scene: Scene, rights: list[Right], user: str) -> None:
    answer = admin.ask(
        create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(
                    resource_type=kind,
                    resource_name=scene.name(kind),
                    resource_pattern_type=PatternType.LITERAL,
                    principal=f"User:{user}",
                    host="127.0.0.1",
                    operation=operation,
                    permission_type=Permission.ALLOW,
                )
                for operation, kind in rights
            ]
        ),
        3,
    )
    assert codes(answer) == {0}


def _revoke(admin: RawClient, user: str) -> None:
    wanted = any_acl(delete_acls.DeleteAclsFilter)
    wanted.principal_filter = f"User:{user}"
    assert codes(admin.ask(delete_acls.DeleteAclsRequest(filters=[wanted]), 3)) == {0}


@pytest.mark.parametrize("row", [row for row in ROWS if row.rights], ids=str)
def test_the_rights_that_kafka_asks_for_suffice(
    guarded: Any,
    connect: Callable[..., RawClient],
    admin: RawClient,
    scene: Scene,
    row: Row,
) -> None:
    """On a connection that has been refused before: what is remembered of that is forgotten."""
    client = connect(guarded, "SASL", "alice")
    try:
        assert row.refusal in codes(client.ask(row.make(scene), row.version))
        for rights in row.rights:
            for missing in rights:
                partly = [right for right in rights if right != missing]
                if partly:
                    _grant(admin, scene, partly, "alice")
                    assert codes(client.ask(row.make(scene), row.version)) & REFUSALS
                    _revoke(admin, "alice")
            _grant(admin, scene, rights, "alice")
            found = codes(client.ask(row.make(scene), row.version))
            _revoke(admin, "alice")
            assert not found & {*REFUSALS, row.refusal}, (rights, found)
            if row.api not in {"DeleteTopics", "DeleteGroups"}:
                assert codes(client.ask(row.make(scene), row.version)) & {*REFUSALS, row.refusal}
    finally:
        _revoke(admin, "alice")


def test_authorized_operations(
    guarded: Any, connect: Callable[..., RawClient], admin: RawClient, scene: Scene
) -> None:
    """The bits of what a client may do: all for the admin, what the rules say for others, and
    none where nobody asked."""
    everything = {kind: sum(1 << op for op in found) for kind, found in SUPPORTED.items()}
    rights = [(R, TOPIC), (D, GROUP), (D, CLUSTER), (Operation.ALTER_CONFIGS, CLUSTER)]
    alice = connect(guarded, "SASL", "alice")
    _grant(admin, scene, rights, "alice")
    try:
        for client, topic, group, cluster in (
            (admin, everything[TOPIC], everything[GROUP], everything[CLUSTER]),
            (
                alice,
                1 << R | 1 << D,
                1 << D,
                1 << D | 1 << Operation.ALTER_CONFIGS | 1 << Operation.DESCRIBE_CONFIGS,
            ),
        ):
            for version in (8, 10):
                request = metadata.MetadataRequest(
                    topics=[metadata.MetadataRequestTopic(name=scene.topic)],
                    include_cluster_authorized_operations=True,
                    include_topic_authorized_operations=True,
                )
                answer = client.ask(request, version)
                assert answer.cluster_authorized_operations == cluster
                assert answer.topics[0].topic_authorized_operations == topic
            request = metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(name=scene.topic)]
            )
            answer = client.ask(request, 10)
            assert answer.cluster_authorized_operations == metadata.OPERATIONS_NOT_ASKED
            assert answer.topics[0].topic_authorized_operations == metadata.OPERATIONS_NOT_ASKED
            described = client.ask(
                describe_groups.DescribeGroupsRequest(
                    groups=[scene.group], include_authorized_operations=True
                ),
                5,
            )
            assert described.groups[0].authorized_operations == group
            answer = client.ask(
                describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True),
                1,
            )
            assert answer.cluster_authorized_operations == cluster
    finally:
        _revoke(admin, "alice")


def test_settings_of_a_new_topic_are_for_those_who_may_see_settings(
    guarded: Any, connect: Callable[..., RawClient], admin: RawClient
) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    request = create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
        timeout_ms=1000,
        validate_only=True,
    )
    mine = Scene(name, uuid.uuid4(), "", "")
    client = connect(guarded, "SASL", "alice")
    try:
        _grant(admin, mine, [(Operation.CREATE, TOPIC)], "alice")
        (topic,) = client.ask(request, 7).topics
        assert (topic.error_code, topic.topic_config_error_code) == (0, NO_TOPIC)
        assert (topic.configs, topic.num_partitions, topic.replication_factor) == ([], -1, -1)
        _grant(admin, mine, [(Operation.DESCRIBE_CONFIGS, TOPIC)], "alice")
        (topic,) = client.ask(request, 7).topics
        assert (topic.error_code, topic.topic_config_error_code) == (0, 0)
        assert topic.configs and topic.num_partitions == 1
    finally:
        _revoke(admin, "alice")
