"""What ``check-log`` says of each kind of damage, line by line, on directories made by hand."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from crc32c import crc32c

from penstock_broker.log.aborted_transactions import AbortedTransactions
from penstock_broker.log.check import check_log
from penstock_broker.log.files import OsFiles
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.log.offset_index import OffsetIndex
from penstock_broker.log.open_transactions import AbortedTransaction
from penstock_broker.log.producer_state import ProducerState, snapshot_of
from penstock_broker.log.segment import segment_name
from penstock_broker.log.swap import CleanerCheckpoint, write_cleaner_checkpoint
from penstock_broker.log.time_index import TimeIndex
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import RecordBatch

ATTRIBUTES, DELTA, MAX_TIMESTAMP, COUNT = (">h", 21), (">i", 23), (">q", 35), (">i", 57)
"""Fields of a batch's header: their format, their place."""
EPOCHS = "leader-epoch-checkpoint"


def batch(
    base: int, count: int = 1, *, time: int = 0, epoch: int = -1, producer_id: int = -1
) -> bytes:
    """``count`` records from an offset on, the first the youngest, so that the times fall."""
    records = [NewRecord(None, b"value", time - number) for number in range(count)]
    return bytes(
        build_batch(
            records, base_offset=base, partition_leader_epoch=epoch, producer_id=producer_id
        )
    )


def marker(base: int, producer_id: int) -> bytes:
    """A batch that aborts a transaction."""
    data = build_marker(producer_id, 0, Marker(False, 0), 0)
    struct.pack_into(">q", data, 0, base)
    return bytes(data)


