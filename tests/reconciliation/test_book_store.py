"""What is archived about windows: receipts, books, acceptances."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import (
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.reconciliation.model.receipts import (
    Receipt,
    ReceiptFormatError,
)
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window
from penstock_platform.windows.model.window import Window


def window_at(sequence: int) -> Window:
    """The windows of one topic, one after the other."""
    window: Window | None = None
    for n in range(sequence + 1):
        window = make_window({0: (n * 10, n * 10 + 10)}, previous=window)
    assert window is not None
    return window


REF = window_at(0).ref


@pytest.fixture
def store() -> BookStore:
    return BookStore(MemoryArchive())


def receipt(window: Window, attempt: str, snapshot: int = 1) -> Receipt:
    return Receipt.of(
        window,
        table="lake.bronze.orders",
        attempt_id=attempt,
        snapshot_id=snapshot,
        rows=10,
        size_bytes=100,
        seconds=0.5,
        landed_at="2026-11-20T00:01:05Z",
        code_version="test",
        counts={"quarantined": 0},
    )


def test_an_attempt_has_one_receipt_however_often_it_reports(store):
    window = window_at(3)
    first, second = receipt(window, "a", 1), receipt(window, "b", 2)
    for given_in, kept in ((first, first), (second, second), (replace(first, rows=9), first)):
        assert store.add_receipt(given_in) == kept
    found = store.receipts(REF, "lake.bronze.orders", 3)
    assert found == [first, second]
    assert found[0].ranges == ((0, 30, 40),)
    assert store.receipts(REF, "lake.silver.orders", 3) == []


def test_what_is_no_receipt_is_refused():
    good = json.loads(receipt(window_at(0), "a").to_bytes())
    for change in ({"v": 2}, {"x": 1}, {"ranges": [[1]]}):
        with pytest.raises(ReceiptFormatError):
            Receipt.from_bytes(json.dumps({**good, **change}).encode())


def result(state, *findings, equation=Equation.STORED_EQUALS_LANDED):
    return EquationResult(equation, state, 10, 10 - sum(f.count for f in findings), findings)


def book(window, *results, **options):
    return Book.of(window, results, made_at="2026-11-20T00:02:00Z", code_version="t", **options)


def test_books_supersede_one_another(store):
    window = window_at(0)
    assert store.newest_book(REF, 0) is None
    first = book(window, result(WindowState.BALANCED))
    second = book(window, result(WindowState.MISSING, Finding("missing", (OffsetRange(0, 1, 2),))))
    assert (store.add_book(first), store.add_book(second)) == (0, 1)
    assert store.newest_book(REF, 0) == second
    assert store.books(REF, 0) == [first, second]


def test_two_books_made_at_once_merge(store):
    """The second finds the number taken, reads what is there and keeps it beside its own."""
    window = window_at(0)
    lost = Finding("missing", (OffsetRange(0, 1, 2),))
    other = result(WindowState.PENDING, equation=Equation.PRODUCED_EQUALS_STORED)
    calls = []

    def make(earlier):
        calls.append(earlier)
        if len(calls) == 1:  # another process is quicker
            store.merge_book(window, lambda e: book(window, other, earlier=e))
        return book(window, result(WindowState.MISSING, lost), earlier=earlier)

    made = store.merge_book(window, make)
    assert [c is None for c in calls] == [True, False]
    assert made == store.newest_book(REF, 0)
    assert made.result(Equation.PRODUCED_EQUALS_STORED) == other
    assert made.state is WindowState.MISSING
    assert len(store.books(REF, 0)) == 2


@pytest.mark.parametrize("number", range(8))
def test_the_newest_of_any_number_of_books_is_found(store, number):
    window = window_at(0)
    made = [book(window, result(WindowState.BALANCED), tiers={"x": n}) for n in range(number)]
    for one in made:
        store.add_book(one)
    assert store.book_at_end(REF, 0) == (number, made[-1] if made else None)


def test_a_person_accepts_findings_with_a_reason(store):
    window = window_at(0)
    with pytest.raises(ValueError, match="no finding to accept"):
        store.accept(window, "me", "why", EPOCH)
    lost = Finding("missing", (OffsetRange(0, 1, 4),))
    store.add_book(book(window, result(WindowState.MISSING, lost)))
    with pytest.raises(ValueError, match="needs a reason"):
        store.accept(window, "me", " ", EPOCH)
    acceptance = store.accept(window, "me", "a test record", EPOCH)
    assert store.acceptances(REF, 0) == [acceptance]
    options = {"acceptances": [acceptance]}
    produced = result(WindowState.BALANCED, equation=Equation.PRODUCED_EQUALS_STORED)
    fewer = Finding("missing", (OffsetRange(0, 2, 3),))
    more = Finding("missing", (OffsetRange(0, 1, 5),))
    other = Finding("duplicate", (OffsetRange(0, 1, 2),))
    for finding, state in (
        (lost, WindowState.ACCEPTED),
        (fewer, WindowState.ACCEPTED),
        (more, WindowState.MISSING),
        (other, WindowState.MISSING),
    ):
        made = book(window, result(WindowState.MISSING, finding), produced, **options)
        assert made.state is state
        assert (made.accepted is not None) == (state is WindowState.ACCEPTED)


def test_retiring_twice_is_once(store):
    window = window_at(0)
    assert not store.retired(REF, 0)
    store.retire(window, EPOCH, "kept for 2m")
    store.retire(window, EPOCH + timedelta(days=1), "again")
    assert store.retired(REF, 0)
