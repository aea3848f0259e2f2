"""What the compaction's process answers to each command, and what it writes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.log import compaction_worker
from penstock_broker.log.compaction_worker import (
    CompactionFailedError,
    CompactionWork,
    WorkerProcess,
    make_worker,
)
from penstock_broker.log.files import Files, OsFiles
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.log.segment import Segment, segment_name
from penstock_broker.testing import MemFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import iter_batches

LOG, CLEANED = Path("/data/t-0"), Path("/data/t-0/x.cleaned")
PRODUCER = 7
MIB = 1 << 20


class Disk(MemFiles):
    """A disk that notes what is done with segments."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.make_directory(LOG)

    def check(self, operation: str, path: Path) -> None:
        if path.suffix == ".log":
            self.done.append(operation)
        super().check(operation, path)


def batch(base: int, *keys: str, value: int = 1, time: int = 0, **options: Any) -> bytes:
    records = [NewRecord(key.encode(), bytes(value), time) for key in keys]
    return bytes(build_batch(records, base_offset=base, **options))


def transactional(base: int, *keys: str) -> bytes:
    return batch(base, *keys, producer_id=PRODUCER, producer_epoch=0, transactional=True)


def marker(base: int, *, is_commit: bool) -> bytes:
    data = build_marker(PRODUCER, 0, Marker(is_commit, 0), 0)
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


Place = tuple[int, int, int]
"""A segment as commands have it: its first offset, its end, its size."""


def put(files: MemFiles, base: int, end: int, *batches: bytes) -> Place:
    data = b"".join(batches)
    files.put(LOG / segment_name(base, ".log"), data)
    return base, end, len(data)


def begun(files: Files, directory: Path = LOG, **changes: Any) -> CompactionWork:
    work = CompactionWork(files)
    assert work.call(begin(directory, **changes)) == {}
    return work


def begin(directory: Path = LOG, **changes: Any) -> dict[str, Any]:
    return {
        "do": "begin",
        "directory": str(directory),
        "cleaned": str(directory / CLEANED.name),
        "aborted": [],
        "producers": [],
        "map_bytes": 10**6,
        "now_ms": 1_000_000,
        "delete_retention_ms": 500,
        "index_interval_bytes": 100,
    } | changes


def map_of(work: CompactionWork, *segments: Place, first_dirty: int = 0) -> dict[str, Any]:
    return work.call({"do": "map", "segments": segments, "first_dirty": first_dirty})


def clean(work: CompactionWork, *segments: Place) -> dict[str, Any]:
    return work.call({"do": "clean", "segments": segments})


def kept(files: MemFiles, base: int = 0) -> list[tuple[int, str]]:
    """The offsets and keys of the new segment."""
    data = files.get(CLEANED / segment_name(base, ".log"))
    return [
        (record.offset, (record.key or b"").decode())
        for found in iter_batches(memoryview(data))
        for record in found.records()
    ]


@pytest.fixture
def files() -> Disk:
    return Disk()


# -- begin ---------------------------------------------------------------------------------------


def test_what_is_left_of_another_compaction_goes(files: Disk) -> None:
    files.make_directory(CLEANED)
    files.put(CLEANED / segment_name(0, ".log"), b"old")
    begun(files)
    assert files.is_directory(CLEANED)
    assert files.names(CLEANED) == []


# -- map -----------------------------------------------------------------------------------------


def test_the_keys_of_all_dirty_batches_are_mapped(files: Disk) -> None:
    first = put(files, 0, 4, batch(0, "a"), batch(1, "b", "c"), batch(3, "d"))
    second = put(files, 4, 9, batch(4, "a"), batch(6, "e"))
    work = begun(files)
    found = map_of(work, first, second, first_dirty=1)
    assert found == {"end_offset": 9, "keys": 5, "read": first[2] + second[2]}


