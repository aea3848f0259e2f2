"""Window keys are Dagster's partition keys, tick for tick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from dagster import TimeWindowPartitionsDefinition
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_platform.clock import from_iso, to_iso
from penstock_platform.topics.model.cron import (
    KEY_FORMAT,
    CronError,
    cron_of,
    due_windows,
    opening_of,
    tick_at_or_after,
    window_key,
    window_of,
)

CRONS = ["minutely", "hourly", "daily", "*/15 3-5 * * *", "7 * * * *", "30 6 * * 1-5", "0 0 1 * *"]
moments = st.integers(0, 400 * 86400).map(
    lambda second: datetime(2024, 2, 20, tzinfo=UTC) + timedelta(seconds=second)
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CRONS), moments)
def test_keys_and_windows_are_dagsters(name, start):
    cron = cron_of(name)
    ours = list(islice(due_windows(cron, start, start + timedelta(days=70)), 5))
    definition = TimeWindowPartitionsDefinition(
        start=start, fmt=KEY_FORMAT, cron_schedule=cron, end=ours[-1].closes
    )
    assert [window.key for window in ours] == list(definition.get_partition_keys())
    for window in ours:
        found = definition.time_window_for_partition_key(window.key)
        assert (window.opens, window.closes) == (found.start, found.end)
        assert window_of(cron, window.key) == window
        assert opening_of(window.key) == window.opens


@settings(deadline=None)
@given(st.sampled_from(CRONS), moments)
def test_windows_are_due_once_they_have_closed(name, start):
    cron = cron_of(name)
    first = next(iter(due_windows(cron, start, start + timedelta(days=70))))
    assert first.opens == tick_at_or_after(cron, start) >= start
    assert list(due_windows(cron, start, first.closes - timedelta(seconds=1))) == []
    assert list(due_windows(cron, start, first.closes)) == [first]
    followers = islice(due_windows(cron, first.closes, start + timedelta(days=70)), 1)
    assert [window.opens for window in followers] in ([first.closes], [])


@pytest.mark.parametrize("text", ["", "sometimes", "* * * *", "* * * * * *", "61 * * * *"])
def test_what_is_no_cron_is_refused(text):
    with pytest.raises(CronError, match="five fields"):
        cron_of(text)


def test_what_is_no_key_is_refused():
    with pytest.raises(CronError, match="2026-11-20-05:00"):
        opening_of("2026-11-20")
    with pytest.raises(CronError, match="no window of cron"):
        window_of("0 * * * *", "2026-11-20-05:30")


def test_times_are_written_in_utc_with_a_final_z():
    moment = datetime(2026, 11, 20, 5, 0, 1, 250_000, tzinfo=UTC)
    assert to_iso(moment) == "2026-11-20T05:00:01.250Z"
    assert from_iso(to_iso(moment)) == moment
    assert window_key(moment) == "2026-11-20-05:00"
    with pytest.raises(ValueError, match="no time zone"):
        to_iso(datetime(2026, 11, 20))  # noqa: DTZ001
    with pytest.raises(ValueError, match="no time zone"):
        from_iso("2026-11-20T05:00:00")
