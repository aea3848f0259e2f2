"""The requests of transactions, version by version, and what they say when they say no."""

from __future__ import annotations

import uuid

import pytest

from penstock_broker.errors import ErrorCode
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock_broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock_broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock_broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
)
from penstock_broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock_broker.wire.messages.end_txn import EndTxnRequest
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock_broker.wire.messages.init_producer_id import InitProducerIdRequest
from penstock_broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock_broker.wire.messages.list_transactions import ListTransactionsRequest
from penstock_broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock_broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NONE = ErrorCode.NONE


class Producer:
    """One transactional id, request by request."""

    def __init__(self, raw: RawClient, topic: str) -> None:
        self.raw = raw
        self.topic = topic
        self.transactional_id = uuid.uuid4().hex
        wanted = CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
        raw.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1_000), 5)
        self.id, self.epoch = -1, -1

    def init(self, version: int = 4, **expected: int) -> int:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=10_000, **expected
        )
        answer = self.raw.ask(request, version)
        if answer.error_code == 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    def add(
        self, version: int = 3, *, topic: str = "", partitions: tuple[int, ...] = (0,)
    ) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic or self.topic, partitions=list(partitions))
            ],
        )
        (answer,) = self.raw.ask(request, version).results_by_topic_v3_and_below
        return [result.partition_error_code for result in answer.results_by_partition]

    def end(self, version: int = 3, *, commit: bool = True) -> int:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return self.raw.ask(request, version).error_code

    def produce(
        self,
        version: int = 9,
        *,
        index: int = 0,
        sequence: int = 0,
        epoch: int | None = None,
        transactional_id: str | None = "",
    ) -> int:
        batch = build_batch(
            [NewRecord(None, b"v", 1_700_000_000_000)],
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(index=index, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.transactional_id if transactional_id == "" else transactional_id,
            acks=-1,
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )
        return self.raw.ask(request, version).responses[0].partition_responses[0].error_code

    def add_offsets(self, group: str, version: int = 3) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return self.raw.ask(request, version).error_code

    def commit_offset(
        self, group: str, offset: int, version: int = 3, *, epoch: int | None = None, index: int = 0
    ) -> int:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=self.topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset
                        )
                    ],
                )
            ],
        )
        return self.raw.ask(request, version).topics[0].partitions[0].error_code


@pytest.fixture
def producer(raw: RawClient, topic: str) -> Producer:
    return Producer(raw, topic)


@pytest.mark.parametrize("version", [0, 1, 4, 6])
def test_a_coordinator_is_found_for_transactions(raw: RawClient, version: int) -> None:
    request = FindCoordinatorRequest(key="x", key_type=1, coordinator_keys=["x"])
    if version == 0:
        request = FindCoordinatorRequest(key="g", key_type=0)
    answer = raw.ask(request, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (0, 0)


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_init_producer_id(producer: Producer, version: int) -> None:
    assert producer.init(version) == NONE
    first = producer.id
    assert producer.init(version) == NONE
    assert (producer.id, producer.epoch) == (first, 1)


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)],
)
def test_who_is_fenced_learns_it_in_the_words_of_its_version(
    producer: Producer, version: int, code: ErrorCode
) -> None:
    """Pitfall 28: PRODUCER_FENCED since Kafka 2.7, INVALID_PRODUCER_EPOCH to those before."""
    producer.init()
    producer.init()
    assert producer.init(version, producer_id=producer.id, producer_epoch=9) == code
    old = 1 if version == 3 else 2
    producer.epoch -= 1
    assert producer.add(old) == [code]
    assert producer.end(old) == code
    assert producer.add_offsets("g", old) == code


