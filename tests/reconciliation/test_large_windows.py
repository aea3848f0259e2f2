"""A window that is too large to be read: every equation is judged by what Spark sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from desk import Desk
from penstock_client.audit import AuditHeader, Claim, TopicAccount, record_digest
from penstock_platform.connections import Connections
from penstock_platform.lake import content
from penstock_platform.landing.attempt import land_window, parse_window
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation import books, evidence
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.reconciliation.model.books import Equation, WindowState
from penstock_platform.testing.events import make_event
from penstock_platform.topics.model.contract import load_contract
from penstock_platform.topics.model.declaration import AUDIT_TOPIC, TopicSpec, parse_topic

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]

PRODUCER = 4712
CONTRACT = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


@pytest.fixture(autouse=True)
def every_window_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "ROWS_HERE_MAX", 0)
    monkeypatch.setattr(books, "RECORDS_HERE_MAX", 0)
    monkeypatch.setattr(evidence, "RECORDS_READ_MAX", 0)


def value(number: int) -> bytes:
    """Every tenth breaks the contract."""
    return b"{}" if number % 10 == 0 else b'{"n": %d}' % number


def send(topic: Any, numbers: range) -> None:
    topic.send(
        (0, b"k", value(n), [("penstock.audit", AuditHeader(PRODUCER, n, 1, "test").encode())])
        for n in numbers
    )


def claimed(topic: str, number: int, *claims: tuple[int, int]) -> bytes:
    """The event that claims these offsets, whose sequences are the same numbers."""
    account = TopicAccount(
        topic,
        claims=tuple(
            Claim(0, s, e, sum(record_digest(n, b"k", value(n)) for n in range(s, e)) % 2**64)
            for s, e in claims
        ),
        sequences=claims,
        records=sum(e - s for s, e in claims),
    )
    return make_event(PRODUCER, number, account, sent_at_ms=1).to_bytes()


def test_it_is_balanced_and_what_is_missing_or_doubled_is_named(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    topic = desk("large")
    name = topic.topic
    spec: TopicSpec = parse_topic({"metadata": {"name": name}, "land": {"window": "minutely"}})
    audit = Desk(penstock, AUDIT_TOPIC, 1)
    keeper = Bookkeeper(penstock)

    send(topic, range(300))
    first = topic.freeze()
    audit.send_values([claimed(name, 1, (0, 120), (120, 300))])
    land_window(penstock, first)
    parse_window(penstock, first, load_contract(CONTRACT, "large.schema.json"))
    assert keeper.judge_landed(first, spec).result.balanced
    contracted = parse_topic(
        {
            "metadata": {"name": name},
            "land": {"window": "minutely"},
            "schema": {"file": "large.schema.json"},
        }
    )
    parsed = keeper.judge_parsed(first, contracted).result
    assert (parsed.balanced, parsed.detail) == (True, {"parsed": 270, "quarantined": 30})
    keeper.prove_landed(first, spec)
    produced = keeper.prove_produced(first, spec).result(Equation.PRODUCED_EQUALS_STORED)
    assert produced is not None
    assert (produced.state, produced.expected) == (WindowState.BALANCED, 300)

    send(topic, range(300, 400))
    send(topic, range(350, 352))
    second = topic.freeze()
    audit.send_values([claimed(name, 2, (300, 400), (402, 410))])
    land_window(penstock, second)
    keeper.prove_landed(second, spec)
    produced = keeper.prove_produced(second, spec).result(Equation.PRODUCED_EQUALS_STORED)
    assert produced is not None
    assert {(f.kind, f.ranges) for f in produced.findings} == {
        ("duplicate", (OffsetRange(0, 400, 402),)),
        ("beyond_log_end", (OffsetRange(0, 402, 410),)),
    }
