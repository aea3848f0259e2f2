"""Checkpoints of the active segment: what they hold, and what a start that uses one reads."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pytest
from checkpoint_bench import (
    Work,
    checkpoint,
    checkpoints,
    facts,
    the_checkpoint,
)
from crc32c import crc32c
from log_bench import Bench, read_all, values_of

from penstock_broker.log.producer_state import snapshot_of
from penstock_broker.log.segment_checkpoint import (
    CheckpointUnusableError,
    LogCheckpoints,
)


def test_a_start_after_a_kill_reads_what_follows_the_checkpoint(bench: Bench) -> None:
    bench.overrides = {"index.interval.bytes": "100"}
    log = bench.open()
    for number in range(60):
        bench.append(log, f"value {number}", "x" * 100)
    checkpoint(log)
    size = log.size_bytes
    for number in range(3):
        bench.append(log, f"more {number}", epoch=2)
    behind, before = log.size_bytes - size, facts(log)
    read: list[int] = []
    bench.files = bench.files.kill()
    files, plain_open = bench.files, bench.files.open

    def opened(path: Path, *, create: bool = False):  # type: ignore[no-untyped-def]
        file = plain_open(path, create=create)
        if path.suffix == ".log":
            plain_read = file.read
            file.read = lambda at, many: (read.append(len(plain_read(at, many))),  # type: ignore[method-assign]
                                          plain_read(at, many))[1]  # fmt: skip
        return file

    files.open = opened  # type: ignore[method-assign]
    log = bench.open(recovery_point=60 * 2)
    assert log.recovered.bytes_checked == log.bytes_to_check == behind
    assert sum(read) < behind + 1000, "and a few headers"
    assert facts(log) == before


def test_what_follows_the_checkpoint_is_checked(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a" * 50)
    checkpoint(log)
    bench.append(log, "b" * 50)
    path = log.segments[-1].path
    damaged = bytearray(bench.files.get(path))
    damaged[-1] ^= 1
    bench.files.put(path, bytes(damaged))
    log = bench.reopen_after_kill(log)
    assert log.recovered.cut is not None
    assert values_of(read_all(log)) == ["a" * 50]
    bench.append(log, "c", epoch=1)
    log = bench.reopen_after_kill(log)
    assert values_of(read_all(log)) == ["a" * 50, "c"]


def test_without_a_recovery_point_all_is_checked(bench: Bench) -> None:
    """Its checkpoint is damaged, or it was removed."""
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    checkpoint(log)
    bench.files = bench.files.kill()
    log = bench.open(recovery_point=0)
    assert log.recovered.bytes_checked == log.size_bytes
    assert not checkpoints(bench)


def test_a_checkpoint_is_used_though_the_recovery_point_is_in_an_earlier_segment(
    bench: Bench,
) -> None:
    """Recovery points are written later than checkpoints."""
    log = bench.open()
    for value in "ab":
        bench.append(log, value, producer=(7, 0, ord(value)))
    log.roll()
    bench.append(log, "c")
    checkpoint(log)
    size = log.size_bytes
    bench.append(log, "d")
    before = facts(log)
    bench.files = bench.files.kill()
    log = bench.open(recovery_point=1)
    assert log.recovered.bytes_checked == log.size_bytes - size
    assert facts(log) == before


def test_the_last_segment_of_a_closed_log_that_does_not_match_is_checked_whole(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    log = bench.open()
    for value in "abc":
        bench.append(log, value)
    log.roll()
    for value in "de":
        bench.append(log, value)
    checkpoint(log)
    assert bench.reopen_cleanly(log).bytes_to_check == 0
    path = log.segments[-1].path.with_suffix(".index")
    bench.files.put(path, b"damaged")
    bench.files = bench.files.kill()
    log = bench.open(recovery_point=5, clean=True)
    assert "t-0 was closed at 5, but its last segment does not match that" in caplog.text
    assert log.recovered.bytes_checked == log.segments[-1].size
    assert (values_of(read_all(log)), log.recovered.clean) == (list("abcde"), False)
    assert checkpoints(bench) == []


def test_a_damaged_checkpoint_is_not_used(bench: Bench) -> None:
    work = Work(bench, bench.open(), Random(5))
    for _ in range(30):
        work.step()
    checkpoint(work.log)
    work.step()
    (offset,) = checkpoints(bench)
    path = bench.directory / f"{offset:020d}.checkpoint"
    good, point, before = bench.files.get(path), work.log.recovery_point, facts(work.log)
    damages = [good[:at] for at in range(0, len(good), 53)]
    for at in range(0, len(good), 47):
        damages.append(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    for damage in damages:
        bench.files = bench.files.kill()
        bench.files.put(path, damage)
        log = bench.open(recovery_point=point)
        assert log.recovered.bytes_checked == log.size_bytes
        assert facts(log) == before


def test_a_checkpoint_of_other_batches_is_not_used(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A log that was put back from a copy, or made again, with another history."""
    log = bench.open()
    bench.append(log, "one", epoch=1)
    checkpoint(log)
    (offset,) = checkpoints(bench)
    path = bench.directory / f"{offset:020d}.checkpoint"
    other = Bench()
    log = other.open()
    other.append(log, "two", epoch=1)
    other.append(log, "end", epoch=1)
    log.flush()
    other.files = other.files.kill()
    other.files.put(path, bench.files.get(path))
    with caplog.at_level(logging.INFO):
        log = other.open(recovery_point=2)
    assert f"{path} is not used: it is not of what the segment holds" in caplog.text
    assert log.recovered.bytes_checked == log.size_bytes
    assert not checkpoints(other)


