"""Which offsets rows have, as spans: against a plain count of every offset."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.lake.model.coverage import Coverage
from penstock_platform.ranges import OffsetRange

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=40)


def covered(rows):
    partition, offset = zip(*rows, strict=True) if rows else ((), ())
    return Coverage.of_rows(np.array(partition, np.int32), np.array(offset, np.int64))


def offsets(spans_by_partition):
    return {
        (p, offset)
        for p, spans in spans_by_partition.items()
        for start, end in spans.pairs()
        for offset in range(start, end)
    }


def assert_is(found, rows):
    times = Counter(rows)
    assert offsets(found.once) == set(times)
    assert offsets(found.again) == {place for place, count in times.items() if count > 1}
    assert found.rows == len(rows)
    assert found.partitions == {p for p, _ in rows}
    assert {(r.partition, o) for r in found.ranges() for o in range(r.start, r.end)} == set(times)


@given(ROWS)
def test_every_offset_is_named_once_and_repeated_ones_apart(rows):
    assert_is(covered(rows), rows)


@given(st.lists(ROWS, max_size=4))
def test_parts_that_are_joined_are_as_their_rows_together(parts):
    assert_is(Coverage.joined(map(covered, parts)), [row for part in parts for row in part])


def test_a_partition_that_is_not_there_covers_nothing():
    found = covered([(1, 5), (1, 5), (1, 6)])
    assert not found.there(0)
    assert not found.repeated(0)
    assert found.there(1).pairs() == [(5, 7)]
    assert found.repeated(1).pairs() == [(5, 6)]
    assert found.ranges() == (OffsetRange(1, 5, 7),)
    assert Coverage.none().ranges() == ()


def test_millions_of_rows_are_a_few_spans():
    values = np.arange(1_000_000, 4_000_000)
    np.random.default_rng(7).shuffle(values)
    found = Coverage.of({0: values[values != 2_000_000]})
    assert found.there(0).pairs() == [(1_000_000, 2_000_000), (2_000_001, 4_000_000)]
    assert not found.again
