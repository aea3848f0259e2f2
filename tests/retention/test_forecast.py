"""The forecast: rates as measured, and when a limit is reached at these rates."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock_platform.reconciliation.model.books import Book, Equation, EquationResult, WindowState
from penstock_platform.retention.model.forecast import (
    Forecast,
    forecast_of,
    records_per_second,
)
from penstock_platform.retention.model.log import Disk, PartitionLog
from penstock_platform.retention.model.plan import SweepPolicy, plan_sweep
from penstock_platform.retention.model.proof import SweepCandidate
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window
from penstock_platform.topics.model.declaration import RetentionSpec

BALANCED = WindowState.BALANCED
# Ten windows of a minute, 60 records and 6,000 bytes each: a record and 100 bytes a second.
NOW = EPOCH + timedelta(minutes=10)
LOGS = {0: PartitionLog(0, 600, 60_000)}
PLENTY = Disk(10**9, 10**9)


def chain(length=10):
    windows = []
    for n in range(length):
        previous = windows[-1] if windows else None
        windows.append(make_window({0: (n * 60, n * 60 + 60)}, previous=previous))
    return windows


def forecast(retention, *, held=(), logs=LOGS, disk=PLENTY, start=0, windows=None):
    windows = chain() if windows is None else windows
    proven = [EquationResult(e, BALANCED, 60, 60) for e in list(Equation)[:2]]
    candidates = [
        SweepCandidate(
            w,
            None if w.sequence in held else proven[0],
            Book.of(w, proven, made_at="2026-11-20T00:00:00Z", code_version="t"),
        )
        for w in windows
    ]
    plan = plan_sweep(NOW, candidates, SweepPolicy(retention), {0: start}, logs=logs)
    return forecast_of(NOW, retention, plan, windows, newest=windows, logs=logs, disk=disk)


def keep(minutes, max_bytes=None):
    return RetentionSpec(keep=timedelta(minutes=minutes), max_bytes=max_bytes)


def test_rates_are_those_of_the_newest_windows():
    assert records_per_second(chain()) == 1.0
    assert records_per_second([]) is None
    found = forecast(keep(60))
    assert (found.records_per_second, found.bytes_per_second) == (1.0, 100.0)
    assert (found.log_bytes, found.disk_free_bytes) == (60_000, 10**9)


def test_without_sizes_there_are_no_bytes_in_the_forecast():
    found = forecast(keep(60), logs=None, disk=None)
    assert found.numbers == {"records_per_second": 1.0, "until_due_seconds": 51 * 60}


def test_a_log_that_never_had_a_record_has_a_size_and_no_growth():
    found = forecast(keep(60), logs={0: PartitionLog(0, 0, 0)}, windows=[])
    assert (found.log_bytes, found.bytes_per_second, found.records_per_second) == (0, None, None)
    assert found.until_disk_full_seconds is None


def test_when_the_oldest_window_that_is_not_due_will_be():
    assert forecast(keep(60)).until_due_seconds == 51 * 60
    # Windows 0 to 4 are due and deleted; window 5 closed four minutes ago.
    assert forecast(keep(5)).until_due_seconds == 60
    assert forecast(RetentionSpec()).until_due_seconds is None
    assert forecast(keep(60)).overdue_seconds is None


def test_what_the_sweep_deletes_counts_as_deleted():
    assert forecast(keep(5)).log_bytes == 60_000 - 5 * 6_000
    shorter = forecast(keep(5), start=120, logs={0: PartitionLog(120, 600, 48_000)})
    assert shorter.log_bytes == 30_000, "windows 0 and 1 were deleted before"
    # Everything is due, and two records are in no window yet.
    found = forecast(keep(0), logs={0: PartitionLog(0, 602, 60_200)})
    assert found.log_bytes == 200


def test_for_how_long_a_held_window_is_past_its_policy():
    found = forecast(keep(5), held={1})
    assert found.overdue_seconds == (8 - 5) * 60, "window 1 closed eight minutes ago"
    assert found.log_bytes == 54_000, "window 0 goes, what is behind the held one stays"
    by_size = forecast(RetentionSpec(max_bytes=1), held={0})
    assert by_size.overdue_seconds is None
    late = forecast(keep(60, 10_000), held={0})
    assert late.overdue_seconds is None, "held by size, and younger than keep"


@pytest.mark.parametrize(
    "limit,held,seconds",
    [
        (90_000, (), 300),
        (60_000, (), 0),
        (59_999, (0,), 0),
        (59_999, (), 59),  # a window is deleted: 54,000 bytes are left
    ],
)
def test_when_max_bytes_is_reached(limit, held, seconds):
    assert forecast(RetentionSpec(max_bytes=limit), held=held).until_max_bytes_seconds == seconds


def test_a_log_that_does_not_grow_reaches_nothing():
    idle = [make_window({0: (0, 0)})]
    found = forecast(RetentionSpec(max_bytes=90_000), windows=idle)
    assert (found.bytes_per_second, found.until_max_bytes_seconds) == (0.0, None)
    assert found.until_disk_full_seconds is None
    over = forecast(RetentionSpec(max_bytes=100), windows=idle)
    assert over.until_max_bytes_seconds == 0, "it is exceeded already"


@pytest.mark.parametrize(
    "retention,held,free,seconds",
    [
        (keep(60), (), 10_000, 100),
        (keep(60), (), 51 * 60 * 100, 51 * 60),
        (keep(60), (), 51 * 60 * 100 + 100, None),  # the policy deletes first
        (keep(5), (3,), 10**8, 10**6),  # held: nothing deletes
        (RetentionSpec(max_bytes=90_000), (), 20_000, 200),
        (RetentionSpec(max_bytes=90_000), (), 40_000, None),
        (keep(60, 90_000), (), 40_000, None),
        (RetentionSpec(), (), 10**8, 10**6),  # nothing limits its keeping
        (keep(0), (), 10_000, None),  # all is due: the log stays that small
    ],
)
def test_when_the_disk_is_full(retention, held, free, seconds):
    found = forecast(retention, held=held, disk=Disk(10**9, free))
    assert found.until_disk_full_seconds == seconds


def test_what_is_not_known_is_no_number():
    assert Forecast().numbers == {}
    assert Forecast(overdue_seconds=0).numbers == {"overdue_seconds": 0}
