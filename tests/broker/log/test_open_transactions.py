"""The open transactions of a partition, and the last stable offset that follows from them."""

from __future__ import annotations

import pytest

from penstock_broker.log.open_transactions import AbortedTransaction, OpenTransactions


def begun(*transactions: tuple[int, int]) -> OpenTransactions:
    """Of these producers, from these offsets on."""
    made = OpenTransactions()
    for producer_id, offset in transactions:
        made.begin(producer_id, offset)
    return made


def test_the_first_batch_begins_a_transaction() -> None:
    made = begun((7, 10), (8, 11), (7, 12))
    assert made.begun == {7: 10, 8: 11}


def test_an_abort_is_noted_with_the_end_of_what_is_decided() -> None:
    made = begun((7, 10), (8, 11))
    assert made.end(7, 20, is_commit=False) == AbortedTransaction(7, 10, 20, 11)
    assert made.end(8, 21, is_commit=False) == AbortedTransaction(8, 11, 21, 22)
    assert made.begun == {}
    assert list(made.ended) == [(10, 20), (11, 21)]


def test_a_commit_is_not_noted() -> None:
    made = begun((7, 10))
    assert made.end(7, 20, is_commit=True) is None
    assert list(made.ended) == [(10, 20)]


def test_a_marker_without_a_transaction_ends_nothing() -> None:
    made = begun((7, 10))
    assert made.end(8, 20, is_commit=False) is None
    assert (made.begun, list(made.ended)) == ({7: 10}, [])


@pytest.mark.parametrize(
    ("high_watermark", "left"), [(20, [(10, 20), (11, 25)]), (21, [(11, 25)]), (26, [])]
)
def test_what_has_ended_below_the_high_watermark_counts_no_more(
    high_watermark: int, left: list[tuple[int, int]]
) -> None:
    made = begun((7, 10), (8, 11))
    made.end(7, 20, is_commit=True)
    made.end(8, 25, is_commit=True)
    made.drop_ended(high_watermark)
    assert list(made.ended) == left


@pytest.mark.parametrize(
    ("high_watermark", "unstable"), [(20, 10), (21, 10), (25, 10), (26, 12), (31, 12)]
)
def test_the_first_undecided_record(high_watermark: int, unstable: int) -> None:
    """Also of those whose marker a crash may take away; the first to end began later."""
    made = begun((7, 10), (8, 11), (9, 12))
    made.end(8, 20, is_commit=True)
    made.end(7, 25, is_commit=True)
    assert made.first_unstable(high_watermark) == unstable


def test_an_open_transaction_before_those_that_have_ended() -> None:
    made = begun((7, 10), (8, 11))
    made.end(8, 20, is_commit=True)
    assert made.first_unstable(15) == 10
    made.end(7, 30, is_commit=True)
    assert made.first_unstable(25) == 10
    assert made.first_unstable(31) is None


def test_without_transactions_all_is_decided() -> None:
    assert OpenTransactions().first_unstable(9) is None
