"""Appending and reading: offsets, slices, rolling, limits, and a random walk against a model."""

from __future__ import annotations

from random import Random

import pytest
from log_bench import Bench, read_all, values_of

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.log import Log
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import RecordBatch


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def test_offsets_follow_each_other(bench: Bench) -> None:
    log = bench.open()
    assert bench.append(log, "a", "b", "c").base_offset == 0
    result = bench.append(log, "d")
    assert (result.base_offset, result.last_offset) == (3, 3)
    assert log.log_end_offset == 4
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3]


def test_several_batches_in_one_append(bench: Bench) -> None:
    log = bench.open()
    result = log.append([bench.batch(["a", "b"]), bench.batch(["c"])], 0)
    assert (result.base_offset, result.last_offset) == (0, 2)
    assert values_of(read_all(log)) == ["a", "b", "c"]


def test_offset_and_epoch_are_patched_outside_the_crc(bench: Bench) -> None:
    """Pitfall 17: base offset and leader epoch lie outside the CRC, which stays the sender's."""
    log = bench.open()
    bench.append(log, "x")
    sent = bench.batch(["a", "b"], codec=Codec.ZSTD)
    crc = sent.crc
    log.append([sent], 7)
    stored = RecordBatch(memoryview(log.read(1, 1 << 20).read()))
    assert (stored.base_offset, stored.partition_leader_epoch) == (1, 7)
    assert stored.crc == crc
    assert stored.crc_is_valid()


def test_the_first_batch_is_whole_even_if_larger_than_max_bytes(bench: Bench) -> None:
    """KIP-74: otherwise a consumer with a small fetch size would never pass a large batch."""
    log = bench.open()
    bench.append(log, "x" * 1000)
    bench.append(log, "y")
    found = log.read(0, 10)
    assert values_of(list(RecordBatch(memoryview(found.read())).records())) == ["x" * 1000]
    assert log.read(0, 10, min_one_batch=False).size == 0


