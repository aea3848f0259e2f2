"""What ``dump-log`` writes of a segment file: a line a batch, a line a record, and what is bad."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from penstock_broker.log.dump import describe, dump_log
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import LENGTH_END, PLACE


def placed(batch: bytearray, offset: int) -> bytes:
    PLACE.pack_into(batch, 0, offset, len(batch) - LENGTH_END, 3)
    return bytes(batch)


def batch(offset: int, *values: bytes | None, **options: Any) -> bytes:
    """Records at 100, 101 … ms."""
    records = [NewRecord(None, value, 100 + number) for number, value in enumerate(values)]
    return placed(build_batch(records, **options), offset)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{0:020d}.log"


def dumped(path: Path, data: bytes, **options: bool) -> tuple[int, list[str]]:
    """The exit status, and the lines."""
    path.write_bytes(data)
    out = io.StringIO()
    status = dump_log(path, out, **options)
    assert out.getvalue().endswith("\n")
    return status, out.getvalue().splitlines()


def test_a_line_for_each_batch(path: Path) -> None:
    first, second = batch(0, b"a", b"b"), batch(5, b"c" * 99, codec=Codec.GZIP)
    status, lines = dumped(path, first + second)
    assert status == 0
    assert lines == [
        f"position 0 offsets 0-1 records 2 bytes {len(first)} epoch 3 none timestamps 100-101",
        f"position {len(first)} offsets 5-5 records 1 bytes {len(second)} epoch 3 gzip "
        "timestamps 100-100",
        f"2 batches, {len(first + second)} bytes, all intact",
    ]
    assert list(describe(path)) == lines


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({}, "timestamps 100-100"),
        ({"producer_id": 0, "producer_epoch": 1, "base_sequence": 2},
         "timestamps 100-100 producer 0 epoch 1 sequence 2"),
        ({"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True},
         " producer 7 epoch 0 sequence 0 in a transaction"),
    ],
)  # fmt: skip
def test_who_wrote_a_batch(path: Path, options: dict[str, Any], end: str) -> None:
    _, lines = dumped(path, batch(0, b"v", **options))
    assert lines[0].endswith(end)


def test_the_codec_of_another_broker(path: Path) -> None:
    data = bytearray(batch(0, b"v"))
    struct.pack_into(">h", data, 21, 6)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    status, lines = dumped(path, bytes(data), with_records=True)
    assert status == 0
    assert " epoch 3 codec 6 timestamps" in lines[0]
    assert lines[1].startswith("  records cannot be read: ")


def test_a_line_for_each_record(path: Path) -> None:
    records = [
        NewRecord(b"k", b"v", 5, [("h", b"1"), ("i", None)]),
        NewRecord(None, None, 6),
        NewRecord(struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 9), 7),
    ]
    _, lines = dumped(path, placed(build_batch(records), 4), with_records=True)
    assert lines[1:-1] == [
        "  offset 4 timestamp 5 key b'k' value b'v' h=b'1' i=None",
        "  offset 5 timestamp 6 key None value None",
        r"  offset 6 timestamp 7 key b'\x00\x00\x00\x01' value b'\x00\x00\x00\x00\x00\t'",
    ]


def test_what_looks_like_a_marker_is_a_record(path: Path) -> None:
    record = NewRecord(struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 9), 7)
    _, lines = dumped(path, placed(build_batch([record]), 0), with_records=True)
    assert lines[1].startswith("  offset 0 timestamp 7 key ")


@pytest.mark.parametrize(("is_commit", "ends"), [(True, "commits"), (False, "aborts")])
def test_how_a_transaction_ended(path: Path, is_commit: bool, ends: str) -> None:
    data = placed(build_marker(7, 1, Marker(is_commit, coordinator_epoch=4), 2), 6)
    _, lines = dumped(path, data, with_records=True)
    assert lines[0].endswith(" producer 7 epoch 1 sequence -1 marker")
    assert lines[1] == f"  offset 6 {ends}, coordinator epoch 4"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-1] + b"\xff", "CRC mismatch at position {}"),
        (lambda data: data[:-3], "torn batch: 3 of {} bytes missing at position {}"),
        (lambda data: b"\xff" * 8 + data[8:], "base offset -1 where "),
    ],
    ids=["a wrong byte", "torn", "below 0"],
)
@pytest.mark.parametrize("number", [0, 1])
def test_the_first_bad_batch_ends_it(path: Path, damage: Any, reason: str, number: int) -> None:
    good: Sequence[bytes] = [batch(0, b"a")][:number]
    bad = batch(1, b"b")
    at = sum(map(len, good))
    status, lines = dumped(path, b"".join(good) + damage(bad))
    assert status == 1
    assert len(lines) == number + 1
    places = (len(bad), at) if reason.count("{}") == 2 else (at,)
    assert lines[-1].startswith(f"BAD: {reason.format(*places)}")
    assert lines[-1].endswith("; the rest of the file is not valid")


def test_a_file_that_cannot_be_read(path: Path) -> None:
    path.mkdir()
    out = io.StringIO()
    assert dump_log(path, out) == 1
    assert out.getvalue().startswith("BAD: the file cannot be read: [Errno 21] Is a directory")


def test_it_needs_no_right_to_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(batch(0, b"v"))
    original, modes = os.open, set[int]()

    def opening(path: Path, flags: int, *rest: int) -> int:
        modes.add(flags & os.O_ACCMODE)
        return original(path, flags, *rest)

    monkeypatch.setattr(os, "open", opening)
    assert dump_log(path, io.StringIO()) == 0
    assert modes == {os.O_RDONLY}
