"""How far a start looks, and what it leaves beyond where the log ends."""

from __future__ import annotations

import pytest
from log_bench import Bench, read_all, values_of


def test_a_closed_log_whose_index_was_lost_is_checked_to_its_end(bench: Bench) -> None:
    """Its recovery point says that all is on the disk; that the stop was clean is in doubt."""
    log = bench.open()
    bench.append(log, "a" * 50)
    kept = log.size_bytes
    bench.append(log, "b" * 50)
    log.close()
    bench.files = bench.files.kill()
    path = log.segments[-1].path
    data = bytearray(bench.files.get(path))
    data[-5] ^= 1
    bench.files.put(path, bytes(data))
    bench.files.put(path.with_suffix(".index"), b"garbage")
    log = bench.open(recovery_point=2, clean=True)
    assert log.recovered.cut is not None
    assert (log.recovered.cut.first_offset, log.size_bytes) == (1, kept)
    assert values_of(read_all(log)) == ["a" * 50]


def test_no_snapshot_of_producers_is_beyond_the_end(bench: Bench) -> None:
    """One of a log that is no more would be that of other batches when the log has grown."""
    log = bench.open()
    for value in "ab":
        bench.append(log, value, producer=(7, 0, ord(value)))
    kept = log.size_bytes // 2
    log.roll()
    bench.append(log, "c")
    bench.files = bench.files.kill()
    bench.files.put(log.segments[0].path, bench.files.get(log.segments[0].path)[:kept])
    log = bench.open()
    assert log.recovered.cut is not None
    assert log.recovered.cut.reason == "offsets 1 to 2 are missing"
    names = bench.files.names(bench.directory)
    assert [name for name in names if name.endswith(".snapshot")] == []


@pytest.mark.parametrize("with_producer", [False, True])
def test_producers_are_read_below_what_is_to_be_checked_alone(
    bench: Bench, with_producer: bool
) -> None:
    """Behind it there may be damage, which is cut."""
    producer = (7, 0, 5) if with_producer else (-1, -1, -1)
    log = bench.open()
    bench.append(log, "a", producer=producer)
    for value in "bc":
        log.roll()
        bench.append(log, value)
    for name in bench.files.names(bench.directory):
        if name.endswith(".snapshot"):
            bench.files.remove(bench.directory / name)
    path = log.segments[1].path
    bench.files = bench.files.kill()
    bench.files.put(path, bytes(len(bench.files.get(path))))
    log = bench.open(recovery_point=1)
    assert log.recovered.cut is not None
    assert (log.recovered.cut.first_offset, log.log_end_offset) == (1, 1)
    assert list(log.producers.producers()) == ([7] if with_producer else [])