def test_a_batch_that_reaches_the_first_dirty_offset_is_mapped(files: Disk) -> None:
    place = put(files, 0, 4, batch(0, "a"), batch(1, "b", "c"), batch(3, "d"))
    for first_dirty, keys in ((2, 3), (3, 1), (4, 0)):
        assert map_of(begun(files), place, first_dirty=first_dirty)["keys"] == keys


def test_a_full_map_says_where_it_was_full(files: Disk) -> None:
    batches = [batch(0, "a"), batch(1, "b"), batch(2, "c")]
    place = put(files, 0, 3, *batches)
    found = map_of(begun(files, map_bytes=200), place)
    assert found == {"end_offset": 1, "keys": 1, "read": len(batches[0]) + len(batches[1])}


def test_what_was_aborted_and_the_markers_are_not_mapped(files: Disk) -> None:
    place = put(
        files, 0, 6, transactional(0, "a"), marker(1, is_commit=False),
        transactional(2, "b"), marker(3, is_commit=True), batch(4, "c"),
    )  # fmt: skip
    assert map_of(begun(files, aborted=[[PRODUCER, 0, 1]]), place)["keys"] == 2
    assert map_of(begun(files), place)["keys"] == 3


# -- clean ---------------------------------------------------------------------------------------


def cleaned(files: Disk, *segments: Place, **changes: Any) -> dict[str, Any]:
    """The answer, with all keys of the segments mapped."""
    work = begun(files, **changes)
    map_of(work, *segments)
    files.done.clear()
    return clean(work, *segments)


def test_what_was_replaced_goes(files: Disk) -> None:
    place = put(files, 0, 9, batch(0, "a"), batch(1, "b"), batch(2, "a", "c"), batch(6, "b"))
    answer = cleaned(files, place)
    assert kept(files) == [(2, "a"), (3, "c"), (6, "b")]
    size = len(files.get(CLEANED / segment_name(0, ".log")))
    assert answer == {"changed": True, "size": size, "read": place[2]}
    assert files.done[-1] == "sync", "it is on the disk before it is offered"


def test_a_segment_of_which_all_stays_is_not_made(files: Disk) -> None:
    place = put(files, 0, 9, batch(0, "a"), batch(1, "b"))
    assert cleaned(files, place) == {"changed": False, "size": place[2], "read": place[2]}
    assert files.names(CLEANED) == []


def test_two_segments_become_one_though_all_stays(files: Disk) -> None:
    first, second = put(files, 0, 3, batch(0, "a")), put(files, 3, 9, batch(4, "b"))
    size = first[2] + second[2]
    assert cleaned(files, first, second) == {"changed": True, "size": size, "read": size}
    assert kept(files) == [(0, "a"), (4, "b")]


def test_a_batch_of_which_one_record_stays_is_a_change(files: Disk) -> None:
    place = put(files, 0, 9, batch(0, "a", "b"), batch(2, "a"))
    assert cleaned(files, place)["changed"] is True
    assert kept(files) == [(1, "b"), (2, "a")]


def test_the_new_segment_has_its_indexes(files: Disk) -> None:
    """They end where its last source does; times are those of the batches, also before 1970."""
    times = [-9, 5_000, 77, 1 << 60]
    places = [put(files, n, n + 2, batch(n, f"k{n}", time=time, value=90))
              for n, time in zip((0, 2, 4, 6), times, strict=True)]  # fmt: skip
    cleaned(files, *places)
    segment = Segment(files, CLEANED, 0, 100)
    segment.attach()
    times_up_to = [segment.time_index.entry(n) for n in range(len(segment.time_index))]
    assert times_up_to == [(-1, 2), (5_000, 6), (1 << 60, 8)]
    assert segment.offset_index.last() == (6, places[0][2] * 3)


