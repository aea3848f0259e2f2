"""What is known of the tables beside offsets: content, unreadable files, what the log lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.kafka.model import AbortedTransaction, BatchSpan, legal_holes
from penstock_platform.lake.model.coverage import Coverage
from penstock_platform.lake.model.rows import Rows, altered_rows
from penstock_platform.ranges import OffsetRange, merge, ranges_of
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.reconciliation.model.equations import (
    LogView,
    TableView,
    parsed_plus_quarantined_equals_landed,
    retained_away,
    stored_equals_landed,
)
from penstock_platform.testing.windows import make_window

S = WindowState
WINDOW = make_window({0: (0, 20)})
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 2)), max_size=12)


def rows(*found):
    """(partition, offset, digest) each, as arrays."""
    partition, offset, digest = zip(*found, strict=True) if found else ((), (), ())
    return Rows(
        np.array(partition, np.int32), np.array(offset, np.int64), np.array(digest, np.uint64)
    )


def without(*offsets):
    return at({0: [o for o in range(20) if o not in offsets]})


def at(offsets):
    """Rows at these offsets by partition."""
    return Coverage.of({p: np.array(found, dtype=np.int64) for p, found in offsets.items()})


def said(result):
    return [(f.kind, [(r.start, r.end) for r in f.ranges], f.detail) for f in result.findings]


def span(start, end):
    return OffsetRange(0, start, end)


# --- content


@given(st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 6)), st.integers(0, 2)), ROWS)
def test_altered_are_the_offsets_of_both_whose_rows_differ(reference, found):
    changed = altered_rows(rows(*found), rows(*((p, o, d) for (p, o), d in reference.items())))
    differ = {(p, o) for p, o, d in found if reference.get((p, o), d) != d}
    assert changed == merge(r for p, o in differ for r in ranges_of(p, [o]))


def test_a_reference_without_rows_of_one_partition_still_serves_the_next():
    changed = altered_rows(rows((0, 1, 5), (1, 1, 5)), rows((1, 1, 6)))
    assert changed == (OffsetRange(1, 1, 2),)


def test_an_altered_copy_beside_the_good_row_is_found():
    assert altered_rows(rows((0, 4, 1), (0, 4, 9)), rows((0, 4, 1))) == (span(4, 5),)


def test_rows_are_joined():
    joined = Rows.joined([rows((1, 7, 0), (0, 3, 1)), rows(), rows((1, 2, 5), (1, 7, 6))])
    assert list(zip(joined.partition, joined.offset, joined.digest, strict=True)) == [
        (1, 7, 0),
        (0, 3, 1),
        (1, 2, 5),
        (1, 7, 6),
    ]
    for empty in (Rows.joined([]), Rows.none()):
        assert (empty.partition.size, empty.offset.size, empty.digest.size) == (0, 0, 0)
        assert empty.digest.dtype == np.uint64


def test_altered_rows_make_a_window_corrupt_though_every_offset_is_there():
    table = TableView(altered=[span(3, 5)], why="the digests differ")
    result = stored_equals_landed(WINDOW, without(), table=table)
    assert result.state is S.CORRUPT
    assert said(result) == [("altered", [(3, 5)], "the digests differ")]
    assert (result.found, result.detail["rows"]) == (20, 20)


# --- what cannot be read


def test_what_may_be_in_an_unreadable_file_is_named_with_the_file_and_not_as_missing():
    table = TableView(unreadable={"b.parquet": [span(4, 9)], "a.parquet": [span(2, 6)]})
    result = stored_equals_landed(WINDOW, without(3, 5, 8, 12), table=table)
    assert said(result) == [
        ("missing", [(12, 13)], ""),
        ("unreadable", [(3, 4), (5, 6)], "a.parquet"),
        ("unreadable", [(8, 9)], "b.parquet"),
    ]
    assert result.state is S.MISSING


def test_an_altered_row_does_not_excuse_a_missing_one():
    table = TableView(altered=[span(3, 5)])
    result = stored_equals_landed(WINDOW, without(3), table=table)
    assert said(result) == [("missing", [(3, 4)], ""), ("altered", [(3, 5)], "")]
    assert result.state is S.MIXED


def test_what_could_not_be_judged_keeps_the_window_pending():
    table = TableView(unjudged=["the receipt has no digest", "the store is down"])
    result = stored_equals_landed(WINDOW, without(), table=table)
    assert result.state is S.PENDING
    assert said(result) == [
        ("unjudged", [], "the receipt has no digest"),
        ("unjudged", [], "the store is down"),
    ]


# --- what the log no longer has


def test_a_row_that_was_proven_once_has_vanished_and_was_not_deleted_before_its_landing():
    log = LogView(log_starts={0: 10})
    result = stored_equals_landed(WINDOW, without(2, 5, 15), log, TableView(proven=[span(0, 4)]))
    kinds = {kind: ranges for kind, ranges, _ in said(result)}
    assert kinds == {"vanished": [(2, 3)], "retained_away": [(5, 6)], "missing": [(15, 16)]}
    details = {kind: detail for kind, _, detail in said(result)}
    assert "proven once" in details["vanished"]
    assert "before they were landed" in details["retained_away"]


def test_what_the_log_lost_when_it_was_cut_is_named_so():
    log = LogView(log_starts={0: 3}, cut=[span(12, 20)])
    result = stored_equals_landed(
        WINDOW, without(1, 14, 15, 17), log, TableView(proven=[span(14, 15)])
    )
    assert {kind: ranges for kind, ranges, _ in said(result)} == {
        "retained_away": [(1, 2)],
        "vanished": [(14, 15)],
        "log_truncated": [(15, 16), (17, 18)],
    }
    assert result.state is S.MISSING


@pytest.mark.parametrize("start,lost", [({}, ()), ({0: 0}, ()), ({0: 1}, (span(0, 1),))])
def test_the_log_has_lost_what_is_below_its_start(start, lost):
    assert retained_away(WINDOW, start) == lost
    result = stored_equals_landed(WINDOW, without(0), LogView(log_starts=start))
    [finding] = result.findings
    assert finding.kind == ("retained_away" if lost else "missing")


def test_a_log_that_ends_where_the_window_starts_was_not_cut():
    window = make_window({0: (10, 10)}, high_watermarks={0: 10})
    assert stored_equals_landed(window, Coverage.none()).balanced


def test_a_partition_that_is_no_part_of_the_window_is_outside_in_order():
    found = at({0: range(20), **{p: [4, 5] for p in (17, 9, 8, 1)}})
    [outside] = stored_equals_landed(WINDOW, found).findings
    assert outside.ranges == tuple(OffsetRange(p, 4, 6) for p in (1, 8, 9, 17))


def test_a_producer_outside_its_transaction_has_no_hole():
    """It aborted a transaction, and writes the next records without one."""
    batches = [
        BatchSpan(0, 4, control=False, transactional=True, producer_id=7),
        BatchSpan(5, 9, control=False, transactional=False, producer_id=7),
    ]
    assert legal_holes(0, batches, [AbortedTransaction(7, 0)]) == (OffsetRange(0, 0, 5),)


# --- silver and quarantine


def test_equation_3_counts_what_was_landed():
    result = parsed_plus_quarantined_equals_landed(
        at({0: [1, 2, 3], 1: [7, 7]}), at({0: [1, 2]}), at({1: [7]})
    )
    assert (result.expected, result.found) == (4, 3)


def test_equation_3_distinguishes_a_row_parsed_twice_from_one_also_quarantined():
    result = parsed_plus_quarantined_equals_landed(
        at({0: range(6)}), at({0: [0, 1, 1, 2, 3, 4]}), at({0: [3, 5, 5]})
    )
    assert said(result) == [
        ("duplicate", [(1, 2), (5, 6)], "parsed or quarantined more than once"),
        ("duplicate", [(3, 4)], "parsed and quarantined as well"),
    ]


def test_equation_3_names_unreadable_files_altered_rows_and_what_is_left_unjudged():
    table = TableView(
        unreadable={"f.parquet": [span(1, 3)]},
        altered=[span(0, 1), span(4, 5)],
        why="moved",
        unjudged=["no digest"],
    )
    result = parsed_plus_quarantined_equals_landed(
        at({0: range(6)}), at({0: [0, 3]}), at({0: [5]}), table
    )
    assert said(result) == [
        ("unreadable", [(1, 3)], "f.parquet"),
        ("altered", [(0, 1), (4, 5)], "moved"),
        ("unjudged", [], "no digest"),
        ("missing", [(4, 5)], "landed, and neither parsed nor quarantined"),
    ]
    assert result.state is S.MIXED
    assert result.found == 3
