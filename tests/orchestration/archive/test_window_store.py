"""The chain in the archive: places, searches, receipts, books, acceptances, starts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.domain.books import (
    Book,
    Equation,
    EquationResult,
    Finding,
    WindowState,
)
from penstock_platform.domain.cron import CronError
from penstock_platform.domain.ranges import OffsetRange
from penstock_platform.domain.receipts import Receipt, ReceiptFormatError, counting_receipt
from penstock_platform.domain.windows import ChainError, Window, WindowFormatError
from penstock_platform.resources.windows import WindowStore, _first_free
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window


def chain(length: int) -> list[Window]:
    windows: list[Window] = []
    for n in range(length):
        previous = windows[-1] if windows else None
        windows.append(make_window({0: (n * 10, n * 10 + 10)}, previous=previous))
    return windows


@pytest.fixture
def store() -> WindowStore:
    found = WindowStore(MemoryArchive())
    for window in chain(25):
        assert found.publish(window)
    return found


REF = make_window({0: (0, 10)}).ref


def test_places_are_taken_once(store):
    window = chain(25)[24]
    late = replace(window, frozen_at="2026-11-21T00:00:00Z")
    assert not store.publish(late)
    assert store.get(REF, 24) == window


def test_the_end_of_the_chain_is_found_by_asking(store):
    assert store.newest(REF).sequence == 24
    assert store.newest(make_window({}, topic="other").ref) is None
    assert [w.sequence for w in store.recent(REF, 3)] == [22, 23, 24]
    assert [w.sequence for w in store.all(REF, 20)] == [20, 21, 22, 23, 24]


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_the_first_free_place_is_exact_and_cheap(taken, hint):
    asked = []

    def ask(n):
        asked.append(n)
        return n < taken

    assert _first_free(ask, hint) == taken
    assert len(asked) <= 2 * max(1, taken).bit_length() + 4


def test_a_window_is_found_by_its_key(store):
    for window in chain(25):
        assert store.find(REF, window.window) == [window]
    assert store.find(REF, "2026-11-19-23:59") == []
    assert store.find(REF, "2026-11-20-00:25") == []
    with pytest.raises(CronError):
        store.find(REF, "yesterday")


def test_only_what_continues_the_chain_is_published(store):
    last = store.newest(REF)
    after = make_window({0: (250, 260)}, previous=last)
    for wrong, told in (
        (replace(after, sequence=27), "the place before it is empty"),
        (replace(after, previous=replace(after.previous, sha256="0" * 64)), "its hash of window"),
        (make_window({0: (251, 260)}, previous=last), "does not begin where window 24 ended"),
        (make_window({1: (0, 0)}, previous=last), "does not begin where"),
        (replace(after, part=2), "is part 2 of its tick"),
        (replace(after, window=last.window), "is part 1 of its tick"),
        (replace(after, last_truncation=3), "as its last truncation"),
    ):
        with pytest.raises(ChainError, match=told):
            store.publish(wrong)
    assert store.publish(after)


def test_a_tick_goes_on_until_its_last_window(store):
    last = store.newest(REF)
    first = replace(make_window({0: (250, 260)}, previous=last), more=True)
    assert store.publish(first)
    again = replace(
        make_window({0: (260, 270)}, previous=first), window=first.window, part=2, more=True
    )
    for wrong in (
        replace(again, part=1),
        replace(again, part=3),
        make_window({0: (260, 270)}, previous=first),  # the next tick: one window is left out
    ):
        with pytest.raises(ChainError, match="of its tick"):
            store.publish(wrong)
    assert store.publish(again)


def test_an_altered_window_breaks_its_chain():
    archive = MemoryArchive()
    store = WindowStore(archive)
    for window in chain(5):
        store.publish(window)
    [key] = [key for key in archive.objects if key.endswith("windows/0000000002.json")]
    raw = json.loads(archive.objects[key])
    raw["partitions"][0]["end"] -= 1
    archive.objects[key] = json.dumps(raw).encode()
    with pytest.raises(ChainError, match="its hash of window 2"):
        list(WindowStore(archive).all(REF))
    archive.objects[key] = b"{"
    with pytest.raises(WindowFormatError):
        list(WindowStore(archive).all(REF))


def test_a_window_object_is_read_back_and_other_versions_are_refused():
    window = chain(2)[1]
    assert Window.from_bytes(window.to_bytes()) == window
    assert window.window_id == f"{window.topic_id}/1"
    raw = json.loads(window.to_bytes())
    for change in ({"v": 2}, {"surprise": 1}, {"partitions": 3}):
        with pytest.raises(WindowFormatError):
            Window.from_bytes(json.dumps({**raw, **change}).encode())


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
    window = store.get(REF, 3)
    first, second = receipt(window, "a", 1), receipt(window, "b", 2)
    for given_in, kept in ((first, first), (second, second), (replace(first, rows=9), first)):
        assert store.add_receipt(given_in) == kept
    found = store.receipts(REF, "lake.bronze.orders", 3)
    assert found == [first, second]
    assert found[0].offset_ranges == (OffsetRange(0, 30, 40),)
    assert store.receipts(REF, "lake.silver.orders", 3) == []
    assert counting_receipt(found, 2) == second
    assert counting_receipt(found, 7) is None


def test_what_is_no_receipt_is_refused():
    good = json.loads(receipt(chain(1)[0], "a").to_bytes())
    for change in ({"v": 2}, {"x": 1}, {"ranges": [[1]]}):
        with pytest.raises(ReceiptFormatError):
            Receipt.from_bytes(json.dumps({**good, **change}).encode())


def result(state, *findings, equation=Equation.STORED_EQUALS_LANDED):
    return EquationResult(equation, state, 10, 10 - sum(f.count for f in findings), findings)


def book(window, *results, **options):
    return Book.of(window, results, made_at="2026-11-20T00:02:00Z", code_version="t", **options)


def test_books_supersede_one_another(store):
    window = store.get(REF, 0)
    assert store.newest_book(REF, 0) is None
    first = book(window, result(WindowState.BALANCED))
    second = book(window, result(WindowState.MISSING, Finding("missing", (OffsetRange(0, 1, 2),))))
    assert (store.add_book(first), store.add_book(second)) == (0, 1)
    assert store.newest_book(REF, 0) == second
    assert store.books(REF, 0) == [first, second]


def test_two_books_made_at_once_merge(store):
    """The second finds the number taken, reads what is there and keeps it beside its own."""
    window = store.get(REF, 0)
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
    window = store.get(REF, 0)
    made = [book(window, result(WindowState.BALANCED), tiers={"x": n}) for n in range(number)]
    for one in made:
        store.add_book(one)
    assert store.book_at_end(REF, 0) == (number, made[-1] if made else None)


def test_a_person_accepts_findings_with_a_reason(store):
    window = store.get(REF, 0)
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
    window = store.get(REF, 0)
    assert not store.retired(REF, 0)
    store.retire(window, EPOCH, "kept for 2m")
    store.retire(window, EPOCH + timedelta(days=1), "again")
    assert store.retired(REF, 0)


def test_the_first_windows_start_is_settled_once():
    store = WindowStore(MemoryArchive())
    now = EPOCH + timedelta(minutes=7, seconds=31)
    assert store.partition_start("local", "a", "* * * * *", now) == EPOCH + timedelta(minutes=7)
    later = now + timedelta(days=3)
    assert store.partition_start("local", "a", "* * * * *", later) == EPOCH + timedelta(minutes=7)
    assert store.partition_start("local", "b", "0 * * * *", now) == EPOCH
    assert store.partition_start("local", "c", "0 0 * * *", later) == EPOCH + timedelta(days=3)
    assert store.partition_start("local", "d", "0 5 * * 1", EPOCH) == EPOCH - timedelta(
        days=3, hours=19
    )


def test_stores_with_prefixes_share_an_archive():
    archive = MemoryArchive()
    a, b = WindowStore(archive, "a"), WindowStore(archive, "b/")
    window = chain(1)[0]
    assert a.publish(window)
    assert b.newest(REF) is None
    assert b.publish(window)
    assert [key[:11] for key in archive.list("")] == ["a/clusters/", "b/clusters/"]
