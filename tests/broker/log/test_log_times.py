"""Finding records by time, and whose time a record carries."""

from __future__ import annotations

from random import Random

import pytest
from log_bench import Bench, read_all

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import RecordBatch


@pytest.mark.parametrize("codec", list(Codec))
def test_the_first_record_of_a_batch_that_is_late_enough(bench: Bench, codec: Codec) -> None:
    """Pitfall 12: the answer is a record, not a batch, also inside compressed batches."""
    log = bench.open()
    bench.append(log, "a", "b", "c", "d", timestamps=[100, 300, 200, 400], codec=codec, epoch=3)
    for time, offset, found_time in ((0, 0, 100), (101, 1, 300), (301, 3, 400), (400, 3, 400)):
        found = log.offset_for_timestamp(time)
        assert found == (offset, found_time, 3), f"time {time}"
    assert log.offset_for_timestamp(401) is None


def test_timestamps_that_go_back(bench: Bench) -> None:
    """Pitfall 12: first in offset order; the running maximum leads there, not raw values."""
    log = bench.open()
    for time in (500, 100, 900, 200, 900, 950):
        bench.append(log, "x", timestamps=[time])
    expected = {0: 0, 500: 0, 501: 2, 900: 2, 901: 5, 950: 5}
    for time, offset in expected.items():
        found = log.offset_for_timestamp(time)
        assert found is not None and found.offset == offset, f"time {time}"


def test_nothing_late_enough_is_no_error(bench: Bench) -> None:
    """Pitfall 13: no answer, which the api layer writes as -1."""
    log = bench.open()
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None
    bench.append(log, "x", timestamps=[5])
    assert log.offset_for_timestamp(6) is None


def test_an_answer_at_or_past_the_limit_is_none(bench: Bench) -> None:
    """Pitfall 14: by-time answers at or past the last stable offset are no answers."""
    log = bench.open()
    bench.append(log, "a", timestamps=[100])
    bench.append(log, "b", timestamps=[200])
    assert log.offset_for_timestamp(150, 1) is None
    found = log.offset_for_timestamp(150, 2)
    assert found is not None and found.offset == 1
    bench.append(log, "c", "d", timestamps=[200, 300])
    assert log.offset_for_timestamp(250, 3) is None


def test_deleted_records_do_not_answer(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", "b", "c", timestamps=[900, 100, 500])
    log.delete_records(1)
    found = log.offset_for_timestamp(50)
    assert found is not None and found[:2] == (1, 100)
    assert log.offset_for_timestamp(600) is None
    largest = log.max_timestamp()
    assert largest is not None and largest[:2] == (2, 500)


def test_the_largest_timestamp_is_that_of_its_first_record(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a", "b", timestamps=[100, 300])
    bench.append(log, "c", "d", timestamps=[300, 200])
    assert log.max_timestamp() == (1, 300, 0)


def test_log_append_time_is_the_brokers_and_the_crc_is_right(bench: Bench) -> None:
    """Pitfall 16: maxTimestamp and attribute are rewritten, the CRC anew; the answer says so."""
    bench.overrides = {"message.timestamp.type": "LogAppendTime"}
    log = bench.open()
    now_ms = bench.clock.now_ms()
    result = bench.append(log, "a", "b", timestamps=[1, 2], codec=Codec.LZ4)
    assert result.log_append_time_ms == now_ms
    stored = RecordBatch(memoryview(log.read(0, 1 << 20).read()))
    assert stored.crc_is_valid()
    assert stored.is_log_append_time
    assert [record.timestamp for record in read_all(log)] == [now_ms, now_ms]
    found = log.offset_for_timestamp(now_ms)
    assert found == (0, now_ms, 0)
    assert log.offset_for_timestamp(now_ms + 1) is None


def test_a_repeated_batch_has_the_append_time_of_the_first(bench: Bench) -> None:
    bench.overrides = {"message.timestamp.type": "LogAppendTime"}
    log = bench.open()
    first = log.append([bench.batch(["a"], producer=(1, 0, 0))], 0)
    bench.clock.advance(500)
    again = log.append([bench.batch(["a"], producer=(1, 0, 0))], 0)
    assert again.log_append_time_ms == first.log_append_time_ms
    log = bench.reopen_after_kill(log)
    again = log.append([bench.batch(["a"], producer=(1, 0, 0))], 0)
    assert again.log_append_time_ms == first.log_append_time_ms


def test_create_time_is_the_producers(bench: Bench) -> None:
    log = bench.open()
    assert bench.append(log, "a", timestamps=[123]).log_append_time_ms == -1
    assert read_all(log)[0].timestamp == 123


def test_timestamps_outside_the_bounds_are_refused(bench: Bench) -> None:
    bench.overrides = {
        "message.timestamp.after.max.ms": "1000",
        "message.timestamp.before.max.ms": "5000",
    }
    log = bench.open()
    now_ms = bench.clock.now_ms()
    bench.append(log, "a", "b", timestamps=[now_ms - 5000, now_ms + 1000])
    for times in ([now_ms, now_ms + 1001], [now_ms - 5001, now_ms]):
        with pytest.raises(KafkaError) as error:
            bench.append(log, "a", "b", timestamps=times)
        assert error.value.code is ErrorCode.INVALID_TIMESTAMP
    assert log.log_end_offset == 2


def test_any_times_are_found_as_a_linear_search_finds_them(bench: Bench, seed: int) -> None:
    """Random, unordered times over segments, codecs and restarts, against a plain loop."""
    random = Random(seed)
    bench.overrides = {"segment.bytes": "1500", "index.interval.bytes": "200"}
    log = bench.open()
    times: list[int] = []
    for step in range(120):
        batch = [random.randrange(1000) for _ in range(random.randint(1, 5))]
        bench.append(log, *(["x"] * len(batch)), timestamps=batch, codec=random.choice(list(Codec)))
        times += batch
        if random.random() < 0.05:
            log = random.choice([bench.reopen_cleanly, bench.reopen_after_kill])(log)
        if random.random() < 0.05:
            log.delete_records(random.randint(log.log_start_offset, len(times) - 1))
        wanted = random.randrange(1000)
        start = log.log_start_offset
        expected = next((n for n in range(start, len(times)) if times[n] >= wanted), None)
        found = log.offset_for_timestamp(wanted)
        assert (found and found.offset) == expected, f"step {step}, time {wanted}"
        latest = max(times[start:])
        largest = log.max_timestamp()
        assert largest is not None
        assert largest[:2] == (times.index(latest, start), latest)
