"""Where the bytes of a fetch lie, held against a plain list of batches, for every question."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from log_bench import Bench

from penstock_broker.log.isolation import END, end_of_slice
from penstock_broker.log.log import Log
from penstock_broker.log.reading import read_segments
from penstock_broker.log.slice import EMPTY_SLICE, LogSlice


class Batch(NamedTuple):
    """A batch as a plain reader knows it."""

    base_offset: int
    last_offset: int
    data: bytes
    segment: int


def plain_read(
    batches: list[Batch], offset: int, max_bytes: int, limit: int, *, min_one_batch: bool
) -> tuple[int, bytes, int] | None:
    """The base offset, the bytes and the number of segments that they lie in; None for none."""
    wanted = [b for b in batches if b.last_offset >= offset]
    if not wanted or wanted[0].base_offset >= limit:
        return None
    first = wanted[0]
    if len(first.data) > max_bytes:
        if not min_one_batch:
            return None
        max_bytes = len(first.data)
    data, touched = b"", set()
    for batch in wanted:
        part = batch.data[: max_bytes - len(data)] if batch.base_offset < limit else b""
        if not part:
            break
        data += part
        touched.add(batch.segment)
    return first.base_offset, data, len(touched)


def small_segments(batches: int) -> Log:
    """A log of so many batches of two records, a handful in a segment, each in the index."""
    bench = Bench()
    bench.overrides = {"segment.bytes": "400", "index.interval.bytes": "1"}
    log = bench.open()
    for number in range(batches):
        bench.append(log, f"{number}", f"{number}")
    return log


def test_every_read_is_what_a_plain_reader_finds() -> None:
    """Any first offset, any limit at a batch, any size, over segments and a hole between them."""
    bench = Bench()
    bench.overrides = {"segment.bytes": "200", "index.interval.bytes": "1"}
    log = bench.open()
    for count in (1, 2, 1, 3, 1, 1, 2):
        bench.append(log, *("x" * count for _ in range(count)))
    segments = list(log.segments)
    assert len(segments) >= 3
    batches = [
        Batch(b.base_offset, b.last_offset, segment.file.read(b.position, b.size), number)
        for number, segment in enumerate(segments)
        for b in segment.batches()
    ]
    end = log.log_end_offset
    sizes = {len(b.data) for b in batches}
    bounds = {0, 1, 10_000, *sizes, *(s + 1 for s in sizes), *(s - 1 for s in sizes)}
    total = 0
    for batch in batches:
        total += len(batch.data)
        bounds |= {total, total + 1, total - 1}
    hole = [b for b in batches if b.segment != 1]  # as if compaction had left nothing of it
    for there, some in ((segments, batches), ([segments[0], *segments[2:]], hole)):
        limits = [*(b.base_offset for b in some), end, end + 1]
        bases = [segment.base_offset for segment in there]
        for offset, limit, size, one in product(range(end), limits, sorted(bounds), (True, False)):
            found = read_segments(
                there, bases, offset, size, limit=limit, end_offset=end, min_one_batch=one
            )
            expected = plain_read(some, offset, size, limit, min_one_batch=one)
            if expected is None:
                assert found is EMPTY_SLICE, (offset, limit, size, one)
                continue
            what = (found.base_offset, found.read(), len(found.parts))
            assert what == expected, (offset, limit, size, one)
            assert found.size == len(expected[1])


def test_nothing_behind_the_last_batch_is_an_empty_slice() -> None:
    bench = Bench()
    log = bench.open()
    bench.append(log, "x")
    segments, bases = list(log.segments), [0]
    found = read_segments(segments, bases, 5, 100, limit=9, end_offset=9, min_one_batch=True)
    assert found is EMPTY_SLICE


def test_the_end_of_a_slice_is_above_all_in_it_and_near() -> None:
    """What a read_committed reader is given of aborted transactions ends there."""
    log = small_segments(batches=20)
    segments = log.segments
    assert len(segments) >= 3
    last_base = segments[-1].base_offset
    for offset in range(0, 40, 2):
        for size in (1, 90, 200, 500, 1000):
            found = log.read(offset, size)
            position = found.parts[-1].position + found.parts[-1].size
            number = next(
                n for n, segment in enumerate(segments) if segment.file is found.parts[-1].file
            )
            batches = [b for b in segments[number].batches() if b.position < position]
            above = batches[-1].last_offset + 1
            upper = end_of_slice(segments, found)
            assert upper >= above
            if number + 1 < len(segments):
                assert upper <= above + 2, "a batch, or the beginning of the next segment"
            else:
                assert upper <= above + 2 or upper == END
                assert upper == END or upper > last_base


def test_the_end_of_what_is_nowhere_is_the_end() -> None:
    bench = Bench()
    log = bench.open()
    bench.append(log, "x")
    found = log.read(0, 1000)
    assert end_of_slice(log.segments, LogSlice(found.parts, found.size, found.base_offset)) == END


def test_the_end_of_a_slice_whose_segments_have_gone_meanwhile() -> None:
    """Retention and compaction continue while an answer is made: no error, and nothing far off."""
    log = small_segments(batches=40)
    segments = list(log.segments)
    assert len(segments) > 6
    one, several = log.read(0, 1), log.read(0, 1200)
    assert len(one.parts) == 1
    assert len(several.parts) > 2
    assert end_of_slice(segments[4:], one) <= segments[5].base_offset
    assert end_of_slice(segments[:2], several) >= segments[1].base_offset
    assert end_of_slice(segments[:1], several) >= segments[0].base_offset
