"""Checkpoints of the active segment: a start that uses one finds what a start without it finds."""

from __future__ import annotations

import errno
import io
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c
from log_bench import Bench, read_all, values_of
from storage_broker import Broker

from penstock_broker.log import manager
from penstock_broker.log.check import check_log
from penstock_broker.log.epoch_file import read_epochs
from penstock_broker.log.files import OsFiles
from penstock_broker.log.log import Log
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.log.producer_state import snapshot_of
from penstock_broker.log.segment_checkpoint import (
    Checkpoint,
    CheckpointUnusableError,
    LogCheckpoints,
)
from penstock_broker.testing import MemFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch, validate_batches

STEPS = 14
"""More calls of the disk than a flush with a checkpoint makes."""


def checkpoint(log: Log) -> None:
    """As the broker does it, at once; nothing where there is nothing new."""
    job = log.flush_job(with_checkpoint=True)
    if job is not None:
        job.run()
        log.flushed(job)


def checkpoints(bench: Bench) -> list[int]:
    names = bench.files.names(bench.directory)
    return [int(name[:20]) for name in names if name.endswith(".checkpoint")]


def without_checkpoints(bench: Bench) -> Bench:
    """A copy of the disk that has none."""
    copy = Bench()
    copy.clock, copy.overrides = bench.clock, bench.overrides
    for name in bench.files.names(bench.directory):
        if not name.endswith(".checkpoint"):
            path = bench.directory / name
            copy.files.put(path, bench.files.get(path))
    return copy


def facts(log: Log) -> dict[str, object]:
    """All that a start finds out."""
    start, end = log.log_start_offset, log.log_end_offset
    records = read_all(log)
    times = {record.timestamp for record in records}
    active = log.segments[-1]
    return {
        "range": (start, end, log.last_stable_offset),
        "segments": [(segment.base_offset, segment.size) for segment in log.segments],
        "records": [(record.offset, record.timestamp, record.value) for record in records],
        "reads": [values_of(read_all(log, offset))[:1] for offset in range(start, end)],
        "times": {
            at: log.offset_for_timestamp(at) for time in times for at in (time - 1, time, time + 1)
        },
        "latest": log.max_timestamp(),
        "index": active.offset_index.copy(),
        "active": (active.last_batch, active.timestamp_max, active.first_timestamp),
        "epochs": log.epochs.entries(),
        "aborted": log.aborted_transactions(start, end),
        "open": log.producers.transactions.begun,
        "producers": {
            producer_id: (entry.epoch, entry.coordinator_epoch, [b[:4] for b in entry.batches])
            for producer_id, entry in log.producers.producers().items()
        },
    }


class Work:
    """Producers, transactions, epochs and times of all kinds, at random."""

    def __init__(self, bench: Bench, log: Log, random: Random) -> None:
        self.bench, self.log, self.random = bench, log, random
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def step(self) -> None:
        choice, random = self.random.random(), self.random
        self.bench.clock.advance(random.randrange(20))
        if choice < 0.1:
            self.epoch += 1
        elif choice < 0.4:
            self._write(-1)
        elif choice < 0.6:
            self._write(random.randrange(3))
        elif choice < 0.8 or not self.open:
            self._write(random.randrange(10, 13))
        else:
            self._end(random.choice(sorted(self.open)))

    def _write(self, producer_id: int) -> None:
        is_transactional = producer_id >= 10
        sequence = self.sequences.get(producer_id, 0)
        time = self.bench.clock.now_ms() - self.random.randrange(60)
        values = [
            NewRecord(None, b"%d" % self.random.randrange(10**6), time)
            for _ in range(self.random.randint(1, 3))
        ]
        data = build_batch(
            values,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=is_transactional,
        )
        batches = validate_batches(memoryview(data), max_message_bytes=1 << 20)
        self.log.append(batches, self.epoch, is_verified=is_transactional)
        self.sequences[producer_id] = sequence + len(values)
        if is_transactional:
            self.open.add(producer_id)

    def _end(self, producer_id: int) -> None:
        marker = Marker(self.random.random() < 0.4, self.epoch)
        data = build_marker(producer_id, 0, marker, self.bench.clock.now_ms())
        batch = RecordBatch(memoryview(data))
        self.log.append_for_coordinator(batch, self.epoch, marker)
        self.open.discard(producer_id)

    def start(self, log: Log) -> None:
        """Go on with a log that has been opened again, and may have lost its end."""
        self.log = log
        self.epoch += 1  # as the replica manager does
        known = log.producers.producers()
        self.sequences = {each: known[each].last_sequence + 1 for each in known}
        self.open = set(log.producers.transactions.begun)