@pytest.mark.parametrize(
    ("sizes", "writes"),
    [
        ([MIB], 1),
        ([MIB - 1, 100], 1),
        ([MIB, 100], 2),
        ([MIB, MIB - 1, 100], 2),
        ([MIB, MIB, 100], 3),
        ([100] * 512, 1),
        ([100] * 513, 2),
        ([100] * 1_025, 3),
        ([], 0),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else f"{len(value)} batches",
)
def test_it_writes_a_megabyte_or_512_batches_at_once(
    files: Disk, sizes: Sequence[int], writes: int
) -> None:
    batches = [sized(number, size) for number, size in enumerate(sizes)]
    first = put(files, 0, 2_000, *batches)
    cleaned(files, first, put(files, 2_000, 2_001))
    assert files.done.count("write") == writes
    assert len(kept(files)) == len(sizes)


def sized(base: int, size: int) -> bytes:
    """A batch of so many bytes, with a key of its own."""
    key = f"{base:04d}"
    value = size - len(batch(base, key, value=0))
    while len(found := batch(base, key, value=value)) > size:
        value -= 1  # its lengths take more than a byte
    assert len(found) == size
    return found


# -- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ([batch(4, "a")], "offsets 4 to 4"),  # below its base
        ([batch(5, "a", "b"), batch(6, "c")], "offsets 6 to 6"),
        ([batch(8, "a", "b")], "offsets 8 to 9"),  # beyond its end
        ([batch(9, "a")], "offsets 9 to 9"),
    ],
)
def test_offsets_that_are_not_the_segments_are_damage(
    files: Disk, batches: Sequence[bytes], reason: str
) -> None:
    place = put(files, 5, 9, *batches)
    with pytest.raises(CompactionFailedError, match=reason) as failed:
        map_of(begun(files), place)
    assert failed.value.is_damage is True
    with pytest.raises(CompactionFailedError, match=str(LOG / segment_name(5, ".log"))):
        clean(begun(files), place)


def test_offsets_of_a_segment_at_their_edges(files: Disk) -> None:
    place = put(files, 5, 9, batch(5, "a"), batch(6, "b"), batch(8, "c"))
    assert map_of(begun(files), place)["keys"] == 3


def test_a_disk_that_fails_is_no_damage(files: Disk) -> None:
    work = begun(files)
    with pytest.raises(CompactionFailedError, match="No such file") as failed:
        map_of(work, (0, 5, 100))
    assert failed.value.is_damage is False


@pytest.mark.parametrize(("batches", "ticks"), [(1, 1), (512, 1), (513, 2), (1_025, 3)])
def test_it_looks_around_every_512_batches(files: Disk, batches: int, ticks: int) -> None:
    place = put(files, 0, batches, *(batch(n, "k") for n in range(batches)))
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1

    work = CompactionWork(files, tick)
    work.call(begin())
    map_of(work, place)
    assert count == ticks


# -- the process ---------------------------------------------------------------------------------


class Pipe(io.BytesIO):
    """What is written to a process, up to the last flush."""

    flushed = b""

    def flush(self) -> None:
        self.flushed = self.getvalue()


class Process:
    """What a worker asks of ``subprocess.Popen``."""

    def __init__(self, answers: bytes) -> None:
        self.stdin = Pipe()
        self.stdout = io.BytesIO(answers)
        self.calls: list[object] = []

    def kill(self) -> None:
        self.calls.append("kill")

    def wait(self) -> None:
        self.calls.append("wait")


def worker(monkeypatch: pytest.MonkeyPatch, answers: bytes) -> tuple[WorkerProcess, Process]:
    process = Process(answers)

    def popen(command: list[str], **pipes: int) -> Process:
        assert command == [sys.executable, "-P", "-m", "penstock_broker.log.compaction_worker"]
        assert list(pipes) == ["stdin", "stdout"]
        return process

    monkeypatch.setattr(subprocess, "Popen", popen)
    return WorkerProcess(), process


