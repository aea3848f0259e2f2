"""The two indexes of a segment: what is found in them, in memory and in their files."""

from __future__ import annotations

import struct
from array import array
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c

from penstock_broker.log.files import OsFiles
from penstock_broker.log.index_file import IndexDamagedError, IndexFile, pack, unpack
from penstock_broker.log.offset_index import OffsetIndex
from penstock_broker.log.time_index import TimeIndex
from penstock_broker.testing import MemFiles

PATH = Path("/d/i.index")
ENTRIES = [(3, 0), (5, 70), (9, 140)]


def filled(entries: list[tuple[int, int]], files: MemFiles | None = None) -> OffsetIndex:
    index = OffsetIndex(files or MemFiles(), PATH)
    for key, value in entries:
        index.append(key, value)
    return index


def test_an_index_of_no_entries() -> None:
    index = OffsetIndex(MemFiles(), PATH)
    index.save()
    for _ in ("in memory", "in the file"):
        assert (len(index), index.size_bytes, index.last(), index.floor(9)) == (0, 0, None, None)
        assert index.first_at_or_behind(0) is None
        index.attach()
    index.load()
    index.append(1, 2)
    assert index.last() == (1, 2)


def test_what_is_in_the_file() -> None:
    files = MemFiles()
    index = filled(ENTRIES, files)
    index.save()
    body = struct.pack(">6I4sI", 3, 0, 5, 70, 9, 140, b"PIDX", 3)
    assert files.get(PATH) == body + struct.pack(">I", crc32c(body))
    index.clear()
    index.append(7, 8)
    index.save()
    body = struct.pack(">2I4sI", 7, 8, b"PIDX", 1)
    assert files.get(PATH) == body + struct.pack(">I", crc32c(body)), "what was longer is cut"
    pairs = (array("q", [-1, 2**40]), array("q", [3, 4]))
    assert pack(pairs) == struct.pack(">4q", -1, 3, 2**40, 4)
    assert unpack("q", pack(pairs)) == pairs


def test_entries_in_memory_and_in_the_file() -> None:
    files = MemFiles()
    index = filled(ENTRIES, files)
    index.save()
    sealed, loaded = OffsetIndex(files, PATH), OffsetIndex(files, PATH)
    sealed.attach()
    loaded.load()
    for each in (index, sealed, loaded):
        assert (len(each), each.size_bytes, each.last()) == (3, 24, (9, 140))
        assert [each.entry(number) for number in range(3)] == ENTRIES
        found = [each.floor(key) for key in range(11)]
        expected = [None] * 3 + [ENTRIES[0]] * 2 + [ENTRIES[1]] * 4 + [ENTRIES[2]] * 2
        assert found == expected
        firsts = [each.first_at_or_behind(position) for position in (0, 1, 70, 71, 140, 141)]
        assert firsts == [3, 5, 5, 9, 9, None]


def test_a_closed_index_is_not_changed() -> None:
    index = filled(ENTRIES)
    index.save()
    index.attach()
    for change in (
        lambda: index.append(10, 200),
        lambda: index.replace_last(200),
        index.copy,
        index.save,
    ):
        with pytest.raises(ValueError, match=r"^i\.index is sealed$"):
            change()


def test_a_copy_is_of_that_moment() -> None:
    index = filled(ENTRIES)
    copied = index.copy()
    index.append(10, 200)
    index.replace_last(210)
    assert index.last() == (10, 210)
    assert [list(each) for each in copied] == [[3, 5, 9], [0, 70, 140]]
    index.restore(copied)
    assert index.last() == (9, 140)


def test_a_file_that_is_removed_or_closed() -> None:
    files = MemFiles()
    index = filled(ENTRIES, files)
    index.save()
    index.attach()
    assert index.floor(5) == (5, 70)
    index.close()
    files.put(PATH, b"changed meanwhile")
    with pytest.raises(IndexDamagedError, match="an impossible size, 17 bytes"):
        index.last()
    index.remove()
    assert not files.exists(PATH)
    with pytest.raises(IndexDamagedError, match="is missing"):
        index.last()