def bench_for(random: Random) -> Bench:
    bench = Bench()
    bench.overrides = {
        "segment.bytes": random.choice(["700", "3000", "100000"]),
        "index.interval.bytes": random.choice(["1", "150", "4096"]),
    }
    return bench


def survives(bench: Bench, recovery_point: int, synced: int) -> Log:
    """A start with the checkpoints finds what one without them finds."""
    copy = without_checkpoints(bench)
    log = bench.open(recovery_point=recovery_point)
    plain = copy.open(recovery_point=recovery_point)
    assert facts(log) == facts(plain)
    assert log.log_end_offset >= synced
    assert log.recovered.bytes_checked <= plain.recovered.bytes_checked
    return log


# -- what is read ------------------------------------------------------------------------------


def test_a_start_after_a_kill_reads_what_lies_behind_the_checkpoint(bench: Bench) -> None:
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


def test_what_lies_behind_the_checkpoint_is_checked(bench: Bench) -> None:
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


# -- crashes -----------------------------------------------------------------------------------


def test_kills_and_power_cuts_find_the_same_with_checkpoints_and_without(seed: int) -> None:
    random = Random(seed)
    for _ in range(6):
        bench = bench_for(random)
        work = Work(bench, bench.open(), random)
        for _ in range(5):
            synced = point = work.log.recovery_point
            for _ in range(random.randrange(40)):
                work.step()
                if random.random() < 0.1:
                    checkpoint(work.log)
                    synced = work.log.recovery_point
                    # The recovery points are written later.
                    point = random.choice([point, synced])
                elif random.random() < 0.05:
                    work.log.flush()
                    synced = work.log.recovery_point
            end = work.log.log_end_offset
            if random.random() < 0.2:
                work.start(bench.reopen_cleanly(work.log))
                assert work.log.recovered.clean
                continue
            if random.random() < 0.5:
                bench.files, synced = bench.files.kill(), end
            else:
                bench.files = bench.files.power_cut(random)
            work.start(survives(bench, point, synced))
            assert len(checkpoints(bench)) <= 1, "what is not used goes"


class EndsAtStep(MemFiles):
    """A disk whose machine ends before a call of a certain number."""

    steps_left = -1

    def check(self, operation: str, path: Path) -> None:
        self.steps_left -= 1
        if self.steps_left == -1:
            raise InterruptedError(errno.EINTR, "the end")
        super().check(operation, path)


def _kill(files: MemFiles, random: Random) -> MemFiles:
    return files.kill()


def _cut(files: MemFiles, random: Random) -> MemFiles:
    return files.power_cut(random)


def _cut_after_the_checkpoint(files: MemFiles, random: Random) -> MemFiles:
    """The disk has written that first."""
    for name in files.names(Bench().directory):
        if name.endswith(".checkpoint"):
            path = Bench().directory / name
            files.put(path, files.get(path))
    return files.power_cut(random)


@pytest.mark.parametrize("end", [_kill, _cut, _cut_after_the_checkpoint])
@pytest.mark.parametrize("step", range(STEPS))
def test_a_crash_at_each_step_of_a_checkpoint(
    seed: int, step: int, end: Callable[[MemFiles, Random], MemFiles]
) -> None:
    """Sync of the data, of the epochs, of the names; the checkpoint's write; the old one's end; the
    recovery point, which is written after all of that or not."""
    random = Random(seed)
    for rolls in 3 * (False, True):
        bench = bench_for(random)
        bench.overrides["segment.bytes"] = "100000"
        files = EndsAtStep(bench.clock)
        files.make_directory(bench.directory)
        bench.files = files
        work = Work(bench, bench.open(), random)
        for _ in range(12):
            work.step()
        checkpoint(work.log)
        synced = work.log.recovery_point
        for _ in range(12):
            work.step()
        if rolls:
            work.log.roll()
            work.step()
        point, files.steps_left = synced, step
        try:
            checkpoint(work.log)
            point = random.choice([synced, work.log.recovery_point])
        except InterruptedError:
            pass
        else:
            synced = work.log.recovery_point
        bench.files = end(files, random)
        work.start(survives(bench, point, synced))
        for _ in range(5):
            work.step()
        bench.files = bench.files.kill()
        survives(bench, work.log.recovery_point, work.log.log_end_offset)


def test_the_steps_are_enough(bench: Bench) -> None:
    files = EndsAtStep(bench.clock)
    files.make_directory(bench.directory)
    bench.files = files
    log = bench.open()
    bench.append(log, "a")
    checkpoint(log)
    bench.append(log, "b", epoch=1)
    log.roll()
    bench.append(log, "c", epoch=2)
    files.steps_left = STEPS - 1
    checkpoint(log)


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


