"""Which windows hold an offset: a search that reads few objects, exact in chains that were cut."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.windows import make_window
from penstock_platform.windows.model.window import Truncation, Window
from penstock_platform.windows.store import WindowStore

YEAR = 8760
READS_MAX = 60


class CountingArchive(MemoryArchive):
    """Counts the objects that are asked for."""

    asked = 0

    def get(self, key: str) -> bytes | None:
        self.asked += 1
        return super().get(key)


def make_chain(archive: MemoryArchive, length: int, step: int = 10) -> list[Window]:
    """Hourly windows of ``step`` offsets in partition 0, of none in partition 1."""
    store = WindowStore(archive)
    windows: list[Window] = []
    for n in range(length):
        windows.append(
            make_window(
                {0: (n * step, n * step + step), 1: (7, 7)},
                previous=windows[-1] if windows else None,
                length=timedelta(hours=1),
            )
        )
        assert store.publish(windows[-1])
    return windows


@pytest.fixture(scope="module")
def year() -> CountingArchive:
    archive = CountingArchive()
    make_chain(archive, YEAR)
    return archive


REF = make_window({}).ref


@pytest.mark.parametrize("offset", [0, 9, 10, 43_805, 87_599, 87_600, 10**12])
def test_a_year_of_hourly_windows_is_never_read_as_a_whole(
    year: CountingArchive, offset: int
) -> None:
    store = WindowStore(year)  # a new process: nothing is in its memory
    year.asked = 0
    found = [w.sequence for w in store.holding(REF, 0, offset)]
    assert found == ([offset // 10] if offset < 10 * YEAR else [])
    assert year.asked <= READS_MAX


def test_a_partition_without_records_or_unknown_is_in_no_window(year: CountingArchive) -> None:
    store = WindowStore(year)
    assert [store.holding(REF, p, o) for p, o in ((1, 6), (1, 7), (1, 8), (2, 0))] == [[]] * 4


def test_a_chain_that_is_not_there_holds_nothing() -> None:
    assert WindowStore(MemoryArchive()).holding(REF, 0, 0) == []


def following(previous: Window | None, ranges: Mapping[int, tuple[int, int]]) -> Window:
    """The next window; a partition that begins below the end of the one before was cut."""
    window = make_window(ranges, previous=previous)
    ends = {p.p: p.end for p in previous.partitions} if previous else {}
    partitions = tuple(
        replace(p, truncated=Truncation(0, p.start, ends[p.p])) if p.start < ends.get(p.p, 0) else p
        for p in window.partitions
    )
    cut = any(p.truncated for p in partitions)
    before = previous.last_truncation if previous else None
    return replace(
        window, partitions=partitions, last_truncation=window.sequence if cut else before
    )


def test_random_chains_that_were_cut_and_grew_partitions_agree_with_a_look_at_every_window() -> (
    None
):
    rng = random.Random(11)
    for _ in range(60):
        store = WindowStore(MemoryArchive())
        chain: list[Window] = []
        ends = {0: rng.randrange(20)}  # the chain of an adopted topic begins anywhere
        for _ in range(rng.randrange(1, 30)):
            if rng.random() < 0.1:
                ends[len(ends)] = 0
            starts = {
                p: rng.randrange(end + 1) if chain and rng.random() < 0.15 else end
                for p, end in ends.items()
            }
            ends = {p: start + rng.choice((0, 0, 1, 5, 30)) for p, start in starts.items()}
            ranges = {p: (starts[p], ends[p]) for p in starts}
            chain.append(following(chain[-1] if chain else None, ranges))
            assert store.publish(chain[-1])
        for partition in range(len(ends) + 1):
            for offset in range(max(w.partitions[0].end for w in chain) + 5):
                expected = [
                    w.sequence
                    for w in chain
                    for r in w.ranges
                    if r.partition == partition and offset in r
                ]
                found = [w.sequence for w in store.holding(REF, partition, offset)]
                assert found == expected, (partition, offset)