def test_the_batch_around_the_offset_is_read_whole(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    bench.append(log, "b", "c", "d")
    found = log.read(2, 1 << 20)
    assert found.base_offset == 1
    assert RecordBatch(memoryview(found.read())).records_count == 3


def test_reading_stops_at_the_given_limit(bench: Bench) -> None:
    """Pitfall 4: the high watermark is exclusive."""
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    batch_size = log.read(0, 1).size
    assert log.read(0, 1 << 20, 2).size == 2 * batch_size
    assert log.read(2, 1 << 20, 2).size == 0
    assert log.read(2, 1 << 20, 99).size == batch_size, "there is no more than there is"


def test_reading_at_the_end_is_empty_and_beyond_is_out_of_range(bench: Bench) -> None:
    """Pitfall 43: a fetch at the end is empty with no error; outside it is OFFSET_OUT_OF_RANGE."""
    log = bench.open()
    assert log.read(0, 100).size == 0
    bench.append(log, "a")
    assert log.read(1, 100).parts == ()
    for offset in (2, -1):
        with pytest.raises(KafkaError) as error:
            log.read(offset, 100)
        assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert str(error.value) == f"Offset {offset} is not in 0 to 1."


def test_rolls_by_size_and_reads_across_segments(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "500", "index.interval.bytes": "100"}
    log = bench.open()
    for number in range(50):
        bench.append(log, f"value {number}")
    assert len(log.segments) > 5
    assert all(segment.size <= 500 for segment in log.segments)
    assert values_of(read_all(log)) == [f"value {number}" for number in range(50)]
    assert len(log.read(0, 1 << 20).parts) == len(log.segments)
    assert log.read(0, 1 << 20).size == log.size_bytes


def test_the_index_is_sparse(bench: Bench) -> None:
    """One entry about every index.interval.bytes, whatever the size of the batches."""
    bench.overrides = {"index.interval.bytes": "1000"}
    log = bench.open()
    for _ in range(200):
        bench.append(log, "x" * 30)
    entries = len(log.segments[0].offset_index)
    assert log.size_bytes / 1200 <= entries <= log.size_bytes / 1000


def test_rolls_when_its_index_is_full(bench: Bench) -> None:
    bench.overrides = {"index.interval.bytes": "100", "segment.index.bytes": "24"}
    log = bench.open()
    for number in range(30):
        bench.append(log, f"value {number}")
    assert all(len(segment.offset_index) <= 3 for segment in log.segments)
    assert len(log.segments) > 2
    assert len(read_all(log)) == 30


def test_rolls_before_offsets_outgrow_the_index(bench: Bench) -> None:
    """Entries are relative to the segment's base offset, in 32 bits."""
    log = bench.open()
    for _ in range(3):
        batch = bench.batch(["x"])
        batch.last_offset_delta = 2**30
        log.append([batch], 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2**30 + 1, 2**31 + 2]


def test_rolls_by_time_since_the_first_append(bench: Bench) -> None:
    bench.overrides = {"segment.ms": "1000"}
    log = bench.open()
    bench.clock.advance(5000)
    bench.append(log, "a")
    bench.clock.advance(900)
    bench.append(log, "b")
    assert len(log.segments) == 1
    bench.clock.advance(101)
    bench.append(log, "c")
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_continues_counting_its_age_after_a_restart(bench: Bench) -> None:
    bench.overrides = {"segment.ms": "1000"}
    log = bench.open()
    bench.append(log, "a")
    bench.clock.advance(600)
    log = bench.reopen_cleanly(log)
    bench.clock.advance(600)
    bench.append(log, "b")
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_a_batch_larger_than_the_topic_allows_is_refused(bench: Bench) -> None:
    """Pitfall 19: MESSAGE_TOO_LARGE, on the size after compression."""
    bench.overrides = {"max.message.bytes": "500"}
    log = bench.open()
    with pytest.raises(KafkaError) as error:
        bench.append(log, "x" * 600)
    assert code_of(error) is ErrorCode.MESSAGE_TOO_LARGE
    bench.append(log, "x" * 600, codec=Codec.GZIP)
    assert log.log_end_offset == 1


def test_a_batch_larger_than_a_segment_is_refused(bench: Bench) -> None:
    bench.overrides = {"segment.bytes": "200"}
    log = bench.open()
    with pytest.raises(KafkaError) as error:
        bench.append(log, "x" * 300)
    assert code_of(error) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_settings_change_while_the_log_is_open(bench: Bench) -> None:
    log = bench.open()
    log.update_config(log.config.with_overrides({"max.message.bytes": "100"}))
    with pytest.raises(KafkaError):
        bench.append(log, "x" * 200)


def test_a_slice_survives_the_deletion_of_its_segment(bench: Bench) -> None:
    """A response on its way holds the file open, whatever happens to the log meanwhile."""
    bench.overrides = {"segment.bytes": "100"}
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    held = log.read(0, 1)
    log.delete_records(3)
    assert values_of(list(RecordBatch(memoryview(held.read())).records())) == ["a"]


class Model:
    """What a log should be: a list of (value, batch number), read by slicing."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.batch_starts: list[int] = []
        self.start = 0

    def append(self, values: list[str]) -> None:
        self.batch_starts.append(len(self.values))
        self.values += values


def check_reads(log: Log, model: Model, random: Random) -> None:
    assert log.log_end_offset == len(model.values)
    assert log.log_start_offset == model.start
    if model.start == len(model.values):
        return
    offset = random.randrange(model.start, len(model.values))
    found = log.read(offset, random.choice([1, 100, 1000, 100_000]))
    batch_start = max(start for start in model.batch_starts if start <= offset)
    assert found.base_offset == batch_start
    records = read_all(log, offset, random.choice([1, 300, 100_000]))
    assert [record.offset for record in records] == list(range(offset, len(model.values)))
    assert values_of(records) == model.values[offset:]


def test_any_history_reads_back_as_the_model_says(bench: Bench, seed: int) -> None:
    """Random appends, deletions, clean restarts and kills, compared with a list."""
    random = Random(seed)
    bench.overrides = {
        "segment.bytes": str(random.choice([400, 1500, 100_000])),
        "index.interval.bytes": str(random.choice([0, 150, 4096])),
    }
    log, model, epoch = bench.open(), Model(), 0
    for step in range(150):
        action = random.random()
        if action < 0.8:
            values = [f"{step}.{n}" * random.randint(1, 6) for n in range(random.randint(1, 5))]
            bench.append(log, *values, codec=random.choice(list(Codec)), epoch=epoch)
            model.append(values)
        elif action < 0.87:
            model.start = random.randint(model.start, len(model.values))
            log.delete_records(model.start)
        elif action < 0.93:
            log = bench.reopen_cleanly(log)
            assert log.recovered.clean
        else:
            log = bench.reopen_after_kill(log)
            epoch += 1
        if step % 5 == 0:
            check_reads(log, model, random)
    check_reads(log, model, random)
