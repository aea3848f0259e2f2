"""Requests over a raw connection, as the tests of the APIs ask them again and again."""

from __future__ import annotations

import uuid

from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock_broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock_broker.wire.messages.delete_topics import DeleteTopicsRequest
from penstock_broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

BASE_MS = 1_700_000_000_000


def create(client: RawClient, topic: str, partitions: int = 1, **config: str) -> None:
    configs = [CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in config.items()]
    new = CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, configs=configs
    )
    (result,) = client.ask(CreateTopicsRequest(topics=[new]), 7).topics
    assert result.error_code == 0, result.error_message


def records(*values: bytes, times: list[int] | None = None, **options: int) -> bytearray:
    stamps = times or [BASE_MS] * len(values)
    given = [NewRecord(None, value, time) for value, time in zip(values, stamps, strict=True)]
    return build_batch(given, **options)  # type: ignore[arg-type]


def topic_id_of(client: RawClient, topic: str) -> uuid.UUID:
    """Zero where there is no such topic."""
    named = [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
    (found,) = client.ask(request, 12).topics
    assert isinstance(found.topic_id, uuid.UUID)
    return found.topic_id


def delete(client: RawClient, topic: str) -> None:
    answer = client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000), 5)
    assert answer.responses[0].error_code == 0


def delete_records(client: RawClient, topic: str, partition: int, before: int) -> None:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=before)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=5_000
    )
    assert client.ask(request, 2).topics[0].partitions[0].error_code == 0


def produce_to(
    client: RawClient, topic: str, partition: int, batch: bytes | bytearray
) -> PartitionProduceResponse:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = client.ask(request, 9).responses[0].partition_responses[0]
    assert isinstance(answer, PartitionProduceResponse)
    assert answer.error_code == 0
    return answer


def produce(
    client: RawClient, topic: str, *batches: bytes | bytearray, version: int = 9, acks: int = -1
) -> PartitionProduceResponse:
    data = PartitionProduceData(index=0, records=memoryview(b"".join(batches)))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = client.ask(request, version).responses[0].partition_responses[0]
    assert isinstance(answer, PartitionProduceResponse)
    return answer


def fetch(
    client: RawClient,
    topic: str,
    offset: int,
    *,
    version: int = 12,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    epoch: int = -1,
    isolation: int = 0,
) -> PartitionData:
    wanted = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=epoch,
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    answer = client.ask(request, version).responses[0].partitions[0]
    assert isinstance(answer, PartitionData)
    return answer


def offsets(
    client: RawClient, topic: str, *timestamps: int, version: int = 7, epoch: int = -1
) -> list[ListOffsetsPartitionResponse]:
    wanted = [
        ListOffsetsPartition(partition_index=0, timestamp=t, current_leader_epoch=epoch)
        for t in timestamps
    ]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
    return list(client.ask(request, version).topics[0].partitions)
