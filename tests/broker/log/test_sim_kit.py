"""The simulated disk and clock behave as the real ones where the broker relies on it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from penstock_broker.log.checkpoint import (
    CheckpointDamagedError,
    OffsetCheckpoint,
    read_lines,
    write_lines,
)
from penstock_broker.log.files import (
    Files,
    LockTakenError,
    OsFiles,
    append_line,
    read_file,
    replace_file,
)
from penstock_broker.testing import MemFiles, SimClock


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, Path]:
    files: Files = OsFiles() if request.param == "real" else MemFiles()
    root = tmp_path / "data"
    files.make_directory(root)
    return files, root


def test_files_of_both_disks_do_the_same(disk: tuple[Files, Path]) -> None:
    files, root = disk
    with pytest.raises(FileNotFoundError):
        files.open(root / "x")
    file = files.open(root / "x", create=True)
    file.write(b"hello", 0)
    file.write_parts([b" ", memoryview(b"world"), bytearray(b"!")], 5)
    assert file.read(0, 100) == b"hello world!"
    assert file.read(6, 5) == b"world"
    assert file.read(50, 5) == b""
    file.write(b"J", 0)
    file.truncate(5)
    file.sync()
    assert (file.size(), files.size(root / "x")) == (5, 5)
    files.rename(root / "x", root / "y")
    assert read_file(files, root / "y") == b"Jello"
    assert file.read(0, 5) == b"Jello", "an open file keeps its content under any name"
    files.remove(root / "y")
    files.remove(root / "y")
    assert file.read(0, 5) == b"Jello"
    assert files.names(root) == []


def test_directories_of_both_disks_do_the_same(disk: tuple[Files, Path]) -> None:
    files, root = disk
    files.make_directory(root / "a" / "b")
    files.make_directory(root / "a" / "b")
    files.open(root / "a" / "f", create=True).write(b"1", 0)
    files.sync_directory(root / "a")
    assert files.names(root / "a") == ["b", "f"]
    files.rename(root / "a", root / "c")
    assert not files.exists(root / "a")
    assert files.is_directory(root / "c" / "b")
    assert read_file(files, root / "c" / "f") == b"1"
    files.remove_tree(root / "c")
    files.remove_tree(root / "c")
    assert not files.exists(root / "c")


def test_locks_of_both_disks_do_the_same(disk: tuple[Files, Path]) -> None:
    files, root = disk
    lock = files.lock(root / ".lock")
    with pytest.raises(LockTakenError):
        files.lock(root / ".lock")
    lock.close()
    files.lock(root / ".lock").close()


def test_many_parts_and_partial_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that the system takes in pieces is finished."""
    file = OsFiles().open(tmp_path / "x", create=True)
    file.write_parts([b"a"] * 3000, 0)
    assert file.size() == 3000
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:7], at))
    file.write(bytes(range(100)), 5)
    assert file.read(5, 100) == bytes(range(100))


def test_a_descriptor_closes_with_its_last_holder(tmp_path: Path) -> None:
    file = OsFiles().open(tmp_path / "x", create=True)
    fd = file.fd
    os.fstat(fd)
    del file
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_replaced_files_are_old_or_new_after_a_power_cut(seed: int) -> None:
    random = Random(seed)
    path = Path("/d/f")
    for _ in range(200):
        files = MemFiles()
        replace_file(files, path, b"old")
        kind = random.choice(["write", "sync", "rename", "sync_directory"])
        files.fail(kind, errno.EIO, partial_bytes=1)
        with pytest.raises(OSError):
            replace_file(files, path, b"new one")
        files = files.power_cut(random)
        assert read_file(files, path) in (b"old", b"new one")


def test_a_line_is_there_after_a_power_cut_once_added() -> None:
    files = MemFiles()
    path = Path("/d/report")
    append_line(files, path, b"one")
    torn = files.get(path) + b"to"
    files.put(path, torn)
    append_line(files, path, b"three")
    files = files.power_cut(Random(3))
    assert files.get(path) == b"one\nto\nthree\n"


def test_the_simulated_disk_loses_what_was_not_synced(seed: int) -> None:
    random = Random(seed)
    lost = kept = torn = 0
    for _ in range(300):
        files = MemFiles()
        file = files.open(Path("/d/f"), create=True)
        files.sync_directory(Path("/d"))
        file.write(b"synced", 0)
        file.sync()
        file.write(b"-unsynced", 6)
        after = files.power_cut(random).get(Path("/d/f"))
        assert after.startswith(b"synced")
        lost += after == b"synced"
        kept += after == b"synced-unsynced"
        torn += 6 < len(after) < 15
    assert lost and kept and torn
    with pytest.raises(OSError):
        file.write(b"x", 0)


def test_the_simulated_disk_fills_up() -> None:
    files = MemFiles()
    files.capacity_bytes = 10
    file = files.open(Path("/d/f"), create=True)
    file.write(b"12345678", 0)
    with pytest.raises(OSError) as error:
        file.write(b"abcdef", 8)
    assert error.value.errno == errno.ENOSPC
    assert file.size() == 10, "what fits has been written"
    file.write(b"rewritten!", 0)


def test_checkpoints_round_trip_and_notice_damage() -> None:
    files = MemFiles()
    path = Path("/d/checkpoint")
    checkpoint = OffsetCheckpoint(files, path)
    assert checkpoint.read() == {}
    offsets = {("a", 0): 5, ("b-c.d", 12): 2**40}
    checkpoint.write(offsets)
    assert files.get(path) == b"0\n2\na 0 5\nb-c.d 12 1099511627776\n"
    assert checkpoint.read() == offsets
    for data in (b"", b"1\n0\n", b"0\n3\na 0 5\n", b"0\nx\n", b"0\n1\na 0\n", b"0\n1\na b c\n"):
        files.put(path, data)
        with pytest.raises(CheckpointDamagedError):
            checkpoint.read()
    write_lines(files, path, [])
    assert read_lines(files, path) == []


def test_the_clock_runs_what_falls_due_in_order() -> None:
    clock = SimClock(now_ms=1000)
    seen: list[tuple[str, int]] = []
    clock.call_at(0.5, lambda: seen.append(("late", clock.now_ms())))
    clock.call_at(0.2, lambda: clock.call_at(0.3, lambda: seen.append(("then", clock.now_ms()))))
    clock.call_at(0.1, lambda: seen.append(("cancelled", 0))).cancel()
    clock.call_soon(lambda: seen.append(("soon", clock.now_ms())))
    clock.run_ready()
    clock.advance(400)
    assert seen == [("soon", 1000), ("then", 1300)]
    clock.advance(100)
    assert seen[-1] == ("late", 1500)
    clock.jump(-1000)
    assert (clock.now_ms(), clock.monotonic()) == (500, 0.5)
