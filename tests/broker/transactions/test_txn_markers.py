"""How a decided transaction gets its markers, also from a disk that is slow, full or gone."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import pytest
from txn_harness import TOPIC, Harness, refused, state, transactional_batch

from penstock_broker.cluster.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock_broker.errors import ErrorCode
from penstock_broker.log.flushing import FlushJob
from penstock_broker.log.markers import Marker, read_marker
from penstock_broker.transactions.coordinator import MARKERS_AT_ONCE
from penstock_broker.transactions.markers import MarkerWriter, OpenTransaction, Written
from penstock_broker.transactions.states import TransactionState
from penstock_broker.transactions.transaction import Transaction
from penstock_broker.wire.records import RecordBatch

COMMITTED = Transaction("x", 7, 60_000, 0, state=TransactionState.PREPARE_COMMIT)
EPOCH = 3
"""Of the coordinator."""

Decided = tuple[int, int, bool]


class SlowDisk:
    """The partitions of a harness with ``flush.messages=1``, synced when a test says so."""

    def __init__(self, harness: Harness) -> None:
        self._waiting: list[tuple[FlushJob, Callable[[OSError | None], None]]] = []
        harness.logs.group_flush.submit = lambda job, done: self._waiting.append((job, done))
        harness.replicas.set_configs(TOPIC, {"flush.messages": "1"})

    def sync(self) -> None:
        """End the syncs that are under way; what came later waits for the next."""
        waiting, self._waiting = self._waiting, []
        for job, done in waiting:
            job.run()
            done(None)


@pytest.fixture
def harness() -> Harness:
    return Harness(settings={})


@pytest.fixture
def decided() -> list[Decided]:
    return []


@pytest.fixture
def writer(harness: Harness, decided: list[Decided]) -> MarkerWriter:
    return MarkerWriter(harness.clock, harness.replicas, lambda *all_: decided.append(all_))


def is_complete(harness: Harness) -> bool:
    return state(harness) in {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}


def ended(harness: Harness) -> dict[str, float]:
    family = harness.metrics.transactions_ended
    return {result: family.labels(result).value for result in ("commit", "abort", "timeout")}


def begin(harness: Harness, index: int = 0) -> tuple[int, int]:
    producer = harness.init()
    harness.add(producer, index)
    harness.produce(producer, "a", index=index)
    return producer


# -- the coordinator ---------------------------------------------------------------------------


def test_ends_are_counted_and_refused_producers_too(harness: Harness) -> None:
    producer = begin(harness)
    harness.end(producer, commit=True)
    assert ended(harness) == {"commit": 1, "abort": 0, "timeout": 0}
    harness.add(producer, 0)
    harness.end(producer, commit=False)
    assert ended(harness) == {"commit": 1, "abort": 1, "timeout": 0}
    harness.add(producer, 0)
    harness.clock.advance(60_001)
    harness.transactions.abort_expired()
    assert ended(harness) == {"commit": 1, "abort": 1, "timeout": 1}
    assert harness.metrics.producers_fenced.value == 0
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        harness.end((producer[0] + 1, 1), commit=True)
    assert harness.metrics.producers_fenced.value == 0, "that is no old epoch"
    with refused(ErrorCode.PRODUCER_FENCED):
        harness.end(producer, commit=True)
    assert harness.metrics.producers_fenced.value == 1
    harness.add(harness.init(), 0)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        harness.init()
    assert ended(harness) == {"commit": 1, "abort": 2, "timeout": 1}, "in time, this time"


def test_a_marker_that_failed_is_tried_again_after_half_a_second(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    producer = begin(harness)
    harness.files.fail("write", errno.ENOSPC, path_part=f"{TOPIC}-0")
    harness.end(producer, commit=True)
    assert f"{TOPIC}-0: no marker for producer {producer[0]} yet: " in caplog.text
    harness.clock.advance(499)
    assert state(harness) is TransactionState.PREPARE_COMMIT
    harness.clock.advance(1)
    assert is_complete(harness)


def test_the_last_word_on_a_transaction_is_tried_again_too(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    producer = begin(harness)
    harness.files.fail("write", errno.ENOSPC, path_part=f"{TOPIC}-0")
    harness.end(producer, commit=True)
    harness.files.fail("write", errno.ENOSPC, path_part=TRANSACTIONS_TOPIC)
    harness.clock.advance(500)
    assert harness.read() == ["a"]
    assert "transactional id x is not finished yet: " in caplog.text
    assert not is_complete(harness)
    assert ended(harness)["commit"] == 0
    end = harness.partition().log_end_offset
    harness.clock.advance(500)
    assert is_complete(harness)
    assert harness.partition().log_end_offset == end, "the marker is not written again"
    assert ended(harness)["commit"] == 1


def test_a_coordinator_that_was_closed_writes_nothing_more(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock_broker")
    producer = begin(harness)
    harness.files.fail("write", errno.ENOSPC, path_part=f"{TOPIC}-0")
    harness.end(producer, commit=True)
    harness.transactions.close()
    harness.clock.advance(60_000)
    assert state(harness) is TransactionState.PREPARE_COMMIT
    caplog.clear()
    harness = harness.after_a_kill()
    assert "transactional id x was left in PrepareCommit: finishing it" in caplog.text
    assert is_complete(harness)


def test_partitions_that_fail_do_not_hold_up_the_others_nor_are_they_asked_all_the_time() -> None:
    harness = Harness(partitions=MARKERS_AT_ONCE + 50, settings={})
    producer = harness.init()
    harness.add(producer, *range(harness.partitions))
    for index in range(harness.partitions):
        harness.produce(producer, "a", index=index)
    harness.files.fail("write", errno.ENOSPC, path_part=f"{TOPIC}-", times=MARKERS_AT_ONCE)
    harness.end(producer, commit=True)
    left = {(TOPIC, index) for index in range(MARKERS_AT_ONCE)}
    assert harness.transactions.describe("x").partitions == left
    harness.clock.advance(499)
    assert harness.transactions.describe("x").partitions == left
    harness.clock.advance(1)
    harness.clock.run_ready()
    assert is_complete(harness)


def test_a_marker_counts_when_it_is_on_the_disk_and_is_written_once(harness: Harness) -> None:
    """Where a topic asks for the disk; it is looked at again soon, not after half a second."""
    disk = SlowDisk(harness)
    producer = begin(harness)
    disk.sync()
    harness.end(producer, commit=True)
    end = harness.partition().log_end_offset
    harness.clock.advance(60_000)
    assert (state(harness), harness.read()) == (TransactionState.PREPARE_COMMIT, [])
    assert harness.partition().log_end_offset == end
    disk.sync()
    assert not is_complete(harness), "no check before the time has come"
    harness.clock.advance(5)
    assert (is_complete(harness), harness.read()) == (True, ["a"])
    assert harness.partition().log_end_offset == end


def test_an_orphan_that_is_aborted_at_the_start_is_logged(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.partition().append(transactional_batch((77, 4), "orphan"), is_verified=True)
    harness = harness.after_a_kill()
    assert f"{TOPIC}-0: producer 77 has a transaction open, of epoch 4, unknown" in caplog.text
    assert not harness.partition().has_open_transaction(77)


# -- one marker -----------------------------------------------------------------------------------


def markers_of(harness: Harness, index: int = 0) -> Sequence[tuple[bool, int]]:
    """Whether each marker commits, and the epoch of the coordinator that it names."""
    partition = harness.partition(index)
    found = []
    for offset in range(partition.log_end_offset):
        batch = RecordBatch(memoryview(partition.log.read(offset, 1, 1 << 40).read()))
        if batch.is_control and batch.base_offset == offset:
            marker = read_marker(batch)
            assert marker is not None
            found.append((marker.is_commit, marker.coordinator_epoch))
    return found


def test_a_marker_that_is_on_its_way(harness: Harness, writer: MarkerWriter) -> None:
    disk = SlowDisk(harness)
    harness.partition().append(transactional_batch((7, 0), "a"), is_verified=True)
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.IS_ON_ITS_WAY
    for _ in range(2):
        assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.IS_ON_ITS_WAY
    assert writer.write(COMMITTED, TOPIC, 1, EPOCH) is Written.IS_ON_ITS_WAY, "each by itself"
    disk.sync()
    assert harness.partition().high_watermark == 1, "synced before the marker came"
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.IS_ON_ITS_WAY
    disk.sync()
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.COUNTS
    assert markers_of(harness) == [(True, EPOCH)]


def test_a_marker_in_a_log_that_fails_before_it_counts(
    harness: Harness, writer: MarkerWriter
) -> None:
    SlowDisk(harness)
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.IS_ON_ITS_WAY
    harness.partition().log.fail("for the test")
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.FAILED
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.FAILED


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_is_deleted_needs_no_marker_on_its_way(
    harness: Harness, writer: MarkerWriter, *, is_made_again: bool
) -> None:
    """Nor does one of the same name, whose log may never grow to where the marker was."""
    SlowDisk(harness)
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.IS_ON_ITS_WAY
    harness.replicas.delete_topic(TOPIC)
    if is_made_again:
        harness.replicas.create_topic(TOPIC, 1, {"flush.messages": "1"})
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.COUNTS


def test_a_marker_that_is_refused_for_a_newer_epoch_counts(
    harness: Harness, writer: MarkerWriter, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer epoch wrote there, so this transaction has ended; asking on would never end."""
    harness.partition().append(transactional_batch((7, 5), "newer"), is_verified=True)
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.COUNTS
    assert f"{TOPIC}-0: marker of producer 7 refused: " in caplog.text
    assert markers_of(harness) == []


