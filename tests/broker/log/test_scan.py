"""A walk over the batches of a file: what it gives, and what ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_broker.log.files import File
from penstock_broker.log.scan import BadBatchError, Checked, ScannedBatch, check, scan, unchecked
from penstock_broker.testing import MemFiles
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import HEADER_BYTES, RecordBatch

PATH = Path("/d/x.log")


def written(data: bytes) -> File:
    files = MemFiles()
    files.make_directory(PATH.parent)
    files.put(PATH, data)
    return files.open(PATH)


def batch(base_offset: int, size: int = 1, count: int = 2, time: int = 5) -> bytearray:
    return build_batch([NewRecord(None, b"v" * size, time)] * count, base_offset=base_offset)


def checked(
    data: bytes,
    *,
    begin: Checked | None = None,
    crc_from: int = 0,
    holes_below: int = 0,
    interval: int = 100,
) -> tuple[Checked, list[tuple[int, int, int]]]:
    """With what it gave to ``on_entry``."""
    entries: list[tuple[int, int, int]] = []
    found = check(
        written(data),
        len(data),
        begin or unchecked(0),
        check_crc_from=crc_from,
        holes_below=holes_below,
        index_interval_bytes=interval,
        epoch=-1,
        on_entry=lambda *entry: entries.append(entry),
        on_batch=lambda _: None,
    )
    return found, entries


def ended(data: bytes) -> BadBatchError:
    """What ends a walk that checks, which is what ends one that recovers."""
    with pytest.raises(BadBatchError) as error:
        list(scan(written(data), 0, len(data), 0, check_crc=True))
    bad = checked(data)[0].bad
    assert bad is not None
    assert (bad.position, bad.reason, bad.claimed) == (
        error.value.position, error.value.reason, error.value.claimed,
    )  # fmt: skip
    return bad


SIZES = [10, 9_000, 10, 9_000, 40_000, 300_000, 10, 1 << 20, 3, 600_000, 5]


@pytest.mark.parametrize("check_crc", [False, True])
def test_every_batch_is_given_with_its_place(check_crc: bool) -> None:
    """Across the pieces in which a file is read, and where a batch is larger than one."""
    batches = [batch(2 * n, size, time=n) for n, size in enumerate(SIZES)]
    data, expected, position = b"".join(batches), [], 0
    for number, each in enumerate(batches):
        base, size = 2 * number, len(each)
        expected.append(
            ScannedBatch(position, size, base, 0, 0, base + 1, number, number, -1, -1, -1, 2)
        )
        position += size
    found = list(scan(written(data), 0, len(data), 0, check_crc=check_crc))
    assert [each._replace(leader_epoch=0) for each in found] == expected
    third = expected[2].position
    assert len(list(scan(written(data), third, len(data), 0, check_crc=check_crc))) == 9
    assert list(scan(written(data), 0, 0, 0, check_crc=check_crc)) == []


def test_a_check_gives_the_end_the_last_batch_and_entries() -> None:
    batches = [batch(2 * n, size, time=n) for n, size in enumerate(SIZES)]
    data = b"".join(batches)
    starts = [sum(map(len, batches[:n])) for n in range(len(batches))]
    found, entries = checked(data)
    count, last = len(batches), len(batches[-1])
    assert found[:4] == (2 * count, len(data), (2 * count - 2, starts[-1]), count - 1)
    assert (found.unindexed, found.bad) == (last, None)
    assert entries == [(2 * n, starts[n], n - 1) for n in (2, 4, 5, 6, 8, 10)]
    middle, _ = checked(data[: starts[7]])
    assert checked(data, begin=middle)[0] == found
    assert checked(b"")[0] == unchecked(0) == Checked(0, 0, (-1, 0), -1, 0)


def test_an_entry_is_made_behind_more_than_an_interval() -> None:
    data = b"".join(batch(2 * number) for number in range(4))
    size = len(data) // 4
    assert checked(data, interval=size)[1] == [(4, 2 * size, 5)]
    assert [entry[0] for entry in checked(data, interval=size - 1)[1]] == [2, 4, 6]


def damaged(at: int, change: bytes) -> bytes:
    data = batch(4)
    data[at : at + len(change)] = change
    return bytes(batch(0) + batch(2) + data + batch(6))


@pytest.mark.parametrize(
    ("data", "reason", "claimed"),
    [
        (damaged(16, b"\1"), "no batch (magic 1, length {length}, delta 1)", None),
        (damaged(8, b"\0\0\0\x30"), "no batch (magic 2, length 48, delta 1)", None),
        (damaged(23, b"\xff\xff\xff\xff"), "no batch (magic 2, length {length}, delta -1)", None),
        (damaged(7, b"\3"), "base offset 3 where 4 is the least", None),
        (damaged(8, b"\0\1\0\0"), "torn batch: {missing} of 65548 bytes missing", (4, 6)),
        (damaged(62, b"\xff"), "CRC mismatch", (4, 6)),
        (damaged(20, b"\xff"), "CRC mismatch", (4, 6)),
    ],
    ids=["magic", "length", "delta", "offset", "too long", "records", "CRC"],
)
def test_a_batch_that_is_none_ends_the_walk(
    data: bytes, reason: str, claimed: tuple[int, int] | None
) -> None:
    size = len(batch(0))
    bad = ended(data)
    length, missing = size - 12, 65_548 - 2 * size
    assert bad.reason == reason.format(length=length, missing=missing)
    assert (bad.position, bad.claimed) == (2 * size, claimed)
    assert str(bad) == f"{bad.reason} at position {2 * size}"


def test_the_least_header_is_a_batch() -> None:
    empty = build_batch([], base_offset=3)
    assert len(empty) == HEADER_BYTES
    (found,) = scan(written(bytes(empty)), 0, HEADER_BYTES, 3, check_crc=True)
    assert (found.base_offset, found.records_count) == (3, 0)
    data = bytes(batch(0, count=1) + build_batch([], base_offset=1))
    assert checked(data)[0][:3] == (2, len(data), (1, len(data) - HEADER_BYTES))
    for kept in range(1, HEADER_BYTES):
        bad = ended(bytes(batch(0)) + bytes(empty)[:kept])
        assert bad.reason == "torn batch: its header is not whole"
        assert (bad.position, bad.claimed) == (len(batch(0)), None)


@pytest.mark.parametrize("again", [batch(1, count=1), build_batch([], base_offset=1)])
def test_a_small_batch_that_is_there_twice_is_out_of_order(again: bytearray) -> None:
    assert ended(bytes(batch(0) + again)).reason == "base offset 1 where 2 is the least"


def test_offsets_may_be_missing_where_compaction_has_been_alone() -> None:
    data = bytes(batch(0) + batch(5))
    assert [each.base_offset for each in scan(written(data), 0, len(data), 0)] == [0, 5]
    for holes_below in (5, 6):
        assert checked(data, holes_below=holes_below)[0].end_offset == 7
    bad = checked(data, holes_below=4)[0].bad
    assert bad is not None
    assert (bad.reason, bad.claimed) == ("base offset 5 where 2 follows", None)
    assert checked(data, crc_from=7)[0].end_offset == 7, "below, it is not looked at"
    assert checked(data, crc_from=6)[0].end_offset == 2


def test_a_crc_counts_from_the_last_offset_of_a_batch_on() -> None:
    data = batch(0) + batch(2)
    data[-1] ^= 1
    assert checked(bytes(data), crc_from=4)[0].bad is None
    assert checked(bytes(data), crc_from=3)[0].end_offset == 2
    assert not RecordBatch(memoryview(data), len(batch(0))).crc_is_valid()
    assert len(list(scan(written(bytes(data)), 0, len(data), 0))) == 2, "a walk looks at headers"


def test_a_file_may_continue_behind_the_end_that_is_asked_for() -> None:
    """Another batch is being written there."""
    data = bytes(batch(0) + batch(2))
    for more in (1, HEADER_BYTES - 1, HEADER_BYTES):
        walk = scan(written(data), 0, len(data) // 2 + more, 0)
        assert next(walk).base_offset == 0
        with pytest.raises(BadBatchError, match="torn batch: ") as error:
            next(walk)
        is_whole = more == HEADER_BYTES
        assert ("header is not whole" in error.value.reason) == (not is_whole)
        assert error.value.claimed == ((2, 4) if is_whole else None)


def test_who_looks_for_one_batch_reads_little_and_who_walks_on_in_large_pieces() -> None:
    data = b"".join(batch(2 * number, 4_000) for number in range(400))
    file, sizes = written(data), list[int]()
    plain_read = file.read

    def read(position: int, size: int) -> bytes:
        sizes.append(size)
        return plain_read(position, size)

    file.read = read  # type: ignore[method-assign]
    assert sum(1 for _ in scan(file, 0, len(data), 0)) == 400
    doubled = [(16 << 10) << number for number in range(7)]
    assert sizes == [*doubled, *[1 << 20] * (len(sizes) - 7)]
    assert len(sizes) > 8
    sizes.clear()
    check(
        file, len(data), unchecked(0), check_crc_from=0, holes_below=0, index_interval_bytes=100,
        epoch=0, on_entry=lambda *_: None, on_batch=lambda _: None,
    )  # fmt: skip
    # And the offset of the last batch.
    assert sizes == [*[1 << 20] * (len(data) // (1 << 20) + 1), 8]


def test_recovery_looks_at_batches_of_producers_and_of_new_epochs() -> None:
    data = bytearray()
    for number, (producer, epoch) in enumerate(
        [(-1, 0), (-1, 1), (-1, 1), (0, 1), (7, 3), (-1, 2), (-1, 3), (-1, 4)]
    ):
        each = build_batch(
            [NewRecord(None, b"v", 5), NewRecord(None, b"v", 9)],
            base_offset=2 * number,
            producer_id=producer,
            producer_epoch=6,
            base_sequence=11,
            transactional=producer == 7,
        )
        each[12:16] = epoch.to_bytes(4, "big")
        data += each
    file, seen = written(bytes(data)), list[ScannedBatch]()
    check(
        file, len(data), unchecked(0), check_crc_from=0, holes_below=0, index_interval_bytes=100,
        epoch=0, on_entry=lambda *_: None, on_batch=seen.append,
    )  # fmt: skip
    everything = list(scan(file, 0, len(data), 0))
    assert seen == [everything[number] for number in (1, 3, 4, 7)]
    assert (seen[2].attributes, seen[2].base_timestamp, seen[2].max_timestamp) == (0x10, 5, 9)