def test_a_command_is_a_line_and_so_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    made, process = worker(monkeypatch, b'{"keys": 3}\n{}\n')
    assert made.call({"do": "map"}) == {"keys": 3}
    assert process.stdin.flushed == b'{"do": "map"}\n'
    assert made.call({"do": "clean"}) == {}
    made.close()
    assert process.calls == ["kill", "wait"]


@pytest.mark.parametrize("is_damage", [True, False])
def test_an_error_of_the_process_is_raised(
    monkeypatch: pytest.MonkeyPatch, is_damage: bool
) -> None:
    answer = json.dumps({"error": "no space", "is_damage": is_damage}).encode() + b"\n"
    made, _ = worker(monkeypatch, answer)
    with pytest.raises(CompactionFailedError, match=r"^no space$") as failed:
        made.call({})
    assert failed.value.is_damage is is_damage


def test_a_process_that_has_ended_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made, process = worker(monkeypatch, b"")
    with pytest.raises(CompactionFailedError, match=r"^the compaction's process has ended$"):
        made.call({})
    process.stdin.close()
    with pytest.raises(CompactionFailedError, match="process is gone: I/O operation on closed"):
        made.call({})


def test_a_simulated_disk_is_worked_on_in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    worker(monkeypatch, b"")
    assert isinstance(make_worker(MemFiles()), CompactionWork)
    assert isinstance(make_worker(OsFiles()), WorkerProcess)


def test_without_a_process_this_thread_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def popen(command: list[str], **pipes: int) -> Process:
        raise OSError("no memory")

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert isinstance(make_worker(OsFiles()), CompactionWork)
    worker(monkeypatch, b"")
    monkeypatch.setattr(sys, "executable", "")
    assert isinstance(make_worker(OsFiles()), CompactionWork)


# -- in the process ------------------------------------------------------------------------------


def serve(monkeypatch: pytest.MonkeyPatch, *commands: dict[str, Any]) -> list[dict[str, Any]]:
    """What the process answers to these commands, and that it is not in others' way."""
    nice: list[int] = []
    monkeypatch.setattr(os, "nice", nice.append)
    given = "".join(json.dumps(command) + "\n" for command in commands)
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    out = Pipe()
    text = io.TextIOWrapper(out)
    monkeypatch.setattr(sys, "stdout", text)
    compaction_worker.main()
    assert nice == [5]
    return [json.loads(line) for line in out.getvalue().decode().splitlines()]


@pytest.fixture
def on_disk(tmp_path: Path) -> tuple[Path, Place]:
    """A segment on a real disk."""
    data = batch(0, "a") + batch(1, "a")
    (tmp_path / segment_name(0, ".log")).write_bytes(data)
    return tmp_path, (0, 2, len(data))


def test_the_process_answers_until_its_input_ends(
    monkeypatch: pytest.MonkeyPatch, on_disk: tuple[Path, Place]
) -> None:
    directory, place = on_disk
    answers = serve(
        monkeypatch,
        begin(directory),
        {"do": "map", "segments": [place], "first_dirty": 0},
        {"do": "map", "segments": [[9, 9, 9]], "first_dirty": 0},
        {"do": "map", "segments": [[0, 1, place[2]]], "first_dirty": 0},
    )
    assert answers[:2] == [{}, {"end_offset": 2, "keys": 1, "read": place[2]}]
    assert [answer["is_damage"] for answer in answers[2:]] == [False, True]
    assert "No such file" in answers[2]["error"]
    assert "offsets 1 to 1" in answers[3]["error"]


def test_the_process_ends_with_its_parent(
    monkeypatch: pytest.MonkeyPatch, on_disk: tuple[Path, Place]
) -> None:
    directory, place = on_disk
    parents = iter([100, 100, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    reading = {"do": "map", "segments": [place], "first_dirty": 0}
    with pytest.raises(SystemExit) as ended:
        serve(monkeypatch, begin(directory), reading, reading)
    assert ended.value.code == 1