def patched(data: bytes | bytearray, *fields: tuple[tuple[str, int], int]) -> bytes:
    """The batch with other fields in its header, under a checksum that says they are right."""
    changed = bytearray(data)
    for (code, at), value in fields:
        struct.pack_into(code, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def name(base: int, suffix: str = ".log") -> str:
    return segment_name(base, suffix)


class Partition:
    """The directory of a partition, filled by hand."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        (directory / "partition.metadata").write_text("version: 0\n")

    def put(self, base: int, *batches: bytes) -> int:
        """A segment; its size."""
        return self.write(name(base), b"".join(batches))

    def write(self, file: str, data: bytes) -> int:
        return (self.directory / file).write_bytes(data)

    def path(self, base: int, suffix: str) -> Path:
        return self.directory / name(base, suffix)

    def index(self, base: int, *entries: tuple[int, int]) -> None:
        index = OffsetIndex(OsFiles(), self.path(base, ".index"))
        for relative, position in entries:
            index.append(relative, position)
        index.save()

    def times(self, base: int, *entries: tuple[int, int]) -> None:
        index = TimeIndex(OsFiles(), self.path(base, ".timeindex"))
        for timestamp, relative in entries:
            index.append(timestamp, relative)
        index.save()

    def aborted(self, base: int, *entries: AbortedTransaction) -> None:
        index = AbortedTransactions(OsFiles(), self.path(base, ".txnindex"))
        for entry in entries:
            index.add(entry)
        index.save()

    def compacted(self, holes_below: int) -> None:
        write_cleaner_checkpoint(OsFiles(), self.directory, CleanerCheckpoint(0, holes_below))

    def epochs(self, *entries: str) -> None:
        lines = ["0", str(len(entries)), *entries, ""]
        self.write(EPOCHS, "\n".join(lines).encode())

    def problems(self, **options: bool) -> list[str]:
        """What is said of it, without its name."""
        out = io.StringIO()
        status = check_log(self.directory, out, **options)
        *lines, total = out.getvalue().splitlines()
        assert status == (1 if lines else 0)
        assert total.endswith(f": {len(lines)} problems" if lines else ": all intact")
        before = f"{self.directory.name}: "
        assert all(line.startswith(before) for line in lines)
        return [line.removeprefix(before) for line in lines]


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path / "t-0")


def missing(first: int, last: int) -> str:
    return f"offsets {first} to {last} are missing"


# -- which partitions ----------------------------------------------------------------------------


def test_all_partitions_of_a_data_directory_in_order(tmp_path: Path) -> None:
    size = 0
    for other in ("t-3", "u-0", "t-1", "s-5", "t-2"):
        size += Partition(tmp_path / other).put(0, batch(0, 2), b"torn")
    for stranger in ("t-01", "cluster", "s-5-stray"):
        (tmp_path / stranger).mkdir()
    (tmp_path / "a-0").write_text("no directory")
    out = io.StringIO()
    assert check_log(tmp_path, out) == 1
    *lines, total = out.getvalue().splitlines()
    assert [line.split(": ")[0] for line in lines] == ["s-5", "t-1", "t-2", "t-3", "u-0"]
    assert total == f"5 partitions, 5 batches, {size} bytes: 5 problems"


def test_an_intact_partition(partition: Partition) -> None:
    size = partition.put(0, batch(0, 4), batch(4, 3)) + partition.put(7, batch(7, 2))
    out = io.StringIO()
    assert check_log(partition.directory, out) == 0
    assert out.getvalue() == f"1 partitions, 3 batches, {size} bytes: all intact\n"


def test_a_partition_is_known_by_its_metadata_or_its_segments(partition: Partition) -> None:
    assert partition.problems() == ["there is no segment"]
    (partition.directory / "partition.metadata").unlink()
    out = io.StringIO()
    assert check_log(partition.directory, out) == 0
    assert out.getvalue() == "0 partitions, 0 batches, 0 bytes: all intact\n"
    partition.put(0, batch(0))
    assert check_log(partition.directory, out) == 0
    assert "1 partitions, 1 batches, " in out.getvalue()


def test_what_cannot_be_read(partition: Partition) -> None:
    (partition.directory / name(0)).mkdir()
    (problem,) = partition.problems()
    assert problem.startswith("cannot be read: ")
    assert "directory" in problem


# -- names ---------------------------------------------------------------------------------------


def test_names_that_no_broker_gives(partition: Partition) -> None:
    partition.put(0, batch(0))
    partition.compacted(0)
    partition.write(name(0, ".log.deleted"), b"")
    partition.write(name(7, ".txnindex.deleted"), b"")
    partition.write(name(9, ".snapshot"), snapshot_of(ProducerState().copy(), 9))
    assert partition.problems() == []
    strangers = ["00.log", f"{name(0)}.swap", "notes.log", f"{name(0)}.deleted.deleted"]
    for stranger in strangers:
        partition.write(stranger, b"")
    for suffix in (".index", ".timeindex", ".txnindex"):
        partition.write(name(7, suffix), b"")
    expected = [f"{stranger} is no file of a finished log" for stranger in strangers]
    expected += [
        f"{name(7, suffix)} belongs to no segment"
        for suffix in (".index", ".timeindex", ".txnindex")
    ]
    assert sorted(partition.problems()) == sorted(expected)


# -- offsets -------------------------------------------------------------------------------------


def test_a_log_may_begin_anywhere(partition: Partition) -> None:
    partition.put(5, batch(5))
    partition.put(6, batch(6))
    assert partition.problems() == []


def test_offsets_that_are_missing(partition: Partition) -> None:
    first = batch(5, 2)
    partition.put(5, first, batch(9))
    partition.put(13, batch(13))
    expected = [f"{name(5)} at position {len(first)}: {missing(7, 8)}", missing(10, 12)]
    assert partition.problems() == expected
    partition.compacted(8)
    assert partition.problems() == expected
    partition.compacted(9)
    assert partition.problems() == expected[1:]
    partition.compacted(12)
    assert partition.problems() == expected[1:]
    partition.compacted(13)
    assert partition.problems() == []


def test_offsets_that_are_missing_before_the_first_batch(partition: Partition) -> None:
    partition.put(5, batch(7))
    partition.put(8, batch(8))
    assert partition.problems() == [f"{name(5)} at position 0: {missing(5, 6)}"]


def test_a_segment_that_reaches_into_the_next(partition: Partition) -> None:
    partition.put(0, batch(0, 4))
    partition.put(3, batch(3, 3))
    partition.put(4, batch(4))
    assert partition.problems() == [
        f"{name(0)} at position 0: offset 3 belongs to the next segment",
        f"{name(3)} at position 0: offset 5 belongs to the next segment",
    ]


def test_bytes_that_are_no_batch(partition: Partition) -> None:
    whole = batch(0)
    partition.put(0, whole, b"torn")
    assert partition.problems() == [
        f"{name(0)}: torn batch: its header is not whole at position {len(whole)}; "
        "4 bytes from there on are not valid"
    ]


def test_a_checksum_that_does_not_match(partition: Partition) -> None:
    data = batch(0)
    partition.put(0, data[:-1] + b"\xff")
    assert partition.problems(with_records=False) == [
        f"{name(0)}: CRC mismatch at position 0; {len(data)} bytes from there on are not valid"
    ]


# -- records -------------------------------------------------------------------------------------


def test_records_of_which_the_header_says_something_else(partition: Partition) -> None:
    cases = [
        (patched(batch(0, 2, time=50), (MAX_TIMESTAMP, 49)), "its largest timestamp is 50, not 49"),
        (patched(marker(0, 7), (MAX_TIMESTAMP, 9)), "its largest timestamp is 0, not 9"),
        (patched(batch(0, 3), (COUNT, 2)), "its records cannot be read: "),
        (
            patched(batch(0, 3), (DELTA, 1)),
            "its records have offsets that are not the batch's",
        ),
        (twice(batch(0)), "its records have offsets that are not the batch's"),
        (patched(batch(0), (ATTRIBUTES, 1)), "its records cannot be read: "),
    ]
    for data, problem in cases:
        end = RecordBatch(memoryview(data)).next_offset
        partition.put(0, data, batch(end))
        (found,) = partition.problems()
        assert found.startswith(f"{name(0)} at position 0: {problem}")
        assert partition.problems(with_records=False) == []


def twice(data: bytes) -> bytes:
    """A batch with its record twice, both at the same offset."""
    body = data[61:]
    length = (">i", 8)
    return patched(data + body, (length, len(data) + len(body) - 12), (DELTA, 1), (COUNT, 2))


def test_a_batch_that_compaction_has_emptied(partition: Partition) -> None:
    empty = patched(build_batch([], base_offset=0), (DELTA, 4), (MAX_TIMESTAMP, 50))
    partition.put(0, empty, batch(5))
    assert partition.problems() == []


# -- indexes -------------------------------------------------------------------------------------


def indexed(partition: Partition) -> list[int]:
    """A segment of four batches at offsets 10, 12, 14, 16; their positions."""
    batches = [batch(base, 2, time=time) for base, time in ((10, 3), (12, 9), (14, 5), (16, 20))]
    partition.put(10, *batches)
    return [sum(map(len, batches[:number])) for number in range(4)]


def test_an_index_that_points_at_its_batches(partition: Partition) -> None:
    positions = indexed(partition)
    partition.index(10, *zip((0, 2, 4, 6), positions, strict=True))
    partition.times(10, (3, 2), (9, 4), (20, 8))
    assert partition.problems() == []


@pytest.mark.parametrize(("entry", "said"), [((3, 1), 13), ((4, 1), 14), ((8, 3), 18)])
def test_an_index_that_points_elsewhere(
    partition: Partition, entry: tuple[int, int], said: int
) -> None:
    positions = indexed(partition)
    relative, number = entry
    partition.index(10, (2, positions[1]), (relative, positions[number]), (99, 0))
    assert partition.problems() == [
        f"{name(10, '.index')}: no batch {said} at position {positions[number]}"
    ]


@pytest.mark.parametrize(
    ("entries", "offset", "latest", "said"),
    [
        ([(2, 2)], 12, 3, 2),
        ([(8, 4)], 14, 9, 8),
        ([(3, 2), (8, 5), (19, 8)], 15, 9, 8),
        ([(3, 2), (9, 4), (19, 8)], 18, 20, 19),
        ([(19, 99)], 109, 20, 19),
    ],
)
def test_a_time_index_that_is_too_early(
    partition: Partition, entries: Sequence[tuple[int, int]], offset: int, latest: int, said: int
) -> None:
    """A search for a time above the entry would pass over the record."""
    indexed(partition)
    partition.times(10, *entries)
    assert partition.problems() == [
        f"{name(10, '.timeindex')}: a record before offset {offset} is of {latest}, "
        f"later than {said}"
    ]


@pytest.mark.parametrize("entries", [[(3, 3)], [(1, 0)], [(3, 2), (9, 6), (20, 8)], [(30, 2)]])
def test_a_time_index_may_say_less(
    partition: Partition, entries: Sequence[tuple[int, int]]
) -> None:
    indexed(partition)
    partition.times(10, *entries)
    assert partition.problems() == []


def test_nothing_is_before_the_first_batch_that_compaction_left(partition: Partition) -> None:
    partition.put(10, batch(15, time=9))
    partition.compacted(20)
    partition.times(10, (1, 3))
    assert partition.problems() == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_damaged(partition: Partition, suffix: str) -> None:
    indexed(partition)
    path = partition.path(10, suffix)
    path.write_bytes(b"damaged")
    assert partition.problems() == [f"{path.name}: {path} has an impossible size, 7 bytes"]


def test_the_index_of_aborted_transactions_is_held_against_the_markers(
    partition: Partition,
) -> None:
    partition.put(0, batch(0), marker(1, 7), marker(2, 8), batch(3, producer_id=8))
    ends = [AbortedTransaction(7, 0, 1, 2), AbortedTransaction(8, 0, 2, 3)]
    partition.aborted(0, *ends)
    assert partition.problems() == []
    for wrong in (
        AbortedTransaction(9, 0, 2, 3),
        AbortedTransaction(8, 0, 3, 4),
        AbortedTransaction(7, 0, 9, 9),
    ):
        partition.aborted(0, ends[0], wrong)
        assert partition.problems() == [
            f"{name(0, '.txnindex')}: no marker of producer {wrong.producer_id} "
            f"at offset {wrong.last_offset}"
        ]
    path = partition.path(0, ".txnindex")
    path.write_bytes(b"damaged")
    assert partition.problems() == [f"{path.name}: {path} has an impossible size, 7 bytes"]


# -- beside the segments -------------------------------------------------------------------------


def test_epochs_that_fall(partition: Partition) -> None:
    first = batch(0, epoch=3)
    partition.epochs("3 0", "4 2")
    partition.put(0, first, batch(1, epoch=2), batch(2, epoch=4), batch(3, epoch=4))
    assert partition.problems() == [f"{name(0)} at position {len(first)}: leader epoch 2 after 3"]


@pytest.mark.parametrize(
    ("entries", "problems"),
    [
        (("3 0", "4 2"), ()),
        (("3 0", "4 2", "5 9"), ()),
        (("3 0", "4 1"), ()),
        (("3 0", "4 3"), (f"{EPOCHS}: offset 2 is of epoch 4, the file says 3",)),
        (
            ("1 0", "2 2"),
            (
                f"{EPOCHS}: offset 0 is of epoch 3, the file says 1",
                f"{EPOCHS}: offset 2 is of epoch 4, the file says 2",
            ),
        ),
        (("3 x",), (f"{EPOCHS} is missing or damaged",)),
    ],
)
def test_the_file_of_epochs_is_held_against_the_batches(
    partition: Partition, entries: Iterable[str], problems: Sequence[str]
) -> None:
    partition.put(0, batch(0, epoch=3), batch(1, epoch=3), batch(2, epoch=4))
    partition.epochs(*entries)
    assert partition.problems() == list(problems)


def test_no_file_of_epochs_is_needed_where_nothing_was_written(partition: Partition) -> None:
    partition.put(0)
    assert partition.problems() == []
    partition.put(0, batch(0, epoch=0))
    assert partition.problems() == [f"{EPOCHS} is missing or damaged"]


def test_damaged_files_beside_the_segments(partition: Partition) -> None:
    partition.put(0, batch(0))
    for file in (name(1, ".snapshot"), name(1, ".checkpoint")):
        partition.write(file, b"damaged")
    checkpoint, snapshot = sorted(partition.problems())
    assert checkpoint.startswith(f"{name(1, '.checkpoint')}: ")
    assert snapshot.startswith(f"{name(1, '.snapshot')}: ")


def test_a_damaged_checkpoint_of_compaction(partition: Partition) -> None:
    """Offsets may then be missing anywhere: none that are is damage."""
    partition.put(0, batch(0), batch(9))
    partition.write("cleaner-checkpoint", b"damaged")
    assert partition.problems() == ["cleaner-checkpoint is damaged"]
