"""Requests of consumer groups and transactions, and their rights."""

from __future__ import annotations

from authorization_rows import (
    CLUSTER,
    DESCRIBE,
    GROUP,
    NO_CLUSTER,
    NO_GROUP,
    NO_TXN,
    READ,
    TOPIC,
    TXN,
    WRITE,
    Row,
    committed,
)

from penstock_broker.security.acls import (
    Operation,
)
from penstock_broker.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    delete_groups,
    describe_groups,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)

ROWS = [
    Row(
        "OffsetCommit",
        8,
        lambda s: offset_commit.OffsetCommitRequest(
            group_id=s.group, topics=[committed(offset_commit, s)]
        ),
        NO_GROUP,
        [[(READ, GROUP), (READ, TOPIC)]],
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
            [[(DESCRIBE, GROUP), (DESCRIBE, TOPIC)]],
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
            [[(DESCRIBE, GROUP)]],
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
            [[(DESCRIBE, TXN)]],
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
        [[(READ, GROUP)]],
    ),
    Row(
        "SyncGroup",
        3,
        lambda s: sync_group.SyncGroupRequest(group_id=s.group, generation_id=1, member_id="m"),
        NO_GROUP,
        [[(READ, GROUP)]],
    ),
    Row(
        "Heartbeat",
        3,
        lambda s: heartbeat.HeartbeatRequest(group_id=s.group, generation_id=1, member_id="m"),
        NO_GROUP,
        [[(READ, GROUP)]],
    ),
    Row(
        "LeaveGroup",
        3,
        lambda s: leave_group.LeaveGroupRequest(
            group_id=s.group, members=[leave_group.MemberIdentity(member_id="m")]
        ),
        NO_GROUP,
        [[(READ, GROUP)]],
    ),
    Row(
        "DescribeGroups",
        5,
        lambda s: describe_groups.DescribeGroupsRequest(groups=[s.group]),
        NO_GROUP,
        [[(DESCRIBE, GROUP)], [(READ, GROUP)]],
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
        [[(Operation.DELETE, GROUP), (READ, TOPIC)]],
    ),
    Row(
        "InitProducerId",
        4,
        lambda s: init_producer_id.InitProducerIdRequest(transaction_timeout_ms=1000),
        NO_CLUSTER,
        [[(Operation.IDEMPOTENT_WRITE, CLUSTER)], [(WRITE, TOPIC)]],
    ),
    Row(
        "InitProducerId",
        4,
        lambda s: init_producer_id.InitProducerIdRequest(
            transactional_id=s.txn, transaction_timeout_ms=1000
        ),
        NO_TXN,
        [[(WRITE, TXN)]],
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
        [[(WRITE, TXN), (WRITE, TOPIC)]],
    ),
    Row(
        "AddOffsetsToTxn",
        3,
        lambda s: add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=s.txn, producer_id=1, producer_epoch=0, group_id=s.group
        ),
        NO_TXN,
        [[(WRITE, TXN), (READ, GROUP)]],
    ),
    Row(
        "EndTxn",
        3,
        lambda s: end_txn.EndTxnRequest(
            transactional_id=s.txn, producer_id=1, producer_epoch=0, committed=True
        ),
        NO_TXN,
        [[(WRITE, TXN)]],
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
        [[(WRITE, TXN), (READ, GROUP), (READ, TOPIC)]],
    ),
    Row(
        "DescribeTransactions",
        0,
        lambda s: describe_transactions.DescribeTransactionsRequest(transactional_ids=[s.txn]),
        NO_TXN,
        [[(DESCRIBE, TXN)]],
    ),
    Row("ListTransactions", 0, lambda s: list_transactions.ListTransactionsRequest(), None),
]
