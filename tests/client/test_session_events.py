"""When a session writes and waits for events, without a broker."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import pytest

from penstock_client import session as session_module
from penstock_client.audit import MonitoringEvent, TopicAccount
from penstock_client.journal import UNACKNOWLEDGED_MAX, Journal
from penstock_client.session import Publish, Session

IDENTITY = MonitoringEvent("", 7, 0, False, "c", "a", "h", 1, 0, 0, 1000)


class Audit:
    enable = True
    topic = "audit"
    application = "a"


class Handle:
    """librdkafka's producer: takes events, never answers."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.flushes = 0

    def produce(self, _topic: str, value: bytes, _key: bytes, on_delivery: Any) -> None:
        del on_delivery
        self.sent.append(value)

    def flush(self, _seconds: float) -> int:
        self.flushes += 1
        return 0

    def __len__(self) -> int:
        return 0


class Books:
    """A ledger with one record to report each time."""

    lanes: dict[str, object]
    in_flight = 0

    def __init__(self) -> None:
        self.lanes = {"t": object()}
        self.taken = 0

    def take(self, *, final: bool = False) -> list[TopicAccount]:
        del final
        self.taken += 1
        return [TopicAccount("t", sequences=((self.taken, self.taken + 1),), records=1)]


class Ids:
    def label(self, accounts: list[TopicAccount]) -> list[TopicAccount]:
        return accounts


def made() -> Any:
    numbers = iter(range(1000))
    session: Any = object.__new__(Session)
    session._audit = Audit()
    session.ledger = Books()
    session.topic_ids = Ids()
    session.journal = Journal(IDENTITY, lambda: f"u{next(numbers)}")
    session.handle = Handle()
    session._event_at = 0.0
    session._audit_down = False
    session._polling = []
    session._deferred = []
    session._orphan = False
    session._served = False
    return session


def test_a_full_journal_is_not_written_to_until_there_is_space() -> None:
    session = made()
    for _ in range(UNACKNOWLEDGED_MAX):
        session._publish(heartbeat=True)
    assert session.journal.full
    session._publish(heartbeat=True)
    assert session.journal.last_number == session.ledger.taken == UNACKNOWLEDGED_MAX
    session.journal.completed(1, acknowledged=True)
    session._publish(heartbeat=True)
    assert session.journal.last_number == UNACKNOWLEDGED_MAX + 1


def test_the_last_event_is_written_even_to_a_full_journal() -> None:
    session = made()
    for _ in range(UNACKNOWLEDGED_MAX):
        session._publish(heartbeat=True)
    session._publish(heartbeat=False, final=True)
    assert session.journal.closed
    assert MonitoringEvent.from_bytes(session.handle.sent[-1]).final


class Answered(SimpleQueue[Any]):
    """A reporter's inbox that answers each request at once."""

    def put(self, item: Any, *_: Any, **__: Any) -> None:
        assert isinstance(item, Publish)
        item.reply.put(True)


@pytest.mark.parametrize(("down", "flushes"), [(False, 2), (True, 1)])
def test_flush_waits_for_its_event_unless_the_audit_is_down(down: bool, flushes: int) -> None:
    session = made()
    session._inbox = Answered()
    session._audit_down = down
    session.flush(5)
    assert session.handle.flushes == flushes


def test_flush_notes_that_its_event_stayed_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "EVENT_WAIT_SECONDS", 0.0)
    session = made()
    session._inbox = Answered()
    monkeypatch.setattr(Handle, "__len__", lambda _self: 1)
    session.flush(0)
    assert session._audit_down