def test_what_a_checkpoint_holds(bench: Bench) -> None:
    """What is in memory of the segment, and of the producers."""
    bench.overrides = {"index.interval.bytes": "1"}
    work = Work(bench, bench.open(), Random(5))
    for _ in range(60):
        work.step()
    active, producers = work.log.segments[-1], work.log.producers
    state, known = active.state(work.log.log_end_offset), snapshot_of(producers.copy(), 7)
    assert active.aborted.has_entries()
    checkpoint(work.log)
    path, found = the_checkpoint(bench)
    assert (found.offset, found.state) == (work.log.log_end_offset, state)
    assert snapshot_of(found.producers.copy(), 7) == known
    data = bytearray(bench.files.get(path))
    assert data[:2] == b"\0\1", "the version"
    data[2:6] = crc32c(data[6:]).to_bytes(4, "big")
    assert data == bench.files.get(path), "the CRC is of all that follows"


def test_which_segment_a_checkpoint_is_of(bench: Bench) -> None:
    """The one that the log has to be checked in: not one that is gone, nor one before it."""
    log = bench.open()
    for value in "ab":
        bench.append(log, value)
    log.roll()
    for value in "cd":
        bench.append(log, value)
    checkpoint(log)
    bench.append(log, "e")
    log.roll()
    bench.append(log, "f")
    _, found = the_checkpoint(bench)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 5]
    for point in range(5):
        found.check(log.segments, point)
    for point in (5, 6):
        with pytest.raises(CheckpointUnusableError, match=r"^its segment needs no check$"):
            found.check(log.segments, point)
    for left in (log.segments[:1], log.segments[2:], []):
        with pytest.raises(CheckpointUnusableError, match=r"^its segment is not there$"):
            found.check(left, 0)
    second = log.segments[1].path
    whole, size = bench.files.get(second), found.state.written.size
    found.offset -= 1
    with pytest.raises(CheckpointUnusableError, match=r"^it is not of what the segment holds$"):
        found.check(log.segments, 2)
    found.offset += 1
    bench.files.put(second, whole[:size])
    found.check(log.segments, 2)
    bench.files.put(second, whole[: size - 1])
    with pytest.raises(CheckpointUnusableError, match=r"^the segment is shorter$"):
        found.check(log.segments, 2)
    bench.files.put(second, bytes(size))
    with pytest.raises(CheckpointUnusableError, match=r"^it is not of what the segment holds$"):
        found.check(log.segments, 2)


def test_the_newest_of_several_is_used_in_whatever_order_a_disk_names_them(bench: Bench) -> None:
    log = bench.open()
    kept = {}
    for value in "abc":
        bench.append(log, value)
        checkpoint(log)
        path, _ = the_checkpoint(bench)
        kept[path] = bench.files.get(path)
    for path, data in kept.items():
        bench.files.put(path, data)
    bench.files.put(bench.directory / "foreign.checkpoint", b"")
    for names in ([path.name for path in kept], [path.name for path in reversed(kept)]):
        names.insert(1, "foreign.checkpoint")
        found = LogCheckpoints(bench.files, bench.directory, names).find(log.segments, 1)
        assert found is not None
        assert found.offset == 3
        assert {n for n in bench.files.names(bench.directory) if n.endswith(".checkpoint")} == {
            "foreign.checkpoint", f"{3:020d}.checkpoint",
        }  # fmt: skip
        for path, data in kept.items():
            bench.files.put(path, data)