def test_a_marker_that_cannot_be_written_now(harness: Harness, writer: MarkerWriter) -> None:
    harness.partition().append(transactional_batch((7, 0), "a"), is_verified=True)
    harness.files.fail("write", errno.ENOSPC, path_part=f"{TOPIC}-0")
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.FAILED
    assert writer.write(COMMITTED, TOPIC, 0, EPOCH) is Written.COUNTS


def test_offsets_are_decided_by_the_markers_in_their_topic_alone(
    harness: Harness, writer: MarkerWriter, decided: list[Decided]
) -> None:
    harness.offsets.ensure_topic()
    writer.write(COMMITTED, TOPIC, 0, EPOCH)
    assert decided == []
    writer.write(COMMITTED, OFFSETS_TOPIC, 1, EPOCH)
    assert decided == [(1, 7, True)]


# -- orphans --------------------------------------------------------------------------------------


def test_an_orphans_marker_names_the_coordinator_that_was_there_last(
    harness: Harness, writer: MarkerWriter
) -> None:
    """0 where there was none: an older epoch than the last one would be refused."""
    harness.partition(1).append_marker(
        7, 0, Marker(is_commit=True, coordinator_epoch=EPOCH), harness.clock.now_ms()
    )
    for index in (0, 1):
        harness.partition(index).append(transactional_batch((7, 0), "a"), is_verified=True)
    orphans = [OpenTransaction(TOPIC, index, 7, 0) for index in (0, 1)]
    assert sorted(writer.open()) == orphans
    for orphan in orphans:
        writer.abort_orphan(orphan)
    assert writer.open() == []
    assert markers_of(harness, 0) == [(False, 0)]
    assert markers_of(harness, 1)[-1] == (False, EPOCH)


def test_an_orphan_in_a_topic_that_is_gone(harness: Harness, writer: MarkerWriter) -> None:
    harness.replicas.delete_topic(TOPIC)
    writer.abort_orphan(OpenTransaction(TOPIC, 0, 7, 0))
    assert writer.open() == []


def test_an_orphans_marker_is_not_taken_for_that_of_the_next_transaction(
    harness: Harness, writer: MarkerWriter
) -> None:
    disk = SlowDisk(harness)
    harness.partition().append(transactional_batch((7, 0), "orphan"), is_verified=True)
    writer.abort_orphan(OpenTransaction(TOPIC, 0, 7, 0))
    disk.sync()
    disk.sync()
    writer.write(COMMITTED, TOPIC, 0, EPOCH)
    assert markers_of(harness) == [(False, 0), (True, EPOCH)]