def the_checkpoint(bench: Bench) -> tuple[Path, Checkpoint]:
    (offset,) = checkpoints(bench)
    path = bench.directory / f"{offset:020d}.checkpoint"
    return path, Checkpoint(bench.files.get(path))


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


def test_a_checkpoint_takes_the_place_of_all_that_was_there(bench: Bench) -> None:
    """A damaged one that could not be removed has its name, and more bytes."""
    log = bench.open()
    bench.append(log, "a")
    bench.files.put(bench.directory / f"{1:020d}.checkpoint", b"damaged" * 100)
    checkpoint(log)
    _, found = the_checkpoint(bench)
    found.check(log.segments, 0)
    assert bench.reopen_after_kill(log).recovered.bytes_checked == 0


def test_a_checkpoint_on_a_disk(bench: Bench, tmp_path: Path) -> None:
    bench.directory = tmp_path
    log = bench.open(files=OsFiles())
    bench.append(log, "a")
    checkpoint(log)
    assert (tmp_path / f"{1:020d}.checkpoint").stat().st_size > 0
    log = bench.open(files=OsFiles(), recovery_point=1)
    assert (log.recovered.bytes_checked, values_of(read_all(log))) == (0, ["a"])


def test_leader_epochs_that_recovery_finds_outlive_a_checkpoint(bench: Bench) -> None:
    """A power cut may leave their file as it was before an epoch began whose batches it kept."""
    log = bench.open()
    bench.append(log, "a", epoch=1)
    path = bench.directory / "leader-epoch-checkpoint"
    old = bench.files.get(path)
    bench.append(log, "b", epoch=4)
    bench.files.put(path, old)
    log = bench.reopen_after_kill(log)
    checkpoint(log)
    log = bench.reopen_after_kill(log)
    assert log.recovered.bytes_checked == 0
    assert log.epochs.entries() == [(1, 0), (4, 1)]


# -- which are kept ----------------------------------------------------------------------------


def test_a_checkpoint_of_a_closed_segment_stays_until_that_is_on_the_disk(bench: Bench) -> None:
    log = bench.open()
    for value in "abcdef":
        bench.append(log, value)
    checkpoint(log)
    size = log.size_bytes
    bench.append(log, "g")
    log.roll()
    bench.append(log, "h")
    log = bench.reopen_after_kill(log)
    assert log.recovered.bytes_checked == log.size_bytes - size
    assert values_of(read_all(log)) == list("abcdefgh")
    assert checkpoints(bench) == [6]
    log.flush()
    assert checkpoints(bench) == []
    # The next start begins at the active segment, and finds the producers below it.
    assert f"{7:020d}.snapshot" in bench.files.names(bench.directory)


def test_a_roll_of_what_is_on_the_disk_takes_the_checkpoint_along(bench: Bench) -> None:
    """The closed segment may be compacted from now on: it would be that of another."""
    log = bench.open()
    bench.append(log, "a")
    checkpoint(log)
    assert checkpoints(bench) == [1]
    log.roll()
    assert checkpoints(bench) == []


def test_a_checkpoint_that_cannot_be_written_harms_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    log = bench.open()
    bench.append(log, "a")
    bench.files.fail("write", errno.ENOSPC, path_part=".checkpoint", partial_bytes=20)
    checkpoint(log)
    assert ".checkpoint cannot be written: " in caplog.text
    caplog.clear()
    assert (log.failure, log.recovery_point) == (None, 1)
    assert checkpoints(bench) == [], "a part of one takes room on a full disk"
    bench.append(log, "b")
    bench.files.fail("open", errno.EMFILE, path_part=".checkpoint")
    checkpoint(log)
    assert ".checkpoint cannot be written: " in caplog.text
    assert (log.failure, log.recovery_point) == (None, 2)
    bench.append(log, "c")
    checkpoint(log)
    assert checkpoints(bench) == [3]
    assert log.bytes_to_check == 0
    bench.append(log, "d")
    for _ in range(2):
        bench.files.fail("write", errno.ENOSPC, path_part=".checkpoint", partial_bytes=20)
        checkpoint(log)
        assert checkpoints(bench) == [3], "a part of one takes room on a full disk"
    checkpoint(log)
    assert checkpoints(bench) == [4]


