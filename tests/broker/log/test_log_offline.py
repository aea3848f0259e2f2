"""A log that the disk refuses, or that is offline: what each use of it gets."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from log_bench import Bench

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.log import Log
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch

PRODUCER = 7
ABORT = Marker(is_commit=False, coordinator_epoch=0)


def abort_marker(epoch: int = 0) -> RecordBatch:
    return RecordBatch(memoryview(build_marker(PRODUCER, epoch, ABORT, 5)))


def log_with_an_aborted_transaction(bench: Bench, producer_epoch: int = 0) -> Log:
    """At offsets 1 to 2."""
    log = bench.open()
    bench.append(log, "a")
    data = build_batch(
        [NewRecord(None, b"b", 5)],
        producer_id=PRODUCER,
        producer_epoch=producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    log.append([RecordBatch(memoryview(data))], 0, is_verified=True)
    log.append_for_coordinator(abort_marker(producer_epoch), 0, ABORT)
    return log


def storage_error(use: Callable[[], object]) -> str:
    with pytest.raises(KafkaError) as error:
        use()
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return str(error.value)


LOOKS: list[Callable[[Log], object]] = [
    lambda log: log.has_aborted(0),
    lambda log: log.aborted_transactions(0, 9),
    lambda log: log.aborted_below(9),
]


def test_what_was_aborted(bench: Bench) -> None:
    log = log_with_an_aborted_transaction(bench)
    assert log.has_aborted(0) is True
    assert log.aborted_transactions(0, 9) == [(PRODUCER, 1, 2, 3)]
    assert log.aborted_below(9) == log.aborted_below(2) == [(PRODUCER, 1, 2)]
    assert log.aborted_below(1) == []


@pytest.mark.parametrize("look", LOOKS, ids=["has_aborted", "transactions", "below"])
def test_what_was_aborted_and_cannot_be_read(bench: Bench, look: Callable[[Log], object]) -> None:
    log = log_with_an_aborted_transaction(bench)
    log.roll()
    log = bench.reopen_cleanly(log)
    bench.files.fail("open", path_part=".txnindex")
    assert "t-0 is offline: cannot read what was aborted: " in storage_error(lambda: look(log))
    assert log.failure is not None


def test_a_coordinator_is_not_refused_for_other_reasons(bench: Bench) -> None:
    """It would not try again with another epoch."""
    log = log_with_an_aborted_transaction(bench, producer_epoch=3)
    log.fail("a test says so")
    storage_error(lambda: log.append_for_coordinator(abort_marker(2), 0, ABORT))


def test_an_append_to_a_full_disk_is_in_the_output(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    log = bench.open()
    bench.files.fail("write", errno.ENOSPC, path_part=".log")
    storage_error(lambda: bench.append(log, "a"))
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{bench.directory}: cannot append: [Errno 28] No space left on device: "
        f"'{log.segments[0].path}'"
    )


def test_a_topic_that_is_deleted_keeps_no_file_open(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    log.retire()
    assert "the topic has been deleted" in storage_error(lambda: log.read(0, 100))
    bench.files.fail("open")
    with pytest.raises(OSError, match="Input/output error"):
        log.segments[0].file  # noqa: B018
