"""Range algebra against plain sets of offsets, which cannot be wrong."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.ranges import (
    OffsetRange,
    Spans,
    by_partition,
    count,
    covers,
    describe,
    gaps,
    intersect,
    merge,
    ranges_of,
    subtract,
)

offset_ranges = st.lists(
    st.builds(
        lambda p, s, n: OffsetRange(p, s, s + n),
        st.integers(0, 2),
        st.integers(0, 30),
        st.integers(0, 8),
    ),
    max_size=8,
)


def offsets_in(ranges):
    return {(r.partition, offset) for r in ranges for offset in range(r.start, r.end)}


def is_canonical(ranges):
    neighbours = pairwise(ranges)
    return all(ranges) and all(
        (a.partition, a.end) < (b.partition, b.start) if a.partition == b.partition else a < b
        for a, b in neighbours
    )


@given(offset_ranges, offset_ranges)
def test_the_algebra_is_that_of_sets(a, b):
    for found, wanted in (
        (merge(a), offsets_in(a)),
        (intersect(a, b), offsets_in(a) & offsets_in(b)),
        (subtract(a, b), offsets_in(a) - offsets_in(b)),
    ):
        assert offsets_in(found) == wanted
        assert is_canonical(found)
    assert covers(a, b) == (offsets_in(b) <= offsets_in(a))
    assert count(a) == len(offsets_in(a))
    assert {r for found in by_partition(a).values() for r in found} == set(merge(a))


@given(st.lists(st.integers(0, 50)))
def test_ranges_of_names_each_offset_once(offsets):
    found = ranges_of(3, offsets)
    assert offsets_in(found) == {(3, offset) for offset in offsets}
    assert is_canonical(found)


@given(st.sets(st.integers(5, 40)))
def test_gaps_are_what_sorted_offsets_leave_out(offsets):
    found = gaps(OffsetRange(0, 5, 41), np.array(sorted(offsets), dtype=np.int64))
    assert offsets_in(found) == {(0, o) for o in set(range(5, 41)) - offsets}


@pytest.mark.parametrize("partition,start,end", [(-1, 0, 1), (0, -1, 1), (0, 2, 1)])
def test_what_is_no_range_is_refused(partition, start, end):
    with pytest.raises(ValueError, match="not an offset range"):
        OffsetRange(partition, start, end)


def test_ranges_are_described_in_words():
    ranges = [OffsetRange(3, 118204, 118241), OffsetRange(3, 5, 6), OffsetRange(4, 0, 2)]
    assert describe(ranges[:1]) == "partition 3 offsets 118204-118240"
    assert describe(ranges, most=1) == "partition 3 offset 5 and 2 more ranges"
    assert describe([]) == "none"
    assert str(OffsetRange(0, 7, 7)) == "partition 0 no offsets (at 7)"


@pytest.mark.parametrize(
    "count,most,end",
    [
        (1, 1, "offset 0"),
        (2, 1, "offset 0 and 1 more ranges"),
        (3, 1, "offset 0 and 2 more ranges"),
    ],
)
def test_ranges_that_are_left_out_are_counted(count, most, end):
    assert describe([OffsetRange(0, 2 * n, 2 * n + 1) for n in range(count)], most).endswith(end)


def test_five_ranges_are_shown():
    text = describe([OffsetRange(0, 2 * n, 2 * n + 1) for n in range(6)])
    assert text.count("partition") == 5
    assert text.endswith("offset 8 and 1 more ranges")


def test_a_range_holds_its_start_and_not_its_end() -> None:
    held = OffsetRange(0, 3, 6)
    assert [offset for offset in range(9) if offset in held] == [3, 4, 5]


# --- spans

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def held(spans):
    return {n for start, end in spans for n in range(start, end)}


def assert_tidy(spans):
    """Sorted, none empty, and none touches the next."""
    edges = [edge for pair in spans.pairs() for edge in pair]
    assert edges == sorted(set(edges))


@given(SPANS, SPANS)
def test_spans_are_sets_of_integers(one, other):
    a, b = Spans.of(one), Spans.of(other)
    for found, wanted in (
        (a, held(one)),
        (a.minus(b), held(one) - held(other)),
        (a.both(b), held(one) & held(other)),
        (a.clipped(7, 19), held(one) & set(range(7, 19))),
        (Spans.of_values(np.array(sorted(held(one)) * 2, dtype=np.int64)), held(one)),
    ):
        assert_tidy(found)
        assert held(found.pairs()) == wanted
        assert found.count == len(wanted)
        assert bool(found) == bool(wanted)
        assert offsets_in(found.ranges(4)) == {(4, n) for n in wanted}
        assert list(found.hold(np.arange(32))) == [n in wanted for n in range(32)]


@given(st.lists(SPANS, max_size=5), st.integers(1, 4))
def test_at_depth_are_the_integers_that_so_many_hold(parts, depth):
    found = Spans.at_depth([Spans.of(part) for part in parts], depth)
    times = Counter(n for part in parts for n in held(part))
    assert_tidy(found)
    assert held(found.pairs()) == {n for n, count in times.items() if count >= depth}