@pytest.mark.parametrize("count", [511, 512, 513, 1024, 1025])
def test_the_edges_of_blocks(count: int) -> None:
    """A file is searched by blocks of 512 entries."""
    files = MemFiles()
    filled([(2 * number, number) for number in range(count)], files).save()
    sealed = OffsetIndex(files, PATH)
    sealed.attach()
    for key in {0, 1, 1021, 1022, 1023, 1024, 1025, 2047, 2048, 2049, 2 * count - 2, 2 * count}:
        number = min(key // 2, count - 1)
        assert sealed.floor(key) == (2 * number, number)
        assert sealed.floor(-1) is None


def test_a_file_that_is_cut_while_it_is_used() -> None:
    files = MemFiles()
    filled([(number, number) for number in range(600)], files).save()
    sealed = OffsetIndex(files, PATH)
    sealed.attach()
    assert sealed.floor(7) == (7, 7)
    files.open(PATH).truncate(512 * 8)
    files.open(PATH).write(bytes(512 * 8), 0)
    assert sealed.floor(8) == (8, 8), "the block has been read"
    with pytest.raises(IndexDamagedError, match="has been cut short"):
        sealed.floor(590)


@pytest.mark.parametrize("count", [1, 512])
def test_the_largest_offsets_are_not_looked_for_in_what_ends_the_file(count: int) -> None:
    """In the first block, and in a later one."""
    files, largest = MemFiles(), 2**31 - 1
    filled([*((number, 0) for number in range(count)), (largest - 1, 5)], files).save()
    sealed = OffsetIndex(files, PATH)
    sealed.attach()
    assert sealed.floor(largest) == (largest - 1, 5)


@pytest.mark.parametrize("size", [0, 1, 4, 11])
def test_a_file_that_is_shorter_than_its_end(size: int) -> None:
    files = MemFiles()
    filled([], files).save()
    files.open(PATH).truncate(size)
    with pytest.raises(IndexDamagedError, match=f"an impossible size, {size} bytes"):
        OffsetIndex(files, PATH).load()


def test_an_index_that_is_made_again_is_searched_as_it_is_now() -> None:
    """Of the old one, a block has been read, and the file is open."""
    index = filled(ENTRIES)
    index.save()
    index.attach()
    assert index.floor(6) == (5, 70)
    index.clear()
    index.append(6, 80)
    index.save()
    index.attach()
    assert (index.floor(6), index.last(), index.floor(5)) == ((6, 80), (6, 80), None)


def test_a_file_that_is_brought_into_memory_is_checked_again() -> None:
    files = MemFiles()
    filled(ENTRIES, files).save()
    index = OffsetIndex(files, PATH)
    index.attach()
    assert index.last() == (9, 140)
    files.put(PATH, b"changed meanwhile")
    with pytest.raises(IndexDamagedError):
        index.load()


def test_an_index_in_memory_or_removed_holds_no_file_open(tmp_path: Path) -> None:
    files = OsFiles()
    index = OffsetIndex(files, tmp_path / "i.index")
    index.append(1, 2)
    index.save()
    for end in (index.load, index.clear, lambda: index.restore((array("I"), array("I")))):
        index.attach()
        assert (index.last(), files.open_files) == ((1, 2), 1)
        end()
        assert files.open_files == 0
    index.attach()
    assert index.last() == (1, 2)
    index.remove()
    assert files.open_files == 0


@pytest.mark.parametrize(("magic", "count"), [(b"PIDX", 2), (b"PIDX", 0), (b"XIDP", 1)])
def test_a_count_that_is_not_that_of_the_entries_or_another_format(
    magic: bytes, count: int
) -> None:
    files = MemFiles()
    body = struct.pack(">2I4sI", 7, 8, magic, count)
    files.put(PATH, body + struct.pack(">I", crc32c(body)))
    with pytest.raises(IndexDamagedError, match="does not match its checksum"):
        IndexFile(files, PATH, "I").load()


def test_indexes_find_the_floor_in_memory_and_in_the_file(seed: int) -> None:
    random = Random(seed)
    files = MemFiles()
    keys = sorted(random.sample(range(100_000), 3000))
    index = OffsetIndex(files, Path("/d/i.index"))
    for number, key in enumerate(keys):
        index.append(key, number)
    sealed = OffsetIndex(files, Path("/d/i.index"))
    index.save()
    sealed.attach()
    assert len(sealed) == len(index) == 3000
    for _ in range(2000):
        wanted = random.randrange(-5, 100_010)
        below = [key for key in (keys[0], keys[-1]) if key <= wanted]
        expected = index.floor(wanted)
        assert sealed.floor(wanted) == expected
        assert (expected is None) == (not below)
        if expected is not None:
            assert expected[0] <= wanted
            following = expected[1] + 1
            assert following == len(keys) or keys[following] > wanted


def test_an_index_file_that_was_changed_is_not_used(seed: int) -> None:
    random = Random(seed)
    files = MemFiles()
    path = Path("/d/i.timeindex")
    index = TimeIndex(files, path)
    for number in range(20):
        index.add(100 + number, number)
    index.save()
    good = files.get(path)
    for _ in range(100):
        damaged = bytearray(good)
        damaged[random.randrange(len(good))] ^= 1 << random.randrange(8)
        files.put(path, bytes(damaged))
        index.attach()
        with pytest.raises(IndexDamagedError):
            index.floor(110)


def test_time_index_keeps_the_running_maximum() -> None:
    index = TimeIndex(MemFiles(), Path("/d/i.timeindex"))
    for maximum, offset in ((100, 1), (100, 2), (300, 3), (300, 4)):
        index.add(maximum, offset)
    assert [index.entry(n) for n in range(len(index))] == [(100, 2), (300, 4)]
    assert [index.first_possible(time) for time in (50, 100, 101, 300, 301)] == [0, 0, 2, 2, 4]
