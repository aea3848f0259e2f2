"""A PENDING window is read again only when something came for it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_client.audit import Claim, FailedRecords, TopicAccount
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation import new_evidence
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.reconciliation.new_evidence import NewEvidence
from penstock_platform.testing.events import make_event
from penstock_platform.topics.model.declaration import AUDIT_TOPIC

OTHER = 99


@pytest.fixture
def pending(ready: Any) -> Any:
    """A landed window of 30 records, of which 20 are claimed; ``ready.window``."""
    ready.produce(30)
    ready.claim(OffsetRange(0, 0, 20))
    ready.pass_time(60)
    ready.tick("window_sensor")
    ready.window = ready.newest()
    ready.land(ready.window)
    assert newest_book(ready).state is WindowState.PENDING
    ready.pass_time(5)
    return ready


def newest_book(ready: Any) -> Any:
    return ready.penstock.books.newest_book(ready.window.ref, ready.window.sequence)


def came(ready: Any) -> bool:
    return NewEvidence(ready.penstock).came_for(ready.window, ready.plan.spec, newest_book(ready))


def publish(ready: Any, *claims: tuple[int, int], failed: Any = (), topic: str = "") -> None:
    account = TopicAccount(
        topic or ready.topic,
        claims=tuple(Claim(0, start, end, 0) for start, end in claims),
        sequences=claims,
        failed=failed,
        records=sum(end - start for start, end in claims),
    )
    event = make_event(OTHER, 1, account, sent_at_ms=1)
    ready.penstock.kafka.memory.append(AUDIT_TOPIC, 0, event.to_bytes())


def test_nothing_came(pending: Any) -> None:
    assert not came(pending)


def test_events_about_other_windows_and_topics_are_nothing_new(pending: Any) -> None:
    pending.produce(5)
    publish(pending, (30, 35))
    publish(pending, (20, 30), topic="another")
    assert not came(pending)


def test_a_claim_on_the_window_is(pending: Any) -> None:
    publish(pending, (29, 31))
    assert came(pending)


def test_records_that_were_given_up_are(pending: Any) -> None:
    publish(pending, failed=(FailedRecords(20, 22, "timed out"),))
    assert came(pending)


def test_what_cannot_be_read_may_be(pending: Any) -> None:
    pending.penstock.kafka.memory.append(AUDIT_TOPIC, 0, b"junk")
    assert came(pending)


def test_the_end_of_the_grace_is(pending: Any) -> None:
    pending.pass_time(60)
    assert came(pending)


def test_more_events_than_are_looked_at_are(pending: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_evidence, "EVENTS_MAX", 2)
    for _ in range(2):
        publish(pending, (40, 41), topic="another")
    assert not came(pending)
    publish(pending, (40, 41), topic="another")
    assert came(pending)


def test_events_are_read_once_for_all_windows_of_a_look(pending: Any) -> None:
    reads: list[int] = []
    memory = pending.penstock.kafka.memory
    read_range = memory.read_range

    def counting(topic: str, ranges: Any) -> Any:
        reads.append(sum(map(len, ranges)))
        return read_range(topic, ranges)

    memory.read_range = counting
    publish(pending, (40, 41), topic="another")
    new = NewEvidence(pending.penstock)
    for _ in range(3):
        assert not new.came_for(pending.window, pending.plan.spec, newest_book(pending))
    assert sum(reads) == 1


def test_the_sensor_requests_no_judgement_without_news(pending: Any) -> None:
    pending.pass_time(30)
    assert not pending.tick("evidence_sensor").run_requests
    publish(pending, (20, 30))
    (request,) = pending.tick("evidence_sensor").run_requests
    assert request.partition_key == pending.window.window
