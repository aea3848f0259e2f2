"""``check-log``: silent about a good directory, clear about each kind of damage, and read-only."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from storage_broker import Broker

from penstock_broker.__main__ import main
from penstock_broker.log.check import check_log
from penstock_broker.log.files import OsFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with two partitions of several segments, closed."""
    broker = Broker(OsFiles(), tmp_path / "data")
    broker.replicas.create_topic("t", 2, {"segment.bytes": "400", "index.interval.bytes": "100"})
    for number in range(40):
        broker.append("t", number % 2, f"value {number}", "second")
        broker.clock.advance(5)
    broker.replicas.close()
    return tmp_path / "data"


def check(path: Path) -> tuple[int, str]:
    out = io.StringIO()
    status = check_log(path, out)
    return status, out.getvalue()


def segment(data: Path, number: int = 1) -> Path:
    return sorted((data / "t-0").glob("*.log"))[number]


def test_a_good_directory(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert main(["check-log", str(data)]) == 0
    assert capsys.readouterr().out.startswith("2 partitions, 40 batches, ")
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before, "nothing touched"
    assert check(data / "t-0")[1].startswith("1 partitions, 20 batches, ")


def test_a_directory_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-log", str(tmp_path / "no")]) == 1
    assert "is not a directory" in capsys.readouterr().err


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(bytes(content))


def test_a_flipped_bit_in_a_record(data: Path) -> None:
    flip(segment(data), 70)
    status, text = check(data)
    assert status == 1
    assert f"t-0: {segment(data).name}: CRC mismatch at position 0" in text


def test_a_torn_tail(data: Path) -> None:
    path = segment(data, -1)
    path.write_bytes(path.read_bytes()[:-3])
    assert "torn batch: 3 of" in check(data)[1]


def test_a_missing_segment(data: Path) -> None:
    path = segment(data)
    path.unlink()
    text = check(data)[1]
    assert f"offsets {int(path.stem)} to " in text
    assert "are missing" in text
    assert f"{path.stem}.index belongs to no segment" in text


def test_a_base_offset_that_the_checksum_does_not_cover(data: Path) -> None:
    path = segment(data, 0)
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[8:12], "big") + 12
    struct.pack_into(">q", content, size, 9)
    path.write_bytes(bytes(content))
    assert "at position " + str(size) + ": offsets 2 to 8 are missing" in check(data)[1]


def test_indexes(data: Path) -> None:
    flip(segment(data).with_suffix(".index"), 2)
    flip(segment(data).with_suffix(".timeindex"), 2)
    text = check(data)[1]
    assert f"{segment(data).stem}.index: " in text
    assert f"{segment(data).stem}.timeindex: " in text
    assert "does not match its checksum" in text


def test_indexes_of_another_segment(data: Path) -> None:
    """A whole index, but not this segment's."""
    segment(data, 1).with_suffix(".index").write_bytes(
        segment(data, -2).with_suffix(".index").read_bytes()
    )
    segment(data, 2).with_suffix(".timeindex").write_bytes(
        segment(data, 0).with_suffix(".timeindex").read_bytes()
    )
    text = check(data)[1]
    assert f"{segment(data, 2).stem}.timeindex: a record before offset" in text


def test_epochs(data: Path) -> None:
    (data / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    assert "offset 0 is of epoch 0, the file says 3" in check(data)[1]
    (data / "t-0" / "leader-epoch-checkpoint").write_text("garbage")
    assert "leader-epoch-checkpoint is missing or damaged" in check(data)[1]


def test_snapshots_and_strangers(data: Path) -> None:
    snapshot = sorted((data / "t-1").glob("*.snapshot"))[-1]
    snapshot.write_bytes(b"no snapshot")
    (data / "t-1" / "00000000000000000000-00000000000000000010.swap").write_bytes(b"")
    text = check(data)[1]
    assert f"t-1: {snapshot.name}: " in text
    assert ".swap is no file of a finished log" in text
    assert "2 problems" in text


def test_a_header_that_does_not_match_its_records(data: Path) -> None:
    """The checksum is right, the largest timestamp is not that of any record."""
    path = segment(data, 0)
    batch = build_batch([NewRecord(None, b"x", 5)])
    struct.pack_into(">q", batch, 35, 10**15)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    for other in sorted((data / "t-0").iterdir()):
        if other.name not in (path.name, "partition.metadata"):
            other.unlink()
    path.write_bytes(bytes(batch))
    assert "its largest timestamp is 5, not 1000000000000000" in check(data)[1]
