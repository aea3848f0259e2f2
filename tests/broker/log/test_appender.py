"""What an appender promises of batches that are staged: the same as of batches one by one."""

from __future__ import annotations

import errno

import pytest
from log_bench import Bench, read_all, values_of

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.log import Log
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.log.owner import NoOwner
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch

PRODUCER = 7
SEQUENCE_END = 2**31


def batch(
    sequence: int, *, epoch: int = 0, count: int = 1, transactional: bool = False
) -> RecordBatch:
    """One of our producer."""
    data = build_batch(
        [NewRecord(b"k", b"%d" % sequence, 5)] * count,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return RecordBatch(memoryview(data))


def marker(epoch: int) -> RecordBatch:
    return RecordBatch(memoryview(build_marker(PRODUCER, epoch, Marker(True, 0), 5)))


def refused(log: Log, given: RecordBatch) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        log.appender.add(given, 0)
    return error.value.code


def test_a_batch_says_where_it_is(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", "b")
    sent = bench.batch(["c"])
    log.append([sent], 7)
    assert (sent.base_offset, sent.partition_leader_epoch) == (2, 7)


def test_each_epoch_begins_at_its_first_batch(bench: Bench) -> None:
    log = bench.open()
    for epoch in (0, 0, 3, 3, 4):
        log.appender.add(bench.batch(["a", "b"]), epoch)
    log.appender.commit()
    assert log.epochs.entries() == [(0, 0), (3, 4), (4, 8)]
    assert bench.reopen_after_kill(log).epochs.entries() == [(0, 0), (3, 4), (4, 8)]


@pytest.mark.parametrize(("last", "segments"), [(2**31 - 1, 1), (2**31, 2)])
def test_staged_offsets_do_not_outgrow_the_index(bench: Bench, last: int, segments: int) -> None:
    """Entries are relative to the segment's base offset, in 32 bits."""
    log = bench.open()
    batches = [bench.batch(["x"]) for _ in range(4)]
    for each in batches[:3]:
        each.last_offset_delta = 2**29
    batches[3].last_offset_delta = last - 3 * (2**29 + 1)
    assert log.append(batches, 0).last_offset == last
    assert len(log.segments) == segments


def test_what_has_been_written_is_counted_once(bench: Bench) -> None:
    log = bench.open()
    assert log.appender.take_written() == (0, 0)
    bench.append(log, "a", "b", "c")
    first = log.size_bytes
    assert log.appender.take_written() == (first, 3)
    for value in ("d", "e"):
        bench.append(log, value)
    assert log.appender.take_written() == (log.size_bytes - first, 2)
    assert log.appender.take_written() == (0, 0)


def test_batches_that_are_written_at_once_are_all_counted(bench: Bench) -> None:
    log = bench.open()
    for values in (["a", "b"], ["c"], ["d", "e", "f"]):
        log.appender.add(bench.batch(values), 0)
    log.appender.commit()
    assert log.appender.take_written() == (log.size_bytes, 6)


def test_a_result_names_the_start_of_the_log_as_it_is_now(bench: Bench) -> None:
    log = bench.open()
    for _ in range(3):
        assert bench.append(log, "x").log_start_offset == 0
    log.delete_records(2)
    assert bench.append(log, "x", producer=(PRODUCER, 0, 0)).log_start_offset == 2
    log.delete_records(3)
    again = bench.append(log, "x", producer=(PRODUCER, 0, 0))
    assert (again.duplicate, again.base_offset, again.log_start_offset) == (True, 3, 3)


def test_settings_count_from_the_next_write_on(bench: Bench) -> None:
    log = bench.open()
    for _ in range(3):
        bench.append(log, "x")
    log.update_config(log.config.with_overrides({"segment.bytes": "100"}))
    bench.append(log, "x")
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_log_that_is_offline_takes_no_repeat(bench: Bench) -> None:
    log = bench.open()
    log.append([batch(0)], 0)
    log.fail("a test says so")
    assert refused(log, batch(0)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(log, batch(1)) is ErrorCode.KAFKA_STORAGE_ERROR


def test_nothing_is_staged_behind_a_write_that_broke_the_log(bench: Bench) -> None:
    """The batch for which there was no more space had what is staged written first."""
    bench.overrides = {"segment.bytes": "300"}
    log = bench.open()
    bench.append(log, "a")
    staged = log.appender.add(bench.batch(["b"]), 0)
    bench.files.fail("write", errno.EIO, path_part=".log")
    with pytest.raises(KafkaError, match="is offline"):
        log.appender.add(bench.batch(["c" * 150]), 0)
    assert staged.error is not None
    log.appender.commit()
    assert values_of(read_all(bench.reopen_after_kill(log))) == ["a"]


# -- producers


def test_sequences_go_round_while_they_are_staged(bench: Bench) -> None:
    log = bench.open()
    for sequence in (SEQUENCE_END - 2, SEQUENCE_END - 1, 0, 1):
        log.appender.add(batch(sequence), 0)
    log.appender.commit()
    assert values_of(read_all(log)) == [str(n % SEQUENCE_END) for n in range(-2, 2)]


def test_a_new_epoch_begins_with_sequence_0_also_behind_what_is_staged(bench: Bench) -> None:
    log = bench.open()
    log.appender.add(batch(0), 0)
    assert refused(log, batch(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.appender.add(batch(0, epoch=1), 0).base_offset == 1
    assert refused(log, batch(1)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_of_batches_without_a_producer_nothing_is_remembered(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    assert len(log.producers) == 0


def test_what_follows_a_write_that_failed_is_out_of_order(bench: Bench) -> None:
    log = bench.open()
    log.append([batch(0)], 0)
    results = [log.appender.add(batch(sequence), 0) for sequence in (1, 2)]
    bench.files.fail("write", errno.ENOSPC, path_part=".log")
    log.appender.commit()
    assert all(result.error is not None for result in results)
    assert refused(log, batch(3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append([batch(1)], 0).base_offset == 1


def test_a_silent_producer_goes_by_the_time_of_its_last_batch(bench: Bench) -> None:
    log = bench.open()
    log.append([batch(0)], 0)
    bench.clock.advance(1_000)
    log.append([batch(1)], 0)
    now_ms = bench.clock.now_ms()
    assert log.expire_producers(now_ms) == 0
    assert log.expire_producers(now_ms + 1) == 1


# -- transactions


def test_a_transaction_is_open_before_its_first_batch_or_vouched_for(bench: Bench) -> None:
    """KIP-890: what comes late must not begin a transaction that no marker ends."""
    log = bench.open()
    assert refused(log, batch(0, transactional=True)) is ErrorCode.INVALID_TXN_STATE
    with pytest.raises(KafkaError, match="not part of an ongoing transaction"):
        log.append([batch(0, transactional=True)], 0)
    assert log.append([batch(0, transactional=True)], 0, is_verified=True).base_offset == 0
    assert log.append([batch(1, transactional=True)], 0).base_offset == 1
    log.append_for_coordinator(marker(0), 0, Marker(True, 0))
    assert refused(log, batch(2, transactional=True)) is ErrorCode.INVALID_TXN_STATE


def test_a_transaction_does_not_begin_behind_a_staged_batch_unasked(bench: Bench) -> None:
    log = bench.open()
    log.appender.add(batch(0), 0)
    assert refused(log, batch(1, transactional=True)) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_is_held_against_a_staged_transaction(bench: Bench) -> None:
    log = bench.open()
    log.appender.add(batch(0, epoch=1, transactional=True), 0, is_verified=True)
    with pytest.raises(KafkaError) as error:
        log.append_for_coordinator(marker(0), 0, Marker(True, 0))
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.last_stable_offset == 0
    log.append_for_coordinator(marker(1), 0, Marker(True, 0))
    assert log.last_stable_offset == 2


def test_markers_of_an_earlier_coordinator_are_refused(bench: Bench) -> None:
    log = bench.open()
    for coordinator_epoch in (5, 6):
        ended = Marker(True, coordinator_epoch)
        assert log.append_for_coordinator(marker(0), 0, ended).base_offset == coordinator_epoch - 5
    with pytest.raises(KafkaError) as error:
        log.append_for_coordinator(marker(0), 0, Marker(True, 5))
    assert error.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    offsets = batch(-1, transactional=True)
    assert log.append_for_coordinator(offsets, 0).base_offset == 2, "it is no marker"


@pytest.mark.parametrize("stamps", [False, True])
def test_markers_have_the_time_that_the_topic_asks_for(bench: Bench, stamps: bool) -> None:
    bench.overrides = {"message.timestamp.type": "LogAppendTime"} if stamps else {}
    log = bench.open()
    now_ms = bench.clock.now_ms()
    result = log.append_for_coordinator(marker(0), 0, Marker(True, 0))
    assert result.log_append_time_ms == (now_ms if stamps else -1)
    assert [record.timestamp for record in read_all(log)] == [now_ms if stamps else 5]


def test_nothing_is_stable_that_is_not_on_the_disk(bench: Bench) -> None:
    """With ``flush.messages=1``: neither a marker, nor what comes before a transaction."""
    bench.overrides = {"flush.messages": "1"}
    log = bench.open()
    log.owner = FlushesLater(bench.files)

    def stable() -> tuple[int, int]:
        return log.last_stable_offset, log.high_watermark

    bench.append(log, "a")
    assert stable() == (0, 0)
    log.flush()
    bench.append(log, "b")
    log.append([batch(0, transactional=True)], 0, is_verified=True)
    assert stable() == (1, 1)
    log.flush()
    assert stable() == (2, 3)
    log.append_for_coordinator(marker(0), 0, Marker(True, 0))
    assert stable() == (2, 3)
    log.flush()
    assert stable() == (4, 4)


class FlushesLater(NoOwner):
    def flush_due(self, log: Log) -> None:
        pass


@pytest.mark.parametrize("stamps", [False, True])
def test_a_repeat_has_the_append_time_only_where_the_broker_stamps(
    bench: Bench, stamps: bool
) -> None:
    bench.overrides = {"message.timestamp.type": "LogAppendTime"} if stamps else {}
    log = bench.open()
    now_ms = bench.clock.now_ms()
    for is_repeat in (False, True):
        result = log.append([batch(0)], 0)
        assert result.duplicate == is_repeat
        assert result.log_append_time_ms == (now_ms if stamps else -1)
        bench.clock.advance(100)
    again = bench.reopen_after_kill(log).append([batch(0)], 0)
    assert again.duplicate
    assert again.log_append_time_ms == (now_ms if stamps else -1)