def test_one_checkpoint_at_a_time_and_none_where_nothing_is_new(bench: Bench) -> None:
    log = bench.open()
    assert log.flush_job(with_checkpoint=True) is None
    bench.append(log, "a")
    first = log.flush_job(with_checkpoint=True)
    bench.append(log, "b")
    second = log.flush_job(with_checkpoint=True)
    assert first is not None and first.checkpoint is not None
    assert second is not None and second.checkpoint is None, "the other one is under way"
    for job in (first, second):
        job.run()
        log.flushed(job)
    assert (checkpoints(bench), log.bytes_to_check) == ([1], log.size_bytes // 2)
    checkpoint(log)
    assert (checkpoints(bench), log.bytes_to_check) == ([2], 0)
    assert log.flush_job(with_checkpoint=True) is None
    log.roll()
    bench.append(log, "c")
    assert log.bytes_to_check == log.segments[-1].size


def test_a_clean_stop_keeps_the_checkpoint_of_the_end_alone(bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    checkpoint(log)
    log = bench.reopen_cleanly(log)
    assert (checkpoints(bench), log.bytes_to_check) == ([1], 0)
    bench.append(log, "b")
    log = bench.reopen_cleanly(log)
    assert (checkpoints(bench), log.bytes_to_check) == ([], log.size_bytes)


def test_a_checkpoint_that_cannot_be_removed_is_removed_later(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    log = bench.open()
    bench.append(log, "a")
    checkpoint(log)
    bench.append(log, "b")
    bench.files.fail("remove", errno.EIO, path_part=".checkpoint")
    checkpoint(log)
    assert f"{1:020d}.checkpoint cannot be removed: " in caplog.text
    assert (log.failure, checkpoints(bench)) == (None, [1, 2])
    bench.append(log, "c")
    checkpoint(log)
    assert checkpoints(bench) == [3]


@pytest.mark.parametrize("number", range(10))
def test_two_jobs_at_a_time_sync_names_and_epochs_each(bench: Bench, number: int) -> None:
    """The one that was made second may end first: what it says is on the disk has to be there."""
    log = bench.open()
    bench.append(log, "a", epoch=3)
    first = log.flush_job()
    bench.append(log, "b", epoch=3)
    second = log.flush_job()
    assert first is not None
    assert second is not None
    second.run()
    log.flushed(second)
    bench.files = bench.files.power_cut(Random(number))
    epochs = read_epochs(bench.files, bench.directory)
    assert epochs is not None
    assert epochs.entries() == [(3, 0)]
    assert values_of(read_all(bench.open(recovery_point=log.recovery_point))) == ["a", "b"]


# -- the manager -------------------------------------------------------------------------------


def test_the_logs_with_the_most_to_check_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "TO_CHECK_MAX", 4000)
    monkeypatch.setattr(manager, "CHECKPOINT_MIN", 500)
    broker = Broker(MemFiles())
    broker.replicas.create_topic("t", 4, {})
    for partition, size in enumerate((100, 3000, 900, 600)):
        broker.append("t", partition, "x" * size)
    assert [log.place.partition for log in broker.logs.far_behind()] == [1]
    broker.append("t", 0, "x")  # as much again, but in partitions of little
    broker.append("t", 2, "x" * 2000)
    assert [log.place.partition for log in broker.logs.far_behind()] == [1, 2]
    assert [log.place.partition for log in broker.logs.far_behind(1)] == [1]
    for log in broker.logs.far_behind():
        checkpoint(log)
    assert broker.logs.far_behind() == []


def test_a_kill_after_a_clean_stop_finds_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "TO_CHECK_MAX", 1000)
    monkeypatch.setattr(manager, "CHECKPOINT_MIN", 500)
    broker = Broker(MemFiles())
    broker.replicas.create_topic("t", 1, {})
    for _ in range(3):
        broker.append("t", 0, "x" * 1000)
    broker.restart()
    assert broker.logs.far_behind() == []
    broker.append("t", 0, "y")
    broker.kill()
    assert broker.values("t") == ["x" * 1000] * 3 + ["y"]
    assert broker.report()[-1]["bytes_checked"] < 100


def test_check_log_looks_at_checkpoints(tmp_path: Path, bench: Bench) -> None:
    log = bench.open()
    bench.append(log, "a")
    checkpoint(log)
    bench.append(log, "b")
    bench.files = bench.files.kill()
    for name in bench.files.names(bench.directory):
        (tmp_path / name).write_bytes(bench.files.get(bench.directory / name))
    out = io.StringIO()
    assert check_log(tmp_path, out) == 0, out.getvalue()
    path = tmp_path / f"{1:020d}.checkpoint"
    path.write_bytes(path.read_bytes()[:-1])
    assert check_log(tmp_path, out) == 1
    assert path.name in out.getvalue()
