"""Evidence that comes after a window was decided opens it again, within its horizon."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock_client.audit import Claim, MonitoringEvent, TopicAccount
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.evidence import HORIZON_GRACES
from penstock_platform.reconciliation.late_evidence import SLACK, LateCursor
from penstock_platform.reconciliation.model.audit_events import PlacedEvent
from penstock_platform.reconciliation.model.books import Equation, WindowState
from penstock_platform.reconciliation.model.late_claims import concerned, news, read_until
from penstock_platform.testing.windows import make_window

SENSOR = "late_evidence_sensor"


def state(ready: Any, window: Any) -> WindowState:
    return ready.penstock.books.newest_book(window.ref, window.sequence).state


def judge(ready: Any, window: Any) -> None:
    Bookkeeper(ready.penstock).prove_produced(window, ready.plan.spec)


def test_a_late_claim_opens_a_decided_window_until_a_book_has_read_it(ready: Any) -> None:
    window = ready.landed(20)
    assert state(ready, window) is WindowState.BALANCED
    first = ready.tick(SENSOR)
    assert not first.run_requests, "what was read is no news"
    lost = OffsetRange(0, 5, 8)
    kept = [*range(5), *range(8, 20)]
    ready.penstock.lake.put("lake.bronze.shop_orders", window.window_id, {0: kept})
    ready.claim(lost)
    second = ready.tick(SENSOR, first.cursor)
    [request] = second.run_requests
    assert request.partition_key == window.window
    again = ready.tick(SENSOR, second.cursor)
    assert [r.run_key for r in again.run_requests] == [request.run_key], "until it is judged"
    judge(ready, window)
    book = ready.penstock.books.newest_book(window.ref, window.sequence)
    assert book.judged(Equation.PRODUCED_EQUALS_STORED).state is WindowState.MISSING
    assert not ready.tick(SENSOR, again.cursor).run_requests


def test_a_claim_between_one_grace_and_the_horizon_makes_an_unaudited_window_balanced(
    ready: Any,
) -> None:
    sent = ready.produce(20)
    ready.pass_time(60)
    ready.tick("window_sensor")
    window = ready.newest()
    ready.land(window)
    ready.pass_time(90)
    judge(ready, window)
    assert state(ready, window) is WindowState.UNAUDITED
    cursor = ready.tick(SENSOR).cursor
    ready.claim(sent)
    result = ready.tick(SENSOR, cursor)
    assert len(result.run_requests) == 1
    judge(ready, window)
    assert state(ready, window) is WindowState.BALANCED
    assert not ready.tick(SENSOR, result.cursor).run_requests


def test_after_the_horizon_nothing_is_opened(ready: Any) -> None:
    window = ready.landed(20)
    cursor = ready.tick(SENSOR).cursor
    ready.claim(OffsetRange(0, 5, 8))
    over = HORIZON_GRACES * ready.plan.spec.audit.grace + SLACK + timedelta(seconds=1)
    ready.pass_time(over.total_seconds())
    assert not ready.tick(SENSOR, cursor).run_requests
    assert window.sequence == 0


def test_a_claim_past_the_logs_end_opens_the_newest_window(ready: Any) -> None:
    window = ready.landed(20)
    cursor = ready.tick(SENSOR).cursor
    ready.claim(OffsetRange(0, 20, 25))
    [request] = ready.tick(SENSOR, cursor).run_requests
    assert request.partition_key == window.window
    judge(ready, window)
    assert state(ready, window) is WindowState.MISSING


def placed(offset: int, *claims: tuple[int, int, int], topic_id: str | None = None) -> PlacedEvent:
    account = TopicAccount("orders", tuple(Claim(*c, 0) for c in claims), topic_id=topic_id)
    event = MonitoringEvent("u", 1, 1, False, "c", "a", "h", 1, 0, 0, 1, (account,))
    return PlacedEvent(1, offset, event)


FIRST = make_window({0: (0, 10), 1: (0, 10)})
SECOND = make_window({0: (10, 20), 1: (10, 20)}, previous=FIRST)


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (placed(7, (0, 5, 6)), {0: {1: 8}}),
        (placed(7, (0, 9, 11)), {0: {1: 8}, 1: {1: 8}}),
        (placed(7, (0, 10, 11)), {1: {1: 8}}),
        (placed(7, (0, 20, 25)), {}),  # in no window yet
        (placed(7, (0, 28, 31)), {1: {1: 8}}),  # past the log's end
        (placed(7, (2, 0, 1)), {}),
        (placed(7, (0, 5, 6), topic_id=FIRST.topic_id), {0: {1: 8}}),
        (placed(7, (0, 5, 6), topic_id="another"), {}),
    ],
)
def test_which_windows_a_claim_concerns(
    event: PlacedEvent, found: dict[int, dict[int, int]]
) -> None:
    assert concerned([FIRST, SECOND], [event], {0: 30, 1: 20}) == found
    assert concerned([], [event], {0: 30}) == {}


def test_news_is_what_no_book_has_read() -> None:
    assert read_until("0:3-9, 12:0-40") == {0: 9, 12: 40}
    assert read_until("") == {}
    assert not news({0: 9}, "0:3-9")
    assert news({0: 10}, "0:3-9")
    assert news({1: 1}, "0:3-9")
    later = concerned([FIRST], [placed(7, (0, 1, 2)), placed(3, (0, 2, 3))], {0: 10})
    assert later == {0: {1: 8}}, "the last of them"


def test_the_cursor_is_read_back() -> None:
    cursor = LateCursor("id", {0: 5}, {"topic": {3: {1: 8}}})
    assert LateCursor.from_text(cursor.to_text()) == cursor
    assert LateCursor.from_text(None) == LateCursor()
