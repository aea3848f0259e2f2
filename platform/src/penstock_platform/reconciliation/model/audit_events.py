"""Monitoring events in the audit topic: read, or refused with reason and source.

Any client may write to a topic. A record that is no event, or that claims more than its producer
and the log can have done, is malformed: it is counted and named, and none of its claims is used.

The codec checks the limits of the format (length of a claim, claims against sequences). This
module checks those that need the log's history:

* the partition of a claim exists in the topic;
* its end is at most ``APPENDS_PER_SECOND_MAX`` offsets a second above the known high watermark (at
  the freeze, or when the event was read), counted from the freeze to the event's own time and
  ``HISTORY_SLACK_SECONDS`` more. A log's lost tail is within that; offset 10^12 of a log with
  40,000 records is not.

A malformed event **matters** to a window where its producer takes part in that window: has records
stored there, or claims there in other events. It may then have held claims on them. From a source
that has nothing in the window it is only visible, on the audit topic and in the book: otherwise
one stray record would hold up every topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock_client.audit import (
    NUMBER_MAX,
    AuditFormatError,
    Claim,
    MonitoringEvent,
)
from penstock_platform.clock import from_iso
from penstock_platform.windows.model.window import Window

# No partition of any log takes more; the fastest measured take a tenth of it.
APPENDS_PER_SECOND_MAX = 5_000_000
HISTORY_SLACK_SECONDS = 60
_TEXT_MAX = 80
_REASON_MAX = 300
_BYTES_SEARCHED = 65_536
_FIELD = {
    name: re.compile(rb'"%s"\s*:\s*"((?:[^"\\]|\\.){0,400})"' % name.encode())
    for name in ("incarnation", "application", "host")
}


@dataclass(frozen=True, slots=True)
class MalformedEvent:
    """A record of the audit topic that is no event: where it is, why, and the producer that its
    header names, as far as that can be read. ``incarnation`` is None where it cannot."""

    partition: int
    offset: int
    reason: str
    incarnation: int | None = None
    application: str = ""
    host: str = ""

    @property
    def source(self) -> str:
        """Whose it says to be, in words."""
        if self.incarnation is None and not self.application and not self.host:
            return "an unknown source"
        return source_text(self.incarnation, self.application, self.host)


@dataclass(frozen=True, slots=True)
class PlacedEvent:
    """An event and its place in the audit topic."""

    partition: int
    offset: int
    event: MonitoringEvent


def source_text(incarnation: int | None, application: str, host: str) -> str:
    """A producer in words; what it says of itself is cut, and control characters are replaced."""
    name, place = _shown(application) or "no application", _shown(host) or "no host"
    return f"{name} on {place}, incarnation {incarnation if incarnation is not None else 'unknown'}"


def parse_event(partition: int, offset: int, value: bytes | None) -> PlacedEvent | MalformedEvent:
    """One record of the audit topic."""
    try:
        return PlacedEvent(partition, offset, MonitoringEvent.from_bytes(value or b""))
    except AuditFormatError as error:
        reason = str(error) if value else "a record without a value"
        return _malformed(partition, offset, reason, value or b"")


def about(placed: PlacedEvent, topic: str, topic_id: str, nameless_from_ms: int = 0) -> PlacedEvent:
    """The event with nothing but what it says of one incarnation of one topic.

    An account without a topic id counts where the event was sent at or after ``nameless_from_ms``.
    """
    event = placed.event
    nameless = event.sent_at_ms >= nameless_from_ms
    accounts = tuple(
        account
        for account in event.topics
        if account.topic == topic
        and (nameless if account.topic_id is None else account.topic_id == topic_id)
    )
    if len(accounts) == len(event.topics):
        return placed
    return PlacedEvent(placed.partition, placed.offset, replace(event, topics=accounts))


def incredible(
    placed: PlacedEvent, window: Window, log_ends: Mapping[int, int] | None
) -> MalformedEvent | None:
    """The event as malformed where it claims what the topic's log cannot have held.

    ``log_ends``: high watermarks of the topic read after the event was; None or empty: unknown.
    """
    event = placed.event
    if not log_ends:
        return None
    for account in event.topics:
        if account.topic != window.topic or account.topic_id not in {None, window.topic_id}:
            continue
        for claim in account.claims:
            if reason := _beyond_history(claim, event.sent_at_ms, window, log_ends):
                return MalformedEvent(
                    placed.partition,
                    placed.offset,
                    f"monitoring event: {reason}"[:_REASON_MAX],
                    event.incarnation,
                    event.application,
                    event.host,
                )
    return None


def matter(
    malformed: Iterable[MalformedEvent], incarnations: Iterable[int]
) -> tuple[MalformedEvent, ...]:
    """Those of producers that take part in a window; each record of the topic once."""
    taking_part = set(incarnations)
    return tuple(dict.fromkeys(m for m in malformed if m.incarnation in taking_part))


def _beyond_history(
    claim: Claim, sent_at_ms: int, window: Window, log_ends: Mapping[int, int]
) -> str:
    if claim.partition not in log_ends:
        return (
            f"it claims offsets {claim.start}-{claim.end - 1} of partition {claim.partition}, "
            f"which {window.topic} does not have"
        )
    frozen = next((p for p in window.partitions if p.p == claim.partition), None)
    seen = max(log_ends[claim.partition], frozen.high_watermark if frozen is not None else 0)
    frozen_at = from_iso(window.frozen_at).timestamp()
    seconds = HISTORY_SLACK_SECONDS + max(0, round(sent_at_ms / 1000 - frozen_at))
    if claim.end <= seen + seconds * APPENDS_PER_SECOND_MAX:
        return ""
    return (
        f"it claims offsets {claim.start}-{claim.end - 1} of {window.topic} partition "
        f"{claim.partition}, whose log has reached offset {seen}"
    )


def _malformed(partition: int, offset: int, reason: str, value: bytes) -> MalformedEvent:
    found = {name: _field(value, name) for name in _FIELD}
    number = found["incarnation"]
    digits = number.isascii() and number.isdigit() and len(number) <= len(str(NUMBER_MAX))
    return MalformedEvent(
        partition,
        offset,
        reason[:_REASON_MAX],
        int(number) if digits else None,
        found["application"],
        found["host"],
    )


def _field(value: bytes, name: str) -> str:
    found = _FIELD[name].search(value, 0, _BYTES_SEARCHED)
    return _shown(found.group(1).decode(errors="replace")) if found else ""


def _shown(text: str) -> str:
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return clean if len(clean) <= _TEXT_MAX else f"{clean[: _TEXT_MAX - 1]}…"
