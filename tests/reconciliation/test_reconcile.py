"""Equations 1 and 3 against brute force: whatever is removed or doubled is named, exactly."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.kafka.model import AbortedTransaction, BatchSpan, legal_holes
from penstock_platform.lake.model.coverage import Coverage
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.reconciliation.model.equations import (
    LogView,
    parsed_plus_quarantined_equals_landed,
    retained_away,
    stored_equals_landed,
)
from penstock_platform.testing.windows import make_window

WINDOW = make_window({0: (10, 30), 1: (5, 5), 2: (0, 12)})
STORED = [(p, o) for p, (s, e) in {0: (10, 30), 2: (0, 12)}.items() for o in range(s, e)]
coordinates = st.tuples(st.integers(0, 3), st.integers(0, 40))


def arrays(rows, shuffle=0):
    """Rows (partition, offset) as a table scan gives them: per partition, in any order."""
    found = {}
    for partition, offset in rows:
        found.setdefault(partition, []).append(offset)
    rng = np.random.default_rng(shuffle)
    return Coverage.of({p: rng.permutation(np.array(o, dtype=np.int64)) for p, o in found.items()})


def named(result, *kinds):
    return {
        (r.partition, o)
        for finding in result.findings
        if finding.kind in kinds
        for r in finding.ranges
        for o in range(r.start, r.end)
    }


@given(
    st.sets(st.sampled_from(STORED)),
    st.lists(st.sampled_from(STORED), max_size=5),
    st.lists(coordinates, max_size=4),
    st.integers(0, 99),
)
def test_equation_1_names_every_difference(removed, doubled, added, seed):
    rows = [row for row in STORED if row not in removed] + doubled + added
    result = stored_equals_landed(WINDOW, arrays(rows, seed))
    times = Counter(rows)
    missing = {row for row in STORED if not times[row]}
    twice = {row for row in STORED if times[row] > 1}
    outside = set(rows) - set(STORED)
    assert named(result, "missing") == missing
    assert named(result, "duplicate") == twice
    assert named(result, "outside") == outside
    assert (result.expected, result.found) == (len(STORED), len(STORED) - len(missing))
    wrong = bool(missing), bool(twice or outside)
    assert (
        result.state
        is {
            (False, False): WindowState.BALANCED,
            (True, False): WindowState.MISSING,
            (False, True): WindowState.DUPLICATE,
            (True, True): WindowState.MIXED,
        }[wrong]
    )


def test_as_many_lost_as_duplicated_is_mixed_although_the_count_is_right():
    rows = [row for row in STORED if row not in ((0, 11), (2, 3))] + [(0, 12), (2, 4)]
    result = stored_equals_landed(WINDOW, arrays(rows))
    assert len(rows) == len(STORED)
    assert result.state is WindowState.MIXED
    assert named(result, "missing") == {(0, 11), (2, 3)}
    assert named(result, "duplicate") == {(0, 12), (2, 4)}


def test_an_empty_window_balances_with_an_empty_table():
    empty = make_window({0: (7, 7), 1: (0, 0)})
    assert stored_equals_landed(empty, Coverage.none()).balanced
    assert stored_equals_landed(empty, arrays([(0, 7)])).state is WindowState.DUPLICATE


def test_what_the_log_deleted_is_distinguished_from_what_a_rerun_can_repair():
    log = LogView(log_starts={0: 15, 2: 0})
    rows = [row for row in STORED if row not in ((0, 12), (0, 14), (0, 20))]
    result = stored_equals_landed(WINDOW, arrays(rows), log)
    assert named(result, "retained_away") == {(0, 12), (0, 14)}
    assert named(result, "missing") == {(0, 20)}
    assert result.state is WindowState.MISSING
    assert stored_equals_landed(WINDOW, arrays(STORED), log).balanced
    assert retained_away(WINDOW, log.log_starts) == (OffsetRange(0, 10, 15),)


def test_legal_holes_are_no_loss_and_others_on_a_compacted_topic_prove_nothing():
    rows = [row for row in STORED if row not in ((0, 12), (0, 13), (0, 20))]
    log = LogView(legal_holes=(OffsetRange(0, 12, 14),))
    result = stored_equals_landed(WINDOW, arrays(rows), log)
    assert named(result, "missing") == {(0, 20)}
    assert (result.expected, result.detail["legal_holes"]) == (len(STORED) - 2, 2)
    compacted = stored_equals_landed(WINDOW, arrays(rows), LogView(compacted=True))
    assert compacted.state is WindowState.UNPROVEN
    assert named(compacted, "hole") == {(0, 12), (0, 13), (0, 20)}
    both = stored_equals_landed(WINDOW, arrays([*rows, (0, 15)]), LogView(compacted=True))
    assert both.state is WindowState.DUPLICATE


def test_a_log_that_has_become_shorter_is_missing_even_where_the_lake_is_whole():
    window = make_window({0: (10, 10)}, high_watermarks={0: 8})
    result = stored_equals_landed(window, Coverage.none())
    assert result.state is WindowState.MISSING
    assert named(result, "log_truncated") == {(0, 8), (0, 9)}


def test_legal_holes_are_kept_with_the_result_for_when_the_log_is_gone():
    without = arrays([row for row in STORED if row not in {(0, 12), (0, 13)}])
    legal = (OffsetRange(0, 12, 14), OffsetRange(0, 90, 95))
    result = stored_equals_landed(WINDOW, without, LogView(legal_holes=legal))
    assert result.legal == (OffsetRange(0, 12, 14),), "those of this window"
    later = LogView(legal_holes=result.legal, log_starts={0: 30})
    assert stored_equals_landed(WINDOW, without, later).state is WindowState.BALANCED


def test_a_log_that_does_not_answer_leaves_a_hole_unjudged():
    """It may be a marker or a lost record: that is for the log to say."""
    without = arrays([row for row in STORED if row not in {(0, 12), (2, 3)}])
    log = LogView(legal_holes=(OffsetRange(2, 3, 4),), unanswered="no broker answers")
    result = stored_equals_landed(WINDOW, without, log)
    assert result.state is WindowState.PENDING
    [finding] = result.findings
    assert (finding.kind, finding.ranges) == ("unjudged", (OffsetRange(0, 12, 13),))
    assert "no broker answers" in finding.detail
    doubled = arrays([row for row in STORED if row != (0, 12)] + [(0, 20)])
    assert stored_equals_landed(WINDOW, doubled, log).state is WindowState.DUPLICATE


@pytest.mark.parametrize("first", [10, 11])
def test_an_aborted_transaction_of_a_single_record_is_a_hole(first):
    """Its first offset is the last of its batch (a batch of one, or the last record of one)."""
    batches = [
        BatchSpan(10, first, control=False, transactional=True, producer_id=7),
        BatchSpan(first + 1, first + 1, control=True, transactional=True, producer_id=7),
        BatchSpan(first + 2, first + 2, control=False, transactional=True, producer_id=7),
    ]
    aborted = [AbortedTransaction(7, first)]
    assert legal_holes(0, batches, aborted) == (OffsetRange(0, 10, first + 2),)


def test_markers_and_aborted_transactions_are_the_legal_holes():
    batches = [
        BatchSpan(0, 9, control=False, transactional=False, producer_id=-1),
        BatchSpan(10, 14, control=False, transactional=True, producer_id=7),  # aborted
        BatchSpan(15, 17, control=False, transactional=True, producer_id=8),  # committed
        BatchSpan(18, 18, control=True, transactional=True, producer_id=7),
        BatchSpan(19, 19, control=True, transactional=True, producer_id=8),
        BatchSpan(20, 22, control=False, transactional=True, producer_id=7),  # committed
        BatchSpan(23, 23, control=True, transactional=True, producer_id=7),
        BatchSpan(24, 25, control=False, transactional=True, producer_id=7),  # aborted
        BatchSpan(26, 26, control=True, transactional=True, producer_id=7),
    ]
    aborted = [AbortedTransaction(7, 24), AbortedTransaction(7, 10)]
    assert legal_holes(3, batches, aborted) == (
        OffsetRange(3, 10, 15),
        OffsetRange(3, 18, 20),
        OffsetRange(3, 23, 27),
    )


@given(
    st.lists(st.sampled_from(STORED), unique=True),
    st.lists(st.sampled_from(STORED), max_size=4),
    st.lists(st.sampled_from(STORED), max_size=4),
    st.lists(coordinates, max_size=3),
)
def test_equation_3_is_an_anti_join_both_ways(bad, left_out, doubled, strangers):
    parsed = [r for r in STORED if r not in bad and r not in left_out] + strangers
    quarantined = [r for r in bad if r not in left_out] + doubled
    result = parsed_plus_quarantined_equals_landed(
        arrays(STORED), arrays(parsed), arrays(quarantined)
    )
    times = Counter(parsed + quarantined)
    missing = {row for row in STORED if not times[row]}
    outside = set(times) - set(STORED)
    twice = {row for row, n in times.items() if n > 1}
    assert named(result, "missing") == missing
    assert named(result, "outside") == outside
    assert named(result, "duplicate") == twice
    assert result.balanced == (not missing and not outside and not twice)
    assert result.expected - result.found == len(missing)
    assert result.detail == {"parsed": len(parsed), "quarantined": len(quarantined)}


def test_equal_counts_do_not_balance_equation_3():
    result = parsed_plus_quarantined_equals_landed(
        arrays([(0, 1), (0, 2), (0, 3)]), arrays([(0, 1), (0, 2)]), arrays([(0, 4)])
    )
    assert result.state is WindowState.MIXED
    assert (named(result, "missing"), named(result, "outside")) == ({(0, 3)}, {(0, 4)})


@pytest.mark.parametrize("landed", [[1, 1, 2], [1, 2]])
def test_a_row_landed_twice_is_equation_1s_affair(landed):
    rows, parsed = (arrays([(0, offset) for offset in tier]) for tier in (landed, [1, 2]))
    assert parsed_plus_quarantined_equals_landed(rows, parsed, Coverage.none()).balanced
