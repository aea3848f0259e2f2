"""Lag of one partition: messages, seconds, and committed offsets that are not in the log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.groups.model.lag import PartitionLag, total, within
from penstock_platform.kafka.model import CommittedOffset, LogBounds

NOW = datetime(2026, 11, 20, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
offsets = st.integers(0, 1 << 62)
logs = st.tuples(offsets, offsets).map(lambda pair: LogBounds(min(pair), max(pair)))


LOG = LogBounds(10, 30)


def lag(offset: int | None, log: LogBounds | None = LOG, **more: object) -> PartitionLag:
    committed = None if offset is None else CommittedOffset(offset)
    return PartitionLag("t", 0, committed, log, **more)  # type: ignore[arg-type]


@given(offsets, logs)
def test_an_offset_is_moved_into_the_log_by_the_shortest_way(offset: int, log: LogBounds) -> None:
    found = within(offset, log)
    assert log.start <= found <= log.end
    assert abs(found - offset) == max(log.start - offset, offset - log.end, 0)


@given(offsets, logs)
def test_the_lag_is_what_can_still_be_read(offset: int, log: LogBounds) -> None:
    found = lag(offset, log)
    assert found.messages is not None
    assert 0 <= found.messages <= log.end - log.start
    assert bool(found.outside) == (not log.start <= offset <= log.end)
    assert (found.messages == 0) == (offset >= log.end or log.start == log.end)


@pytest.mark.parametrize(
    ("offset", "messages", "outside"),
    [
        (10, 20, ""),
        (30, 0, ""),
        (7, 20, "3 unread offsets are deleted"),
        (35, 0, "5 offsets beyond the log's end"),
        (None, None, ""),
    ],
)
def test_messages_and_what_is_outside(
    offset: int | None, messages: int | None, outside: str
) -> None:
    assert (lag(offset).messages, lag(offset).outside) == (messages, outside)


def test_a_partition_that_is_gone() -> None:
    found = lag(5, None)
    assert (found.messages, found.seconds(NOW)) == (None, None)
    assert found.outside == "the partition does not exist"


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        (lag(12, unread_ms=NOW_MS - 90_500), 90.5),
        (lag(30, unread_ms=None), 0.0),  # all is read
        (lag(12, all_read=True), 0.0),  # nothing but markers of transactions is left
        (lag(12, unread_ms=None), None),
        (lag(12, unread_ms=NOW_MS + 5_000), 0.0),  # its producer's clock is wrong
        (lag(None), None),
    ],
)
def test_seconds_are_the_age_of_the_first_unread_record(
    found: PartitionLag, seconds: float | None
) -> None:
    assert found.seconds(NOW) == seconds


def test_the_total_is_of_the_partitions_with_an_offset() -> None:
    assert total([lag(12), lag(None), lag(25)]) == 18 + 5
    assert total([lag(30)]) == 0
    assert total([lag(None)]) is None
    assert total([]) is None
