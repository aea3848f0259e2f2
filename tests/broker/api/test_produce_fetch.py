"""Produce, Fetch and ListOffsets over raw sockets: the cases in which brokers have gone wrong."""

from __future__ import annotations

import pytest
from api_requests import BASE_MS, create, delete, fetch, offsets, produce, records

from penstock_broker.errors import ErrorCode
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock_broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from penstock_broker.wire.messages.init_producer_id import InitProducerIdRequest
from penstock_broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock_broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock_broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock_broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock_broker.wire.records import RecordBatch, iter_batches

# -- produce ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 12))
def test_produce_in_each_version(raw: RawClient, topic: str, version: int) -> None:
    create(raw, topic)
    for expected in (0, 2):
        answer = produce(raw, topic, records(b"a", b"b"), version=version)
        assert (answer.error_code, answer.base_offset) == (0, expected)
        assert answer.log_append_time_ms == -1


def test_each_of_the_last_five_batches_may_be_repeated(raw: RawClient, topic: str) -> None:
    """Pitfalls 24 and 26: the first offset again, no error, and nothing appended."""
    create(raw, topic)
    identity = raw.ask(InitProducerIdRequest(transaction_timeout_ms=0), 4)
    assert identity.error_code == 0

    def batch(sequence: int) -> bytearray:
        return records(
            b"x", b"y", producer_id=identity.producer_id, producer_epoch=0, base_sequence=sequence
        )

    for sequence in range(0, 14, 2):
        assert produce(raw, topic, batch(sequence)).base_offset == sequence
    for sequence in range(4, 14, 2):
        answer = produce(raw, topic, batch(sequence))
        assert (answer.error_code, answer.base_offset) == (0, sequence)
    gap = produce(raw, topic, batch(16))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = produce(raw, topic, batch(0))
    assert old.error_code in {
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
    assert offsets(raw, topic, -1)[0].offset == 14


def test_an_unknown_producer_may_begin_anywhere(raw: RawClient, topic: str) -> None:
    """Pitfall 25: its state may have expired."""
    create(raw, topic)
    answer = produce(
        raw, topic, records(b"x", producer_id=77_777, producer_epoch=0, base_sequence=500)
    )
    assert answer.error_code == 0


def test_producer_ids_are_never_given_twice(raw: RawClient) -> None:
    ids = [raw.ask(InitProducerIdRequest(transaction_timeout_ms=0), 2).producer_id for _ in "abc"]
    assert len(set(ids)) == 3


def test_transactions_are_refused_for_good(raw: RawClient) -> None:
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1_000)
    code = raw.ask(request, 4).error_code
    assert not ErrorCode(code).retriable  # type: ignore[call-arg]


def test_bad_batches_are_refused_and_the_good_partition_beside_them_is_not(
    raw: RawClient, topic: str
) -> None:
    """Pitfalls 18 and 22."""
    create(raw, topic, 2)
    flipped = records(b"hello")
    flipped[-1] ^= 1
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=0, records=memoryview(flipped)),
                    PartitionProduceData(index=1, records=memoryview(records(b"good"))),
                    PartitionProduceData(index=2, records=memoryview(records(b"nowhere"))),
                ],
            )
        ],
    )
    bad, good, nowhere = raw.ask(request, 9).responses[0].partition_responses
    assert bad.error_code == ErrorCode.CORRUPT_MESSAGE
    assert (good.error_code, good.base_offset) == (0, 0)
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(fetch(raw, topic, 0).records or b"") == 0, "nothing corrupt is stored"


