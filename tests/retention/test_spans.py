"""A sweep's plan by partition: every offset of the log has one answer."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.kafka.model import LogBounds
from penstock_platform.retention.model.log import ends_in_log
from penstock_platform.retention.model.plan import Cause, SweepAction, SweepDecision
from penstock_platform.retention.model.spans import Span, merged, span_at, spans_of
from penstock_platform.testing.windows import make_window

A = SweepAction
WHY = {A.DELETE: Cause.PROVEN, A.HOLD: Cause.UNPROVEN, A.KEEP: Cause.NOT_DUE, A.GONE: Cause.GONE}


def decided(windows, actions):
    return [
        SweepDecision(w.name, w.sequence, a, f"{a} {w.sequence}", WHY[a])
        for w, a in zip(windows, actions, strict=True)
    ]


def chain(*ranges):
    windows = []
    for found in ranges:
        windows.append(make_window(found, previous=windows[-1] if windows else None))
    return windows


def spans(windows, actions, bounds, later=None, **options):
    ends = ends_in_log(windows, later or {})
    return spans_of(windows, decided(windows, actions), ends, bounds, **options)


def short(found):
    return [(s.partition, s.start, s.end, str(s.action), str(s.cause)) for s in found]


def test_what_goes_what_stays_and_what_is_in_no_window():
    windows = chain({0: (0, 10), 1: (0, 5)}, {0: (10, 20), 1: (5, 5)}, {0: (20, 30), 1: (5, 9)})
    bounds = {0: LogBounds(3, 34), 1: LogBounds(0, 9)}
    found = spans(windows, [A.DELETE, A.DELETE, A.HOLD], bounds)
    assert short(merged(found)) == [
        (0, 3, 20, "delete", "proven"),
        (0, 20, 30, "hold", "unproven"),
        (0, 30, 34, "keep", "no_window"),
        (1, 0, 5, "delete", "proven"),
        (1, 5, 9, "hold", "unproven"),
    ]
    first = merged(found)[0]
    assert (first.first, first.last, first.windows) == (windows[0].name, windows[1].name, 2)
    assert first.reason == "delete 0", "the reason of the oldest"
    assert first.records == 17


def test_windows_that_are_held_for_different_reasons_are_not_merged():
    windows = chain({0: (0, 10)}, {0: (10, 20)}, {0: (20, 30)})
    ends = ends_in_log(windows, {})
    decisions = [
        replace(d, detail="MISSING" if d.sequence == 1 else "CORRUPT")
        for d in decided(windows, [A.HOLD] * 3)
    ]
    found = merged(spans_of(windows, decisions, ends, {0: LogBounds(0, 30)}))
    assert [(s.start, s.end) for s in found] == [(0, 10), (10, 20), (20, 30)]


def test_what_was_stored_before_the_chain_began_goes_with_its_first_window():
    windows = chain({0: (50, 60)}, {0: (60, 70)})
    goes = spans(windows, [A.DELETE, A.KEEP], {0: LogBounds(0, 70)})
    assert short(goes)[:2] == [(0, 0, 50, "delete", "no_window"), (0, 50, 60, "delete", "proven")]
    stays = spans(windows, [A.HOLD, A.KEEP], {0: LogBounds(0, 70)})
    assert short(stays)[0] == (0, 0, 50, "keep", "no_window")
    assert f"in front of window {windows[0].name}" in stays[0].reason
    assert "it stays with that window" in stays[0].reason


def test_after_a_truncation_the_offsets_are_the_later_windows():
    first = make_window({0: (0, 100)})
    second = make_window({0: (60, 80)}, previous=first)
    found = spans([first, second], [A.DELETE, A.HOLD], {0: LogBounds(0, 90)})
    assert short(found) == [
        (0, 0, 60, "delete", "proven"),
        (0, 60, 80, "hold", "unproven"),
        (0, 80, 90, "keep", "no_window"),
    ]
    behind = spans([first], [A.DELETE], {0: LogBounds(0, 90)}, later={0: 60}, more=True)
    assert short(behind) == [
        (0, 0, 60, "delete", "proven"),
        (0, 60, 90, "keep", "not_looked_at"),
    ]
    assert f"behind window {first.name}, the last of the 1" in behind[1].reason


def test_an_offset_outside_the_log_has_an_answer_too():
    windows = chain({0: (0, 10)})
    bounds = LogBounds(4, 12)
    found = spans(windows, [A.HOLD], {0: bounds})
    gone, absent = span_at(found, 0, 3, bounds), span_at(found, 0, 12, bounds)
    assert (gone.action, gone.deleted) == (A.GONE, False)
    assert gone.reason == "it is not in the log, which begins at 4"
    assert absent.reason == "nothing is stored there yet: the log ends at 12"
    assert span_at(found, 0, 4, bounds).action is A.HOLD
    assert span_at(found, 0, 10, bounds).cause == "no_window"


def test_a_log_without_windows():
    assert short(spans([], [], {0: LogBounds(0, 5), 1: LogBounds(7, 7)})) == [
        (0, 0, 5, "keep", "no_window")
    ]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(list(A)[1:])), max_size=8),
    st.integers(0, 20),
    st.integers(0, 40),
    st.integers(0, 60),
    st.booleans(),
)
def test_every_offset_of_the_log_is_in_exactly_one_span(shape, first, start, length, whole):
    windows, place = [], first
    for size, _ in shape:
        windows.append(
            make_window({0: (place, place + size)}, previous=windows[-1] if windows else None)
        )
        place += size
    bounds = LogBounds(start, start + length)
    actions = [action for _, action in shape]
    found = spans(windows, actions, {0: bounds}, more=bool(windows))
    found = merged(found) if whole else found
    covered = [offset for s in found for offset in range(s.start, s.end)]
    assert covered == list(range(bounds.start, bounds.end))
    for offset in covered:
        span = span_at(found, 0, offset, bounds)
        assert isinstance(span, Span)
        within = [n for n, w in enumerate(windows) if w.ranges[0].start <= offset < w.ranges[0].end]
        if within:
            assert span.action is actions[within[0]]
