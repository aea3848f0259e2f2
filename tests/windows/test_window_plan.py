"""The window object, the plan that freezes windows, and the link that proves their chain."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.kafka.model import PartitionOffsets, TopicRef
from penstock_platform.ranges import OffsetRange
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window
from penstock_platform.topics.model.cron import due_windows
from penstock_platform.windows.model.window import (
    ChainError,
    FreezePlan,
    PreviousWindow,
    StartOffset,
    Truncation,
    Window,
    WindowFormatError,
    check_link,
    plan_freeze,
)

REF = TopicRef("cluster", "orders", "topic-id")
TICKS = list(due_windows("* * * * *", EPOCH, EPOCH + timedelta(minutes=3)))
CUT = Truncation(from_epoch=3, offset=6, previous_end=10)


def offsets(**ends):
    """p0=7: partition 0 with a log from 0, all stable, to 7."""
    return {
        int(name[1:]): PartitionOffsets(int(name[1:]), 0, end, end + 1, 4)
        for name, end in ends.items()
    }


def plan(now, **options):
    frozen = EPOCH + timedelta(minutes=5)
    return FreezePlan(REF, now, options.pop("max_records", 1000), frozen, "c1", **options)


def freeze(now, *, after=None, ticks=TICKS[:1], **options):
    return list(plan_freeze(plan(now, **options), after, ticks))


def spans(windows):
    return [{p.p: (p.start, p.end) for p in window.partitions} for window in windows]


# --- the object


def test_a_window_object_as_it_is_archived():
    [window] = freeze(offsets(p0=7), truncations={0: replace(CUT, offset=2)})
    [window] = [replace(window, previous=PreviousWindow(4, "ab"))]
    raw = json.loads(window.to_bytes())
    assert raw == {
        "v": 1,
        "cluster_id": "cluster",
        "topic": "orders",
        "topic_id": "topic-id",
        "sequence": 0,
        "window": "2026-11-20-00:00",
        "opened_at": "2026-11-20T00:00:00Z",
        "closed_at": "2026-11-20T00:01:00Z",
        "frozen_at": "2026-11-20T00:05:00Z",
        "partitions": [
            {
                "p": 0,
                "start": 2,
                "end": 7,
                "log_start": 0,
                "high_watermark": 8,
                "leader_epoch": 4,
                "truncated": {"from_epoch": 3, "offset": 2, "previous_end": 10},
            }
        ],
        "previous": {"sequence": 4, "sha256": "ab"},
        "code_version": "c1",
        "part": 1,
        "more": False,
        "last_truncation": 0,
    }
    assert window.to_bytes() == json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()
    assert window.sha256 == hashlib.sha256(window.to_bytes()).hexdigest()
    assert Window.from_bytes(window.to_bytes()) == window


def test_a_partition_that_was_not_cut_says_nothing_of_it():
    [window] = freeze(offsets(p0=7))
    assert "truncated" not in json.loads(window.to_bytes())["partitions"][0]
    assert Window.from_bytes(window.to_bytes()) == window
    assert (window.previous, window.last_truncation, window.sequence) == (None, None, 0)


@pytest.mark.parametrize(
    "data,said",
    [
        (b"{", "not a window object"),
        (b"\xff", "not a window object"),
        (b"[]", "not a window object"),
        (b"{}", "not a window object"),
        (b'{"v": 2}', "window object version 2: this code reads 1"),
        (b'{"v": 1, "partitions": [], "previous": null}', "not a window object"),
        (b'{"v": 1, "partitions": [{}], "previous": null}', "not a window object"),
    ],
)
def test_what_is_no_window_is_refused(data, said):
    with pytest.raises(WindowFormatError, match=said):
        Window.from_bytes(data)


def test_what_a_window_says_of_itself():
    window = make_window({0: (5, 9), 2: (1, 1)}, sequence=3, high_watermarks={0: 9})
    assert window.ranges == (OffsetRange(0, 5, 9), OffsetRange(2, 1, 1))
    assert window.record_count == 4
    assert window.window_id == f"{window.topic_id}/3"
    assert window.ref == TopicRef(window.cluster_id, window.topic, window.topic_id)
    assert window.closed_time == datetime(2026, 11, 20, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("watermark,complete", [(8, True), (9, True), (10, False)])
def test_a_window_is_complete_when_it_reached_every_logs_end(watermark, complete):
    window = make_window({0: (5, 9), 1: (0, 3)}, high_watermarks={0: watermark})
    assert window.complete is complete


@pytest.mark.parametrize(
    "part,more,name", [(1, False, ""), (1, True, "#1"), (2, True, "#2"), (2, False, "#2")]
)
def test_a_window_of_several_has_its_part_in_its_name(part, more, name):
    window = replace(make_window({}), part=part, more=more)
    assert window.name == f"2026-11-20-00:00{name}"


# --- the plan


def test_a_window_continues_where_the_one_before_ended_and_links_to_it():
    [first, second] = freeze(offsets(p0=7, p1=3), ticks=TICKS[:2])
    assert spans([first, second]) == [{0: (0, 7), 1: (0, 3)}, {0: (7, 7), 1: (3, 3)}]
    assert second.previous == PreviousWindow(0, first.sha256)
    assert (second.sequence, second.part, second.more) == (1, 1, False)
    assert second.ref == REF
    [third] = freeze(offsets(p0=9, p1=3, p2=4), after=second, ticks=TICKS[2:])
    assert spans([third]) == [{0: (7, 9), 1: (3, 3), 2: (0, 4)}], "an added partition begins at 0"
    assert (third.sequence, third.window) == (2, TICKS[2].key)
    for before, after in ((None, first), (first, second), (second, third)):
        check_link(before, after)


def test_a_chain_begins_where_its_starts_say_else_at_0():
    starts = {0: StartOffset(0, 4), 7: StartOffset(7, 99)}
    [window] = freeze(offsets(p0=7, p1=3), starts=starts)
    assert spans([window]) == [{0: (4, 7), 1: (0, 3)}]
    assert StartOffset(0, 4).leader_epoch == -1
    assert PartitionOffsets(0, 0, 1, 1).leader_epoch == -1


def test_partitions_are_in_order_whatever_order_they_are_asked_in():
    [window] = freeze(dict(reversed(offsets(p0=7, p1=3, p2=1).items())))
    assert [p.p for p in window.partitions] == [0, 1, 2]
    assert [(p.log_start, p.high_watermark, p.leader_epoch) for p in window.partitions] == [
        (0, 8, 4),
        (0, 4, 4),
        (0, 2, 4),
    ]


def test_a_start_beyond_the_last_stable_offset_gives_an_empty_window():
    [window] = freeze(offsets(p0=7), starts={0: StartOffset(0, 9)})
    assert spans([window]) == [{0: (9, 9)}]


def test_a_partition_of_the_window_before_that_is_not_known_stops_the_freeze():
    [first] = freeze(offsets(p0=7, p1=3, p2=1))
    with pytest.raises(ChainError, match=r"partitions \[1, 2\] of window 0"):
        freeze(offsets(p0=7), after=first, ticks=TICKS[1:])
    [first] = freeze(offsets(p0=7, p1=3, p8=1))
    with pytest.raises(ChainError, match=r"partitions \[1, 8\] of window 0"):
        freeze(offsets(p0=7), after=first, ticks=TICKS[1:])


def test_the_newest_tick_has_as_many_windows_as_it_takes():
    windows = freeze(offsets(p0=25), max_records=10)
    assert spans(windows) == [{0: (0, 10)}, {0: (10, 20)}, {0: (20, 25)}]
    assert [(w.part, w.more, w.sequence) for w in windows] == [
        (1, True, 0),
        (2, True, 1),
        (3, False, 2),
    ]
    assert {w.window for w in windows} == {TICKS[0].key}
    assert freeze(offsets(p0=20), max_records=10)[-1].part == 2, "the bound itself is not passed"


def test_an_older_tick_has_one_window_of_what_there_is():
    windows = freeze(offsets(p0=25), ticks=TICKS[:2], max_records=10)
    assert spans(windows) == [{0: (0, 10)}, {0: (10, 20)}, {0: (20, 25)}]
    assert [(w.window, w.part, w.more) for w in windows] == [
        (TICKS[0].key, 1, False),
        (TICKS[1].key, 1, True),
        (TICKS[1].key, 2, False),
    ]


def test_ticks_that_were_cut_short_do_not_reach_the_end():
    windows = freeze(offsets(p0=25), ticks=TICKS[:2], max_records=10, reaches_newest=False)
    assert spans(windows) == [{0: (0, 10)}, {0: (10, 20)}]
    assert [w.more for w in windows] == [False, False]


def test_the_brokers_stamps_part_older_ticks_and_never_the_newest():
    cuts = {TICKS[0].key: {0: 4, 1: None}, TICKS[1].key: {0: 9, 1: 2}, TICKS[2].key: {0: 9}}
    windows = freeze(offsets(p0=12, p1=5), ticks=TICKS, stamped_cuts=cuts)
    assert spans(windows) == [
        {0: (0, 4), 1: (0, 5)},
        {0: (4, 9), 1: (5, 5)},
        {0: (9, 12), 1: (5, 5)},
    ]


def test_a_stamp_is_bounded_by_what_is_stable_and_by_what_is_frozen():
    starts = {0: StartOffset(0, 6), 1: StartOffset(1, 6)}
    cuts = {TICKS[0].key: {0: 50, 1: 2}}
    windows = freeze(offsets(p0=12, p1=12), ticks=TICKS[:2], starts=starts, stamped_cuts=cuts)
    assert spans(windows)[0] == {0: (6, 12), 1: (6, 6)}
    without = freeze(offsets(p0=12), ticks=TICKS[:2], stamped_cuts={})
    assert spans(without)[0] == {0: (0, 12)}, "no stamp at or after the close"


def test_a_stamped_tick_keeps_the_bound_in_several_windows():
    cuts = {TICKS[0].key: {0: 15}}
    windows = freeze(offsets(p0=18), ticks=TICKS[:2], stamped_cuts=cuts, max_records=10)
    assert [(w.window, spans([w])[0][0]) for w in windows] == [
        (TICKS[0].key, (0, 10)),
        (TICKS[0].key, (10, 15)),
        (TICKS[1].key, (15, 18)),
    ]


@given(
    st.dictionaries(
        st.integers(0, 5), st.tuples(st.integers(0, 9), st.integers(0, 40)), min_size=1
    ),
    st.integers(1, 30),
)
def test_windows_of_a_tick_hold_every_offset_once_and_never_more_than_the_bound(parts, bound):
    now = {p: PartitionOffsets(p, 0, start + n, start + n, 0) for p, (start, n) in parts.items()}
    starts = {p: StartOffset(p, start) for p, (start, _) in parts.items()}
    windows = freeze(now, starts=starts, max_records=bound)
    total = sum(n for _, n in parts.values())
    assert [w.record_count for w in windows[:-1]] == [bound] * (len(windows) - 1)
    assert windows[-1].record_count == total - bound * (len(windows) - 1) <= bound
    assert windows[-1].record_count > 0 or total == 0
    at = {p: start for p, (start, _) in parts.items()}
    for window in windows:
        for p in window.partitions:
            assert p.start == at[p.p]
            at[p.p] = p.end
    assert at == {p: start + n for p, (start, n) in parts.items()}


def test_a_bound_is_shared_in_proportion():
    [first, *_] = freeze(offsets(p0=300, p1=100), max_records=40)
    assert spans([first]) == [{0: (0, 30), 1: (0, 10)}]
    [first, *_] = freeze(offsets(p0=2, p1=1), max_records=1)
    assert spans([first]) == [{0: (0, 0), 1: (0, 1)}], "parts of a record add up to one"


def test_what_was_left_of_a_tick_is_its_next_part():
    [first, _] = freeze(offsets(p0=15), max_records=10)
    [second, third] = freeze(offsets(p0=15), after=first, ticks=TICKS[:2], max_records=10)
    assert (second.part, second.more, spans([second])) == (2, False, [{0: (10, 15)}])
    assert (third.part, third.window) == (1, TICKS[1].key)


# --- truncations


def test_a_cut_log_begins_again_at_the_cut_in_the_first_window_only():
    [first] = freeze(offsets(p0=10, p1=2))
    [second, third] = freeze(
        offsets(p0=8, p1=5), after=first, ticks=TICKS[1:], truncations={0: CUT}
    )
    assert spans([second, third]) == [{0: (6, 8), 1: (2, 5)}, {0: (8, 8), 1: (5, 5)}]
    assert [p.truncated for p in second.partitions] == [CUT, None]
    assert [p.truncated for p in third.partitions] == [None, None]
    assert (second.last_truncation, third.last_truncation) == (1, 1)
    check_link(first, second)
    check_link(second, third)


# --- the link


@pytest.fixture
def two():
    [first, second] = freeze(offsets(p0=10, p1=2), ticks=TICKS[:2])
    return first, second


def refused(previous, window, said):
    with pytest.raises(ChainError, match=said):
        check_link(previous, window)


def test_a_first_window_has_none_before_it(two):
    first, second = two
    check_link(None, first)
    refused(None, second, "the windows before it are missing")
    refused(None, replace(first, sequence=1), "the windows before it are missing")
    refused(None, replace(first, previous=second.previous), "the windows before it are missing")


def test_a_window_follows_the_one_before_it_in_its_own_chain(two):
    first, second = two
    said = r"window topic-id/2 \(orders 2026-11-20-00:01\) does not follow window topic-id/0"
    refused(first, replace(second, sequence=2), said)
    refused(first, replace(second, topic_id="other"), r"does not follow window topic-id/0")
    wrong = replace(second, previous=PreviousWindow(0, "0" * 64))
    refused(first, wrong, "its hash of window 0 is not that window's")
    refused(first, replace(second, previous=None), "its hash of window 0 is not that window's")


def moved(window, p, **changes):
    partitions = [replace(q, **changes) if q.p == p else q for q in window.partitions]
    return replace(window, partitions=tuple(partitions))


def test_a_window_begins_where_the_one_before_ended(two):
    first, second = two
    for wrong in (
        moved(second, 0, start=9),
        moved(second, 1, start=3, end=3),
        replace(second, partitions=second.partitions[:1]),
    ):
        refused(first, wrong, "does not begin where window 0 ended")


@pytest.mark.parametrize(
    "start,offset,previous_end,fits",
    [(6, 6, 10, True), (7, 6, 10, False), (6, 6, 9, False), (10, 10, 10, False), (9, 9, 10, True)],
)
def test_only_a_truncation_steps_back_to_where_it_says(two, start, offset, previous_end, fits):
    first, second = two
    cut = Truncation(3, offset, previous_end)
    stepped = replace(moved(second, 0, start=start, truncated=cut), last_truncation=1)
    if fits:
        check_link(first, stepped)
    else:
        refused(first, stepped, "does not begin where window 0 ended")


def test_the_newest_truncation_is_named_and_handed_on(two):
    first, second = two
    refused(first, replace(second, last_truncation=1), "names window 1 as its last truncation")
    stepped = moved(second, 0, start=6, truncated=CUT)
    refused(first, stepped, "names window None as its last truncation")
    stepped = replace(stepped, last_truncation=1)
    [third] = freeze(offsets(p0=12, p1=2), after=stepped, ticks=TICKS[2:])
    check_link(stepped, third)
    refused(stepped, replace(third, last_truncation=None), "names window None as its last")


def test_a_tick_continues_in_its_next_part_and_a_new_one_begins_with_the_first():
    [first, second] = freeze(offsets(p0=15), max_records=10)
    check_link(first, second)
    for wrong in (
        replace(second, part=3),
        replace(second, part=1),
        replace(second, window=TICKS[1].key),
        replace(second, window=TICKS[1].key, part=1),
    ):
        refused(first, wrong, r"before it \(2026-11-20-00:00#1\) continues")
    [third] = freeze(offsets(p0=15), after=second, ticks=TICKS[1:2])
    check_link(second, third)
    for wrong in (replace(third, part=2), replace(third, window=second.window)):
        refused(second, wrong, r"before it \(2026-11-20-00:00#2\) ends there")
