"""The events of one incarnation: numbered when written, kept until the broker has them.

An event keeps its number, its uuid and its bytes through every retry; so a reader drops a copy by
its uuid, and a number that never appears is a lost event. While ``UNACKNOWLEDGED_MAX`` events wait
for an acknowledgement no further one is written: the ledger continues adding up, so an audit topic
that is away costs memory for what happened, not for how often it was said.

Pure: bytes and decisions; the session does the sending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from penstock_client.audit import MonitoringEvent, TopicAccount
from penstock_client.ranges import total

UNACKNOWLEDGED_MAX = 32
EVENT_ITEMS_MAX = 4000
ITEM_BYTES = 80  # upper estimate of a claim, range or failure as JSON
ACCOUNT_ITEMS = 10  # an account's own keys, with the longest topic name, in items
EVENT_BYTES = 2000  # the event's own keys


def items_max(message_max_bytes: int) -> int:
    """How many items an event may have so that it stays well within ``message.max.bytes``."""
    return max(ACCOUNT_ITEMS + 1, min(EVENT_ITEMS_MAX, (message_max_bytes - EVENT_BYTES) // 160))


@dataclass(slots=True)
class Entry:
    """A written event: its number, its Kafka key and value, and whether it is on its way."""

    number: int
    key: bytes
    value: bytes
    in_flight: bool = False


class Journal:
    """Writes events and remembers those that the broker has not acknowledged."""

    def __init__(
        self, identity: MonitoringEvent, new_uuid: Callable[[], str], limit: int = EVENT_ITEMS_MAX
    ) -> None:
        """``identity``: the event whose host, pid and so on every written event carries."""
        self._identity = identity
        self._new_uuid = new_uuid
        self._limit = limit
        self._entries: dict[int, Entry] = {}
        self.last_number = 0
        self.closed = False

    @property
    def full(self) -> bool:
        return len(self._entries) >= UNACKNOWLEDGED_MAX

    @property
    def unacknowledged(self) -> int:
        return len(self._entries)

    def write(self, accounts: Iterable[TopicAccount], sent_at_ms: int, *, final: bool) -> None:
        """Write what happened as one event, or as several where it is too much for one."""
        pieces = list(split(accounts, self._limit))
        for position, topics in enumerate(pieces):
            self.last_number += 1
            event = replace(
                self._identity,
                uuid=self._new_uuid(),
                number=self.last_number,
                final=final and position == len(pieces) - 1,
                sent_at_ms=sent_at_ms,
                topics=topics,
            )
            self._entries[event.number] = Entry(event.number, event.key, event.to_bytes())
        self.closed = self.closed or final

    def due(self) -> list[Entry]:
        """Events to send now, the oldest first: new ones, and those whose sending failed."""
        return [entry for entry in self._entries.values() if not entry.in_flight]

    def completed(self, number: int, *, acknowledged: bool) -> None:
        """The outcome of sending: drop the event, or make it due again."""
        if acknowledged:
            self._entries.pop(number, None)
        elif number in self._entries:
            self._entries[number].in_flight = False


def split(accounts: Iterable[TopicAccount], limit: int) -> Iterator[tuple[TopicAccount, ...]]:
    """Group accounts into events of at most ``limit`` items; always at least one event.

    A single account that is too long is cut: the first piece carries its counts, timestamps and
    latency, the others only claims, ranges and failures (and ``in_flight``, which is a state).
    """
    group: list[TopicAccount] = []
    weight = 0
    for account in accounts:
        for piece in _cut(account, limit - ACCOUNT_ITEMS):
            items = _weight(piece)
            if group and weight + items > limit:
                yield tuple(group)
                group, weight = [], 0
            group.append(piece)
            weight += items
    yield tuple(group)


def _weight(account: TopicAccount) -> int:
    return ACCOUNT_ITEMS + len(account.claims) + len(account.sequences) + len(account.failed)


def _cut(account: TopicAccount, items: int) -> Iterator[TopicAccount]:
    if _weight(account) - ACCOUNT_ITEMS <= items:
        yield account
        return
    claims, sequences, failed = account.claims, account.sequences, account.failed
    first = True
    while claims or sequences or failed:
        space = items
        head, claims = claims[:space], claims[space:]
        space -= len(head)
        acknowledged, sequences = sequences[:space], sequences[space:]
        space -= len(acknowledged)
        lost, failed = failed[:space], failed[space:]
        piece = account if first else TopicAccount(account.topic, in_flight=account.in_flight)
        yield replace(
            piece,
            claims=head,
            sequences=acknowledged,
            failed=lost,
            topic_id=account.topic_id,
            cut_of=total(account.sequences) if account.cut_of is None else account.cut_of,
        )
        first = False
