"""Requests for records and for what is known of topics, and their rights."""

from __future__ import annotations

import time
import uuid

from authorization_rows import (
    CLUSTER,
    DESCRIBE,
    NO_TOPIC,
    NO_TXN,
    READ,
    TOPIC,
    TXN,
    WRITE,
    Row,
    Scene,
)

from penstock_broker.errors import ErrorCode
from penstock_broker.security.acls import (
    Operation,
)
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages import (
    delete_records,
    describe_cluster,
    describe_producers,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from penstock_broker.wire.schema import Struct


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


ROWS = [
    *(
        Row("Produce", v, lambda s: produced([s.topic], 1), NO_TOPIC, [[(WRITE, TOPIC)]])
        for v in (3, 7, 9, 11)  # a batch for one partition: the short way
    ),
    Row("Produce", 9, lambda s: produced([s.topic], 2), NO_TOPIC, [[(WRITE, TOPIC)]]),
    Row(
        "Produce",
        9,
        lambda s: produced([s.topic], 1, s.txn),
        NO_TXN,
        [[(WRITE, TXN), (WRITE, TOPIC)]],
    ),
    Row("Fetch", 4, fetched, NO_TOPIC, [[(READ, TOPIC)]]),
    Row("Fetch", 12, fetched, NO_TOPIC, [[(READ, TOPIC)]]),
    Row("Fetch", 16, lambda s: fetched(s, by_id=True), NO_TOPIC, [[(READ, TOPIC)]]),
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
        [[(DESCRIBE, TOPIC)], [(READ, TOPIC)], [(Operation.ALTER, TOPIC)]],
    ),
    *(
        Row(
            "Metadata",
            v,
            lambda s: metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(name=s.topic)]
            ),
            NO_TOPIC,
            [[(DESCRIBE, TOPIC)], [(WRITE, TOPIC)], [(Operation.DELETE, TOPIC)]],
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
        [[(DESCRIBE, TOPIC)]],
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
        [[(DESCRIBE, TOPIC)]],
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
        [[(DESCRIBE, TOPIC)], [(Operation.CLUSTER_ACTION, CLUSTER)]],
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
        [[(READ, TOPIC)]],
    ),
]
