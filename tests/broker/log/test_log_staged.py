"""Several batches with one write: all of them are in the log, or none."""

from __future__ import annotations

import errno

import pytest
from storage_broker import Broker

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.lookup import run
from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch


def batch(
    broker: Broker, value: str, *, time_ms: int | None = None, producer: tuple[int, int] = (-1, -1)
) -> RecordBatch:
    stamp = broker.clock.now_ms() if time_ms is None else time_ms
    producer_id, sequence = producer
    epoch = 0 if producer_id >= 0 else -1
    given = [NewRecord(None, value.encode(), stamp)]
    data = build_batch(given, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return RecordBatch(memoryview(data))


def stage(broker: Broker, *values: str, partition: int = 0) -> list[AppendResult]:
    found = broker.replicas.partition("t", partition)
    return [found.stage(batch(broker, value)) for value in values]


def commit(broker: Broker, partition: int = 0) -> None:
    broker.replicas.partition("t", partition).commit()


def disk(broker: Broker) -> MemFiles:
    assert isinstance(broker.files, MemFiles)
    return broker.files


def test_one_write_for_all(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "first")
    writes = disk(broker).writes
    results = stage(broker, *(f"{n}" for n in range(50)))
    assert [result.base_offset for result in results] == list(range(1, 51))
    assert disk(broker).writes == writes
    assert broker.values("t") == ["first"], "no reader sees what is not written"
    commit(broker)
    assert disk(broker).writes == writes + 1
    assert broker.values("t") == ["first", *(f"{n}" for n in range(50))]


def test_what_is_appended_meanwhile_comes_behind(broker: Broker) -> None:
    """By a coordinator, say: staged offsets are given out once, to any appender."""
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "first")
    (result,) = stage(broker, "staged")
    broker.append("t", 0, "between")
    commit(broker)
    assert broker.values("t") == ["first", "staged", "between"]
    assert (result.base_offset, result.error) == (1, None)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("partial_bytes", [0, 100])
def test_a_write_that_fails_leaves_nothing(broker: Broker, code: int, partial_bytes: int) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "first")
    partition = broker.replicas.partition("t", 0)
    results = [
        partition.stage(batch(broker, value, producer=(7, number)))
        for number, value in enumerate(("a", "b", "c"))
    ]
    disk(broker).fail("write", code, path_part=".log", partial_bytes=partial_bytes)
    commit(broker)
    assert [r.error.code for r in results if r.error] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert partition.log_end_offset == 1
    again = batch(broker, "a", producer=(7, 0))
    if code == errno.EIO:
        with pytest.raises(KafkaError, match="offline"):
            partition.append_checked(again)
    else:
        assert not partition.append_checked(again).duplicate, "its sequence was not taken"
    broker.kill()
    found = broker.values("t")
    if code == errno.EIO and partial_bytes:
        assert found == ["first", "a"], "written, but never acknowledged"
    else:
        assert found == ["first", "a"][: 1 if code == errno.EIO else 2]


def test_a_disk_that_fails_one_partition_spares_the_other(broker: Broker) -> None:
    broker.replicas.create_topic("t", 2, {})
    for index in (0, 1):
        broker.append("t", index, "first")
    (good,), (bad,) = stage(broker, "a"), stage(broker, "b", partition=1)
    disk(broker).fail("write", errno.EIO, path_part="t-1")
    commit(broker, 0)
    commit(broker, 1)
    assert good.error is None
    assert bad.error is not None
    assert broker.values("t", 0) == ["first", "a"]


def test_sequences_are_held_against_what_is_staged(broker: Broker) -> None:
    """The next one is staged behind; a repeat and a gap are found as they would be in the log."""
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "first")
    partition = broker.replicas.partition("t", 0)
    writes = disk(broker).writes
    for sequence in range(5):
        assert partition.stage(batch(broker, "x", producer=(7, sequence))).base_offset == (
            1 + sequence
        )
    assert disk(broker).writes == writes
    again = partition.stage(batch(broker, "x", producer=(7, 3)))
    assert (again.duplicate, again.base_offset) == (True, 4)
    with pytest.raises(KafkaError) as gap:
        partition.stage(batch(broker, "x", producer=(7, 9)))
    assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    commit(broker)
    assert partition.log_end_offset == 6


def test_staged_batches_find_their_way_into_the_indexes(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"index.interval.bytes": "200"})
    broker.append("t", 0, "first")
    for _ in range(4):
        broker.clock.advance(1_000)
        stage(broker, *("v" * 50 for _ in range(30)))
        commit(broker)
    partition = broker.replicas.partition("t", 0)
    for offset in (1, 17, 60, 119, 120):
        assert partition.fetch(offset, 10).base_offset == offset
    segment = partition.log.segments[-1]
    assert len(segment.offset_index) > 20
    assert run(partition.looking_for_latest()) is not None
    assert run(partition.looking_for_timestamp(broker.clock.now_ms())).offset == 91  # type: ignore[union-attr]
    broker.restart()
    assert len(broker.values("t")) == 121


@pytest.mark.parametrize(
    "config",
    [
        {"segment.bytes": "1000"},
        {"segment.ms": "40"},
        {"segment.ms": "40", "segment.jitter.ms": "30"},
        {"segment.index.bytes": "40", "index.interval.bytes": "1"},
    ],
    ids=",".join,
)
def test_segments_end_where_they_would_one_by_one(config: dict[str, str]) -> None:
    """Staged or not, a batch goes into the same segment."""
    brokers = Broker(MemFiles()), Broker(MemFiles())
    for each in brokers:
        each.replicas.create_topic("t", 1, config)
    staged, alone = (each.replicas.partition("t", 0) for each in brokers)
    begin_ms = brokers[0].clock.now_ms()
    for number in range(100):
        time_ms = begin_ms + 3 * number + number * number % 17
        staged.stage(batch(brokers[0], "v" * 50, time_ms=time_ms))
        alone.append_checked(batch(brokers[1], "v" * 50, time_ms=time_ms))
    staged.commit()
    bases = [segment.base_offset for segment in alone.log.segments]
    assert len(bases) > 3
    assert [segment.base_offset for segment in staged.log.segments] == bases
