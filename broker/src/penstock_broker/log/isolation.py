"""What a reader at the isolation level read_committed has to know of a range of a log."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence

from penstock_broker.log.aborted_transactions import rebuild
from penstock_broker.log.index_file import IndexDamagedError
from penstock_broker.log.open_transactions import AbortedTransaction
from penstock_broker.log.segment import Segment
from penstock_broker.log.slice import LogSlice

_log = logging.getLogger(__name__)

END = 2**63 - 1


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


def has_aborted(segments: Sequence[Segment], bases: Sequence[int], first_offset: int) -> bool:
    """Whether :func:`aborted_transactions` may find any from ``first_offset`` on. In most logs it
    cannot, and then how far a range goes is not looked up. OSError."""
    try:
        for number in range(max(0, bisect_right(bases, first_offset) - 1), len(segments)):
            if segments[number].aborted.has_entries():
                return True
    except IndexDamagedError:  # the reading of its entries finds it again and repairs it
        return True
    return False


def _collect(
    segments: Sequence[Segment], bases: Sequence[int], first_offset: int, upper_offset: int
) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    # An abort marker comes after its records: in the segment of the first offset, or later.
    for number in range(max(0, bisect_right(bases, first_offset) - 1), len(segments)):
        some, is_complete = segments[number].aborted.find(first_offset, upper_offset)
        found += some
        if is_complete:
            break
    return found


def end_of_slice(segments: Sequence[Segment], found: LogSlice) -> int:
    """An offset above all records of a slice, near its end."""
    first = bisect_right(segments, found.base_offset, key=_base_offset) - 1
    number = min(max(0, first) + len(found.parts) - 1, len(segments) - 1)
    segment, last = segments[number], found.parts[-1]
    try:
        relative = segment.offset_index.first_at_or_behind(last.position + last.size)
    except IndexDamagedError:  # its owner makes it again when it looks something up
        relative = None
    if relative is not None:
        return segment.base_offset + relative
    return segments[number + 1].base_offset if number + 1 < len(segments) else END


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _first_offset(transaction: AbortedTransaction) -> int:
    return transaction.first_offset
