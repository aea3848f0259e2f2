"""What a topic that is gone took with it: exact offsets, and the sentence that says so."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.reconciliation.model.recreation import LostTopic, lost_topic
from penstock_platform.testing.windows import make_window

FIRST = make_window({0: (0, 1000), 1: (0, 20)})
SECOND = make_window({0: (1000, 1500), 1: (20, 20)}, previous=FIRST)


def book(window, *findings, equation=Equation.STORED_EQUALS_LANDED):
    result = EquationResult(equation, WindowState.MISSING, 1, 1, findings)
    return Book.of(window, [result], made_at="2026-11-20T00:09:00Z", code_version="t")


def found(kind, *ranges):
    return Finding(kind, tuple(OffsetRange(*r) for r in ranges))


def producer(**claims):
    """p0=[(5, 9)]: claims on partition 0."""
    spans = {
        int(name[1:]): SimpleNamespace(start=[s for s, _ in rows], end=[e for _, e in rows])
        for name, rows in claims.items()
    }
    return SimpleNamespace(claims=spans)


def test_of_no_window_nothing_is_known():
    assert lost_topic([], {}) is None


def test_what_is_landed_is_safe_and_a_window_without_a_judgement_is_not():
    whole = lost_topic([(FIRST, book(FIRST)), (SECOND, book(SECOND))], {})
    assert whole == LostTopic("orders", FIRST.topic_id, SECOND.name, 1520)
    assert (whole.lost, whole.unlanded, whole.unfrozen) == (0, (), ())
    unjudged = book(SECOND, equation=Equation.PRODUCED_EQUALS_STORED)
    for unknown in (None, unjudged):
        half = lost_topic([(FIRST, book(FIRST)), (SECOND, unknown)], {})
        assert half.unlanded == (OffsetRange(0, 1000, 1500),)
        assert (half.safe, half.lost) == (1020, 500)


@pytest.mark.parametrize(
    "kind,lost",
    [
        *((k, True) for k in ("missing", "retained_away", "log_truncated")),
        *((k, True) for k in ("vanished", "unreadable")),
        *((k, False) for k in ("duplicate", "outside", "altered", "unjudged", "hole")),
    ],
)
def test_what_the_table_lacks_is_lost(kind, lost):
    made = lost_topic([(FIRST, book(FIRST, found(kind, (0, 5, 8), (0, 7, 9))))], {})
    assert made.unlanded == ((OffsetRange(0, 5, 9),) if lost else ())
    assert made.safe == (1016 if lost else 1020)


def test_what_producers_claim_beyond_the_chain_is_lost_once():
    producers = {
        7: producer(p0=[(0, 20), (1490, 1510)], p1=[(19, 20)]),
        8: producer(p0=[(1505, 1520)], p2=[(0, 2)]),
    }
    made = lost_topic([(FIRST, book(FIRST)), (SECOND, book(SECOND))], producers)
    assert made.unfrozen == (OffsetRange(0, 1500, 1520), OffsetRange(2, 0, 2))
    assert (made.lost, made.safe) == (22, 1520)


def test_it_is_said_in_one_sentence():
    lost = LostTopic(
        "orders", "id", "00:01", 1234, (OffsetRange(0, 5, 1205),), (OffsetRange(1, 7, 8),)
    )
    assert str(lost) == (
        "1,201 records are lost with it: 1,200 frozen and not landed (partition 0 offsets "
        "5-1204), 1 acknowledged and in no window (partition 1 offset 7); 1,234 records until "
        "window 00:01 are safe in bronze"
    )
    assert str(LostTopic("orders", "id", "00:01", 9)) == (
        "no record is known to be lost with it; 9 records until window 00:01 are safe in bronze"
    )
    many = tuple(OffsetRange(0, 2 * n, 2 * n + 1) for n in range(6))
    assert "partition 0 offset 8 and 1 more ranges" in str(LostTopic("o", "i", "w", 0, many))
    assert "partition 0 offset 8 and 1 more ranges" in str(LostTopic("o", "i", "w", 0, (), many))
