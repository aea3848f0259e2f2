"""What a declared consumer group has read, and what a sweep keeps for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock_platform.kafka.model import CommittedOffset, LogBounds
from penstock_platform.retention.model.groups import GroupProgress, progress_of, unread_reason
from penstock_platform.testing.windows import make_window
from penstock_platform.windows.model.window import Truncation

BOUNDS = {0: LogBounds(0, 100), 1: LogBounds(10, 60)}


def progress(windows=(), bounds=BOUNDS, **committed):
    offsets = {
        int(p.removeprefix("p")): found
        if isinstance(found, CommittedOffset)
        else CommittedOffset(found)
        for p, found in committed.items()
    }
    return progress_of("billing", offsets, bounds, windows)


def lacks(found, reach, starts=None):
    return unread_reason(found, reach, starts if starts is not None else {0: 0, 1: 10})


@pytest.mark.parametrize(
    "committed,reason",
    [
        ({"p0": 50, "p1": 30}, None),
        ({"p0": 51, "p1": 60}, None),
        (
            {"p0": 49, "p1": 30},
            "group billing has read partition 0 up to 49, and the window ends there at 50",
        ),
        (
            {"p0": 0, "p1": 29},
            "group billing has read partition 0 up to 0, and the window ends there at 50 "
            "(and 1 more partitions)",
        ),
        ({"p0": 50}, "group billing has committed nothing of partition 1"),
        ({"p1": 30}, "group billing has committed nothing of partition 0"),
        ({}, "group billing has committed nothing of this topic"),
    ],
)
def test_a_group_holds_what_it_has_not_committed_past(committed, reason):
    assert lacks(progress(**committed), {0: 50, 1: 30}) == reason


def test_a_partition_of_which_nothing_goes_needs_no_commit():
    assert lacks(progress(p0=50), {0: 50, 1: 10}) is None
    assert lacks(progress(), {0: 0, 1: 10}) is None
    assert lacks(progress(p0=50), {0: 50, 1: 11}) is not None
    assert lacks(progress(p0=50), {0: 50, 2: 1}) is not None, "a log start that is not known"


def test_of_a_group_with_a_problem_the_problem_is_the_reason():
    gone = GroupProgress("billing", problem="does not exist")
    assert lacks(gone, {0: 50}) == "group billing does not exist"
    assert lacks(gone, {0: 0}) is None


def test_an_offset_beyond_the_logs_end_proves_nothing():
    assert lacks(progress(p0=100), {0: 100}) is None
    assert lacks(progress(p0=101), {0: 1}) == (
        "group billing committed 101 of partition 0, beyond the log's end at 100: its log was cut"
    )


def cut_window(epoch=5, from_epoch=4, start=60):
    window = make_window({0: (start, 80), 1: (10, 20)})
    first, second = window.partitions
    cut = replace(first, leader_epoch=epoch, truncated=Truncation(from_epoch, start, 100))
    return replace(window, partitions=(cut, second))


@pytest.mark.parametrize(
    "offset,epoch,read_to",
    [
        (75, 4, 60),  # read before the cut: other records have these offsets now
        (75, 3, 60),
        (75, 5, 75),  # read after it
        (60, 4, 60),
        (40, 4, 40),
        (75, -1, 75),  # the client stored no epoch
    ],
)
def test_what_was_read_before_a_truncation_is_not_what_is_there_now(offset, epoch, read_to):
    found = progress([cut_window()], p0=CommittedOffset(offset, epoch), p1=CommittedOffset(20, 1))
    assert found.read_to == {0: read_to, 1: 20}
    reason = lacks(found, {0: 75})
    if read_to == 75:
        assert reason is None
    elif offset == 75:
        assert reason == "group billing committed 75 of partition 0 before its log was cut at 60"
    else:
        assert "up to" in reason


def test_of_several_truncations_the_lowest_after_the_commit_counts():
    windows = [cut_window(5, 4, 60), cut_window(6, 5, 50), cut_window(7, 6, 70)]
    assert progress(windows, p0=CommittedOffset(75, 5)).read_to == {0: 50}
    assert progress(windows, p0=CommittedOffset(75, 6)).read_to == {0: 70}
    assert progress(windows, p0=CommittedOffset(75, 7)).read_to == {0: 75}
