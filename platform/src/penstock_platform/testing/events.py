"""Monitoring events as a producer sends them, with what no test is about filled in."""

from __future__ import annotations

from penstock_client.audit import MonitoringEvent, TopicAccount


def make_event(
    incarnation: int,
    number: int,
    *accounts: TopicAccount,
    sent_at_ms: int,
    final: bool = False,
    uuid: str | None = None,
) -> MonitoringEvent:
    """Event ``number`` of a producer's ``incarnation``; its uuid is made of both by default."""
    return MonitoringEvent(
        uuid=uuid or f"{incarnation}-{number}",
        incarnation=incarnation,
        number=number,
        final=final,
        client_id="c",
        application="a",
        host="h",
        pid=1,
        started_at_ms=0,
        sent_at_ms=sent_at_ms,
        interval_ms=2000,
        topics=accounts,
    )