def test_the_produce_path_says_that_the_epoch_is_invalid(producer: Producer) -> None:
    """Pitfall 28: INVALID_PRODUCER_EPOCH in every version of Produce (KAFKA-9911)."""
    producer.init()
    producer.init()
    producer.add()
    for version in (3, 9, 11):
        assert producer.produce(version, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.produce() == NONE
    assert producer.produce(epoch=0, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    group = uuid.uuid4().hex
    assert producer.commit_offset(group, 1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_half_an_identity_is_no_identity(producer: Producer) -> None:
    assert producer.init(4, producer_id=7) == ErrorCode.INVALID_REQUEST
    assert producer.init(4, producer_epoch=7) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_all_or_none(producer: Producer, version: int) -> None:
    producer.init()
    unknown, not_tried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert producer.add(version, partitions=(0, 7)) == [not_tried, unknown]
    assert producer.add(version, topic="__consumer_offsets") == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ]
    assert producer.end() == ErrorCode.INVALID_TXN_STATE
    assert producer.add(version, partitions=(0, 1)) == [NONE, NONE]
    assert producer.end() == NONE


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_records_outside_of_a_transaction_are_refused(
    producer: Producer, version: int, code: ErrorCode
) -> None:
    producer.init()
    assert producer.produce(version) == code
    producer.add(partitions=(0,))
    assert producer.produce(version, index=1) == code
    assert producer.produce(version) == NONE
    assert producer.produce(version, transactional_id=None) == (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    assert producer.produce(version, transactional_id="other", index=1) == (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    assert producer.end() == NONE
    assert producer.produce(version, sequence=1) == code


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_a_transaction(producer: Producer, raw: RawClient, version: int) -> None:
    """Pitfall 32: UNSTABLE_OFFSET_COMMIT to who wants stable offsets, until it is decided."""
    group = uuid.uuid4().hex
    producer.init()
    outside = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    producer.add()
    assert producer.commit_offset(group, 5, version) == outside
    assert producer.add_offsets(group, version) == NONE
    assert producer.commit_offset(group, 5, version) == NONE
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset(group, 5, version, index=9) == unknown
    assert offset_of(raw, producer.topic, group, 7, stable=True) == (
        -1,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
    assert offset_of(raw, producer.topic, group, 8, stable=True) == (
        -1,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
    assert offset_of(raw, producer.topic, group, 8, stable=False) == (-1, NONE)
    assert producer.end() == NONE
    assert offset_of(raw, producer.topic, group, 8, stable=True) == (5, NONE)


def offset_of(
    raw: RawClient, topic: str, group: str, version: int, *, stable: bool
) -> tuple[int, int]:
    if version >= 8:
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])],
            require_stable=stable,
        )
        found = raw.ask(request, version).groups[0].topics[0].partitions[0]
    else:
        old = OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        request = OffsetFetchRequest(group_id=group, topics=[old], require_stable=stable)
        found = raw.ask(request, version).topics[0].partitions[0]
    return found.committed_offset, found.error_code


def test_a_fetch_lists_aborted_transactions(producer: Producer, raw: RawClient) -> None:
    """Pitfall 14: with read_committed the latest offset is the last stable one."""
    producer.init()
    producer.add()
    producer.produce()
    assert latest(raw, producer.topic, 1) == 0
    assert latest(raw, producer.topic, 0) == 1
    data = fetch(raw, producer.topic, 1)
    assert (data.high_watermark, data.last_stable_offset, len(data.records)) == (1, 0, 0)
    producer.end(commit=False)
    data = fetch(raw, producer.topic, 1)
    assert (data.high_watermark, data.last_stable_offset) == (2, 2)
    (aborted,) = data.aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (producer.id, 0)
    data = fetch(raw, producer.topic, 0)
    assert data.aborted_transactions is None
    assert latest(raw, producer.topic, 1) == 2


def fetch(raw: RawClient, topic: str, isolation: int):  # type: ignore[no-untyped-def]
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    return raw.ask(request, 12).responses[0].partitions[0]


def latest(raw: RawClient, topic: str, isolation: int) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[partition])],
    )
    offset: int = raw.ask(request, 7).topics[0].partitions[0].offset
    return offset


def test_what_admins_see(producer: Producer, raw: RawClient) -> None:
    producer.init()
    producer.add(partitions=(0, 1))
    producer.produce()
    described = raw.ask(
        DescribeTransactionsRequest(transactional_ids=[producer.transactional_id, "unknown", ""]), 0
    ).transaction_states
    assert [d.error_code for d in described] == [
        NONE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]
    mine = described[0]
    assert mine.transaction_state == "Ongoing"
    assert (mine.producer_id, mine.producer_epoch) == (producer.id, producer.epoch)
    assert mine.transaction_timeout_ms == 10_000
    assert [(t.topic, t.partitions) for t in mine.topics] == [(producer.topic, [0, 1])]
    listed = raw.ask(
        ListTransactionsRequest(
            state_filters=["Ongoing", "Odd"], producer_id_filters=[producer.id]
        ),
        1,
    )
    assert listed.unknown_state_filters == ["Odd"]
    assert [t.transactional_id for t in listed.transaction_states] == [producer.transactional_id]
    wanted = DescribeProducersRequestTopic(name=producer.topic, partition_indexes=[0, 1, 7])
    partitions = raw.ask(DescribeProducersRequest(topics=[wanted]), 0).topics[0].partitions
    (state,) = partitions[0].active_producers
    assert (state.producer_id, state.last_sequence, state.current_txn_start_offset) == (
        producer.id,
        0,
        0,
    )
    assert state.coordinator_epoch == -1
    assert partitions[1].active_producers == []
    assert partitions[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer.end()
    partitions = raw.ask(DescribeProducersRequest(topics=[wanted]), 0).topics[0].partitions
    (state,) = partitions[0].active_producers
    assert state.current_txn_start_offset == -1
    assert state.coordinator_epoch >= 0, "the epoch of the coordinator's own partition"


def test_the_internal_topic_is_not_for_clients(producer: Producer, raw: RawClient) -> None:
    producer.init()
    batch = build_batch([NewRecord(b"k", b"v", 1)])
    data = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="__transaction_state", partition_data=[data])],
    )
    answer = raw.ask(request, 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