def test_what_clients_must_not_send(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    control = records(b"x", control=True)
    assert produce(raw, topic, control).error_code == ErrorCode.INVALID_RECORD
    two = produce(raw, topic, records(b"x"), records(b"y"))
    assert two.error_code == ErrorCode.INVALID_RECORD
    assert not two.record_errors, "no record is to blame"
    old = records(b"x")
    old[16] = 1
    assert produce(raw, topic, old).error_code == ErrorCode.INVALID_RECORD
    assert produce(raw, topic, b"").error_code == ErrorCode.INVALID_RECORD
    assert produce(raw, topic, records(b"x"), acks=5).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert offsets(raw, topic, -1)[0].offset == 0


def test_log_append_time_is_the_brokers(raw: RawClient, topic: str) -> None:
    """Pitfall 16: the attribute, the time, the CRC, and the answer say the same."""
    create(raw, topic, message_timestamp_type="LogAppendTime")
    answer = produce(raw, topic, records(b"x", b"y", times=[1, 2]))
    assert answer.log_append_time_ms > BASE_MS
    data = memoryview(bytearray(fetch(raw, topic, 0).records or b""))
    (batch,) = iter_batches(data)
    assert batch.crc_is_valid()
    assert batch.is_log_append_time
    assert {r.timestamp for r in batch.records()} == {answer.log_append_time_ms}


def test_min_insync_replicas_that_cannot_be_met(raw: RawClient, topic: str) -> None:
    """Pitfall 21: refused before the append, and only with acks=all."""
    create(raw, topic, min_insync_replicas="2")
    assert produce(raw, topic, records(b"x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert offsets(raw, topic, -1)[0].offset == 0
    assert produce(raw, topic, records(b"x"), acks=1).error_code == 0


# -- fetch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_in_each_version(raw: RawClient, topic: str, version: int) -> None:
    create(raw, topic)
    sent = records(b"one", b"two")
    produce(raw, topic, sent)
    found = fetch(raw, topic, 0, version=version)
    (batch,) = iter_batches(memoryview(bytearray(found.records or b"")))
    assert [r.value for r in batch.records()] == [b"one", b"two"]
    assert found.high_watermark == found.last_stable_offset == 2
    assert found.aborted_transactions is None
    assert fetch(raw, topic, 0, version=version, isolation=1).aborted_transactions == []


def test_the_ends_of_the_log(raw: RawClient, topic: str) -> None:
    """Pitfalls 8 and 43."""
    create(raw, topic)
    empty = fetch(raw, topic, 0)
    assert (empty.error_code, empty.high_watermark, len(empty.records or b"")) == (0, 0, 0)
    assert fetch(raw, topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    produce(raw, topic, records(b"a", b"b"))
    assert fetch(raw, topic, 2).error_code == 0
    assert fetch(raw, topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(raw, topic, -1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(raw, "no-such-topic", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_from_the_middle_gives_the_whole_batch(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    produce(raw, topic, records(b"a", b"b", b"c"))
    data = memoryview(bytearray(fetch(raw, topic, 1).records or b""))
    assert RecordBatch(data).base_offset == 0


def test_the_first_batch_comes_whole_however_large(raw: RawClient, topic: str) -> None:
    """KIP-74, by both limits; and what follows keeps to them."""
    create(raw, topic)
    large = records(b"x" * 5_000)
    for _ in range(3):
        produce(raw, topic, large)
    for limits in ({"max_bytes": 100}, {"partition_max_bytes": 100}):
        assert len(fetch(raw, topic, 0, **limits).records or b"") == len(large)
    two = fetch(raw, topic, 0, max_bytes=len(large) * 2)
    assert len(two.records or b"") == len(large) * 2


def test_large_answers_over_many_segments_arrive_whole(raw: RawClient, topic: str) -> None:
    create(raw, topic, segment_bytes="20000", max_message_bytes="15000")
    sent = []
    for number in range(60):
        batch = records(b"%d" % number * 3_000)
        produce(raw, topic, batch)
        sent.append(b"%d" % number * 3_000)
    found: list[bytes | None] = []
    while len(found) < 60:
        data = bytearray(fetch(raw, topic, len(found), max_bytes=8 << 20).records or b"")
        for batch_found in iter_batches(memoryview(data)):
            assert batch_found.crc_is_valid()
            found += [r.value for r in batch_found.records()]
    assert found == sent


def test_no_partition_starves_beside_a_busy_one(raw: RawClient, topic: str) -> None:
    """Pitfall 42."""
    create(raw, topic, 2)
    for index in (0, 1):
        data = PartitionProduceData(index=index, records=memoryview(records(b"x" * 5_000)))
        raw.ask(
            ProduceRequest(
                acks=1,
                timeout_ms=0,
                topic_data=[TopicProduceData(name=topic, partition_data=[data])],
            ),
            8,
        )
    wanted = [
        FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1 << 20) for p in (0, 1)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=100,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )
    served = set()
    for _ in range(2):
        for part in raw.ask(request, 11).responses[0].partitions:
            if len(part.records or b""):
                served.add(part.partition_index)
    assert served == {0, 1}


def test_the_leader_epoch_of_the_client_is_checked(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    answer = raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    epoch = answer.topics[0].partitions[0].leader_epoch
    assert epoch >= 0
    assert fetch(raw, topic, 0, epoch=epoch).error_code == 0
    unknown = ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetch(raw, topic, 0, epoch=epoch + 1).error_code == unknown
    assert offsets(raw, topic, -1, epoch=epoch + 1)[0].error_code == unknown


def test_a_topic_made_again_has_a_larger_epoch(raw: RawClient, topic: str) -> None:
    """Pitfall 5 (redpanda#1181)."""
    from penstock_broker.wire.messages.delete_topics import DeleteTopicsRequest  # noqa: PLC0415

    def epoch() -> int:
        answer = raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
        return int(answer.topics[0].partitions[0].leader_epoch)

    create(raw, topic)
    before = epoch()
    deleted = raw.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1_000), 5)
    assert deleted.responses[0].error_code == 0
    create(raw, topic)
    assert epoch() > before
    assert fetch(raw, topic, 0, epoch=before).error_code == ErrorCode.FENCED_LEADER_EPOCH


# -- offsets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_offsets_by_time_are_those_of_the_first_record(
    raw: RawClient, topic: str, codec: Codec
) -> None:
    """Pitfalls 12 and 13: times go up and down, within batches and from one to the next; nothing
    late enough is -1 in all places and no error."""
    create(raw, topic)
    times = [[10, 50, 20], [5, 6, 7], [60, 30, 70]]
    for stamps in times:
        values = [BASE_MS + step for step in stamps]
        produce(raw, topic, records(b"a", b"b", b"c", times=values, codec=codec))
    flat = [step for stamps in times for step in stamps]
    for asked in (0, 5, 10, 11, 50, 51, 61, 70):
        expected = next(n for n, step in enumerate(flat) if step >= asked)
        (found,) = offsets(raw, topic, BASE_MS + asked)
        assert (found.offset, found.timestamp) == (expected, BASE_MS + flat[expected])
        assert found.leader_epoch >= 0
    (none,) = offsets(raw, topic, BASE_MS + 71)
    assert (none.error_code, none.offset, none.timestamp, none.leader_epoch) == (0, -1, -1, -1)


def test_special_timestamps_by_version(raw: RawClient, topic: str) -> None:
    """Pitfalls 11 and 15."""
    create(raw, topic)
    produce(raw, topic, records(b"a", b"b", b"c", times=[1, 9, 4]))
    assert offsets(raw, topic, -3)[0].offset == 1
    assert offsets(raw, topic, -3, version=6)[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    assert offsets(raw, topic, -4)[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    assert offsets(raw, topic, -5, version=8)[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    assert offsets(raw, topic, -6, version=9)[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    local, tiered = (offsets(raw, topic, time, version=9)[0] for time in (-4, -5))
    assert (local.error_code, local.offset, local.leader_epoch >= 0) == (0, 0, True)
    assert (tiered.error_code, tiered.offset, tiered.leader_epoch) == (0, -1, -1), "KIP-1005"
    for version in range(1, 10):
        assert offsets(raw, topic, -1, version=version)[0].offset == 3
        assert offsets(raw, topic, -2, version=version)[0].offset == 0
    twice = offsets(raw, topic, -1, -2)
    assert [p.error_code for p in twice] == [ErrorCode.INVALID_REQUEST] * 2


def test_epochs_are_in_every_field_that_a_version_has(raw: RawClient, topic: str) -> None:
    """Pitfalls 5 and 6: the same epoch from Metadata, from ListOffsets, and in the
    batches themselves; committed offsets keep the one that they came with."""
    create(raw, topic)
    delete(raw, topic)
    create(raw, topic)
    produce(raw, topic, records(b"a"))
    named = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    epoch = raw.ask(named, 7).topics[0].partitions[0].leader_epoch
    assert epoch > 0
    for timestamp in (-1, -2, -3, BASE_MS):
        assert offsets(raw, topic, timestamp)[0].leader_epoch == epoch
    (batch,) = iter_batches(memoryview(bytearray(fetch(raw, topic, 0).records or b"")))
    assert batch.partition_leader_epoch == epoch
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=epoch
    )
    committed = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    commit = OffsetCommitRequest(group_id=f"g-{topic}", topics=committed)
    assert raw.ask(commit, 9).topics[0].partitions[0].error_code == 0
    group = OffsetFetchRequestGroup(group_id=f"g-{topic}")
    for version in (5, 7):
        answer = raw.ask(OffsetFetchRequest(group_id=f"g-{topic}", topics=None), version)
        assert answer.topics[0].partitions[0].committed_leader_epoch == epoch
    for version in (8, 9):
        answer = raw.ask(OffsetFetchRequest(groups=[group]), version)
        assert answer.groups[0].topics[0].partitions[0].committed_leader_epoch == epoch


def test_deleted_records_are_out_of_range(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    for number in range(4):
        produce(raw, topic, records(b"%d" % number))

    def delete(offset: int) -> tuple[int, int]:
        wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=1_000
        )
        (result,) = raw.ask(request, 2).topics[0].partitions
        return result.error_code, result.low_watermark

    assert delete(2) == (0, 2)
    assert fetch(raw, topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(raw, topic, 2).log_start_offset == 2
    assert offsets(raw, topic, -2)[0].offset == 2
    assert delete(5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (0, 4)
    assert fetch(raw, topic, 4).error_code == 0
    assert produce(raw, topic, records(b"next")).base_offset == 4


def test_where_an_epoch_ended(raw: RawClient, topic: str) -> None:
    create(raw, topic)
    produce(raw, topic, records(b"a", b"b"))
    answer = raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    epoch = answer.topics[0].partitions[0].leader_epoch
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    for version in (2, 3, 4):
        (found,) = raw.ask(request, version).topics[0].partitions
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, 2)
