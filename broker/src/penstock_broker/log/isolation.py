"""What a reader at the isolation level read_committed has to know of a range of a log."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence

from penstock_broker.log.aborted_transactions import rebuild
from penstock_broker.log.index_file import IndexDamagedError
from penstock_broker.log.open_transactions import AbortedTransaction
from penstock_broker.log.segment import Segment

_log = logging.getLogger(__name__)


def aborted_transactions(
    segments: Sequence[Segment], bases: Sequence[int], first_offset: int, upper_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions with records in [first, upper), in the order of their first offset.

    ``bases`` are the base offsets of ``segments``. A damaged index is made again from the log.
    BadBatchError, OSError.
    """
    try:
        found = _collect(segments, bases, first_offset, upper_offset)
    except IndexDamagedError as damage:
        _log.warning("rebuilding the indexes of aborted transactions: %s", damage)
        rebuild(segments)
        found = _collect(segments, bases, first_offset, upper_offset)
    if len(found) > 1:
        found.sort(key=_first_offset)
    return found


def _collect(
    segments: Sequence[Segment], bases: Sequence[int], first_offset: int, upper_offset: int
) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    # An abort marker lies behind its records: in the segment of the first offset, or later.
    for number in range(max(0, bisect_right(bases, first_offset) - 1), len(segments)):
        some, is_complete = segments[number].aborted.find(first_offset, upper_offset)
        found += some
        if is_complete:
            break
    return found


def _first_offset(transaction: AbortedTransaction) -> int:
    return transaction.first_offset
