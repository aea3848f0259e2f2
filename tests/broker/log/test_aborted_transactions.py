"""The index of aborted transactions: what it finds, its file, and how it is made again."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_bench import Bench

from penstock_broker.log.aborted_transactions import AbortedTransactions, rebuild
from penstock_broker.log.index_file import IndexDamagedError
from penstock_broker.log.log import Log
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.log.open_transactions import AbortedTransaction, OpenTransactions
from penstock_broker.testing import MemFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch

PLAIN = 4
"""A producer without transactions."""
PATH = Path("/d/00000000000000000005.txnindex")
ENTRY = struct.Struct(">hqqqq")
FIRST = AbortedTransaction(7, 2, 6, 4)
SECOND = AbortedTransaction(8, 4, 9, 10)


def disk(data: bytes | None = None) -> MemFiles:
    files = MemFiles()
    files.make_directory(PATH.parent)
    if data is not None:
        files.put(PATH, data)
    return files


def packed(*entries: tuple[int, ...], version: int = 0) -> bytes:
    return b"".join(ENTRY.pack(version, *entry) for entry in entries)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("wwac")), max_size=12))
def test_a_range_finds_what_a_look_at_every_entry_finds(history: list[tuple[int, str]]) -> None:
    """Producers write, abort and commit; each step has the next offset."""
    index, transactions = AbortedTransactions(disk(), PATH), OpenTransactions()
    entries = []
    for offset, (producer, step) in enumerate(history):
        if step == "w":
            transactions.begin(producer, offset)
        elif entry := transactions.end(producer, offset, is_commit=step == "c"):
            index.add(entry)
            entries.append(entry)
    assert list(index.entries()) == entries
    for first in range(len(history) + 1):
        behind = [entry for entry in entries if entry.last_offset >= first]
        for upper in range(first, len(history) + 2):
            found = [entry for entry in behind if entry.first_offset < upper]
            is_over = any(entry.last_stable_offset >= upper for entry in behind)
            assert index.find(first, upper) == (found, is_over)


def test_its_file() -> None:
    files = disk()
    index = AbortedTransactions(files, PATH)
    index.save()
    assert not files.exists(PATH), "there is a file only where there are entries"
    assert index.file() is None
    for entry in (FIRST, SECOND):
        index.add(entry)
    index.save()
    assert files.get(PATH) == packed(FIRST, SECOND)
    assert index.file() is not None
    for bring in ("attach", "load"):
        again = AbortedTransactions(files, PATH)
        getattr(again, bring)()
        again.save()
        assert list(again.entries()) == [FIRST, SECOND]
    index.clear()
    index.add(SECOND)
    index.save()
    assert files.get(PATH) == packed(SECOND), "what was longer is cut"
    index.clear()
    index.save()
    assert not files.exists(PATH)
    index.remove()
    index.add(FIRST)
    index.save()
    index.remove()
    assert not files.exists(PATH)
    assert list(index.entries()) == []


def test_a_copy_of_that_moment_may_be_restored() -> None:
    """In a checkpoint of the active segment."""
    index = AbortedTransactions(disk(), PATH)
    assert (index.has_entries(), index.copy()) == (False, b"")
    index.add(FIRST)
    data = index.copy()
    assert (index.has_entries(), data) == (True, packed(FIRST))
    index.add(SECOND)
    assert data == packed(FIRST)
    index.restore(data)
    assert list(index.entries()) == [FIRST]
    index.add(SECOND)
    assert index.copy() == packed(FIRST, SECOND)
    index.attach()
    assert not index.has_entries(), "there is no file"


def test_a_file_is_read_when_it_is_first_needed() -> None:
    files = disk(b"garbage")
    index = AbortedTransactions(files, PATH)
    index.attach()
    index.save()
    assert files.get(PATH) == b"garbage"
    for use in (index.entries, lambda: index.find(0, 9), lambda: index.add(FIRST)):
        with pytest.raises(IndexDamagedError):
            list(use() or ())
    with pytest.raises(IndexDamagedError):
        index.load()


@pytest.mark.parametrize(
    "entry",
    [(7, 4, 5, 5), (7, 0, 5, 0), (7, 2, 6, 7), (0, 4, 5, 6)],
    ids=["a record and its marker", "first of all", "all decided", "first producer"],
)
def test_entries_that_can_be(entry: tuple[int, int, int, int]) -> None:
    """The marker is in the segment; the rest may be before it."""
    index = AbortedTransactions(disk(packed(entry)), PATH)
    index.load()
    assert list(index.entries()) == [entry]


@pytest.mark.parametrize(
    "data",
    [
        packed(FIRST, version=1),
        packed((-1, 2, 6, 4)),
        packed((7, -1, 6, 4)),
        packed((7, 6, 6, 4)),
        packed((7, 2, 4, 4)),
        packed((7, 2, 6, -1)),
        packed((7, 2, 6, 8)),
        packed(FIRST, FIRST),
        packed(SECOND, FIRST),
        packed(FIRST)[:-1],
        packed(FIRST) + b"\0",
    ],
    ids=[
        "version", "producer", "first", "marker before first", "marker before segment",
        "stable", "stable behind marker", "twice", "order", "short", "long",
    ],
)  # fmt: skip
def test_entries_that_cannot_be(data: bytes) -> None:
    with pytest.raises(IndexDamagedError) as damage:
        AbortedTransactions(disk(data), PATH).load()
    if len(data) % ENTRY.size:
        assert str(damage.value) == f"{PATH} has an impossible size, {len(data)} bytes"
    else:
        _, _, first, last, _ = ENTRY.unpack(data[-ENTRY.size :])
        assert str(damage.value) == f"{PATH} has an impossible entry ({first} to {last})"


# -- made again from the log


def write(log: Log, producer: int, sequence: int, count: int, *, is_transactional: bool) -> None:
    data = build_batch(
        [NewRecord(b"k", b"value", 5)] * count,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=is_transactional,
    )
    log.append([RecordBatch(memoryview(data))], 0, is_verified=True)


def end(log: Log, producer: int, *, is_commit: bool) -> None:
    marker = Marker(is_commit, 0)
    data = build_marker(producer, 0, marker, 5)
    log.append_for_coordinator(RecordBatch(memoryview(data)), 0, marker)


@pytest.mark.parametrize("seed", range(6))
def test_all_indexes_are_made_again_as_they_were(bench: Bench, seed: int) -> None:
    """Transactions that interleave over segments, and producers that have none."""
    random = Random(seed)
    bench.overrides = {"segment.bytes": "900"}
    log, sequences = bench.open(), dict.fromkeys(range(5), 0)
    for _ in range(120):
        producer = random.randrange(5)
        if random.random() < 0.3 and producer != PLAIN:
            end(log, producer, is_commit=random.random() < 0.4)
        elif random.random() < 0.2:
            bench.append(log, "of no producer")
        else:
            count = random.randint(1, 3)
            write(log, producer, sequences[producer], count, is_transactional=producer != PLAIN)
            sequences[producer] += count
    expected = [list(segment.aborted.entries()) for segment in log.segments]
    assert sum(map(len, expected)) > 5 and len(expected) > 5
    before = {n: bench.files.get(bench.directory / n) for n in bench.files.names(bench.directory)}
    for segment in log.segments[:-1]:
        if bench.files.exists(segment.aborted.path):
            bench.files.put(segment.aborted.path, b"garbage")
    rebuild(log.segments)
    assert [list(segment.aborted.entries()) for segment in log.segments] == expected
    after = {n: bench.files.get(bench.directory / n) for n in bench.files.names(bench.directory)}
    assert after == before
