"""Fetch sessions (KIP-227): what a consumer fetches is sent once, and answered by what changed.

A session remembers the partitions of a full fetch. An incremental fetch names those that are new
or whose offset moved, and its answer holds only partitions with records, an error, or another high
watermark or log start than the client was last sent.

A fetch looks only at partitions that may have new data (``pending``). A session watches
its partitions: an append, a start that moves or a log that fails makes one pending again, and one
that was read to its end, without news, is so no longer. So a thousand quiet partitions cost a fetch
nothing. Should anything else change, it is found by looking at all of them every
``SWEEP_SECONDS``. The order of ``pending`` is the order of reading: partitions that were given
records go to its end, so that a busy one does not starve the others.

Bounds: sessions by ``max.incremental.fetch.session.cache.slots``, as many partitions of one as a
full fetch may name, and ``PARTITIONS_MAX`` over all of them. A client without a session sends all
its partitions every time, which always works.
Eviction is Apache Kafka's: a new session replaces one that was silent for two minutes,
or of the smallest that is older than that and smaller than itself.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Protocol

from penstock_broker.api.bounds import FETCH_PARTITIONS_MAX
from penstock_broker.clock import Clock
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.keys import TopicPartition
from penstock_broker.metrics import Counter
from penstock_broker.wire.messages.fetch import FetchPartition

EVICTION_SECONDS: Final = 120.0
"""Kafka's ``MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS``."""
PARTITIONS_MAX: Final = 100_000
"""Partitions of all sessions together: some 700 bytes each."""
SWEEP_SECONDS: Final = 5.0
EPOCH_MAX: Final = 2**31 - 1

TopicKey = str | uuid.UUID
"""A topic by its name (to version 12) or by its id."""
Key = tuple[TopicKey, int]


class SessionPartition:
    """A partition of a session: what is wanted of it, and what its client was last sent."""

    __slots__ = ("index", "name", "sent_high_watermark", "sent_log_start", "topic", "wanted")

    def __init__(self, topic: TopicKey, name: str | None, wanted: FetchPartition) -> None:
        self.topic = topic
        self.index = wanted.partition
        self.name = name
        """The topic's name; None for an unknown id."""
        self.wanted = wanted
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    @property
    def key(self) -> Key:
        return self.topic, self.index


class Watchers(Protocol):
    """What is notified of appends; the purgatory."""

    def watch(self, key: Hashable, watcher: FetchSession) -> None:
        """Call ``watcher.advanced(key, bytes)`` from now on."""
        ...

    def unwatch(self, key: Hashable, watcher: FetchSession) -> None:
        """No longer."""
        ...

    def advance(self, key: Hashable, amount: int) -> None:
        """Pass it on to the fetch that waits for this session."""
        ...


class FetchSession:
    """The partitions of one consumer. Owned by the event loop."""

    def __init__(self, session_id: int, watchers: Watchers, uses_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        """The epoch that the next fetch must have."""
        self.uses_ids = uses_ids
        self.created = now
        self.used = now
        self.partitions: dict[Key, SessionPartition] = {}
        self.pending: dict[Key, SessionPartition] = {}
        self._by_name: dict[TopicPartition, SessionPartition] = {}
        self._watchers = watchers
        self._swept = now

    @property
    def waiting_key(self) -> Hashable:
        """The purgatory's key for a fetch that waits for any of the partitions."""
        return FetchSession, self.id

    def advanced(self, key: Hashable, amount: int) -> bool:
        """A partition has ``amount`` more bytes. A watcher is never done: False."""
        changed = self._by_name.get(key)  # type: ignore[call-overload]
        if changed is not None:
            self.pending.setdefault(changed.key, changed)
            self._watchers.advance((FetchSession, self.id), amount)
        return False

    def add(self, partition: SessionPartition) -> None:
        """Add a partition; it is pending."""
        key = partition.key
        self.partitions[key] = self.pending[key] = partition
        if partition.name is not None:
            name_key = (partition.name, partition.index)
            self._by_name[name_key] = partition
            self._watchers.watch(name_key, self)

    def discard(self, key: Key) -> bool:
        """Remove a partition; whether it was there."""
        partition = self.partitions.pop(key, None)
        if partition is None:
            return False
        self.pending.pop(key, None)
        if partition.name is not None:
            name_key = (partition.name, partition.index)
            # A topic made again has another id: its partition may be watched under this name.
            if self._by_name.get(name_key) is partition:
                del self._by_name[name_key]
                self._watchers.unwatch(name_key, self)
        return True

    def want(self, topic: TopicKey, wanted: FetchPartition) -> bool:
        """Fetch a known partition from another offset; False where it is not known."""
        key = (topic, wanted.partition)
        found = self.partitions.get(key)
        if found is None:
            return False
        found.wanted = wanted
        self.pending.setdefault(key, found)
        return True

    def sweep(self, now: float) -> None:
        """Have all partitions looked at, if that is a while ago."""
        if now - self._swept >= SWEEP_SECONDS:
            self._swept = now
            for key, partition in self.partitions.items():
                self.pending.setdefault(key, partition)

    def clear(self) -> None:
        """Watch nothing any more."""
        for key in list(self.partitions):
            self.discard(key)


class FetchSessions:
    """All sessions, at most ``slots``. Owned by the event loop."""

    def __init__(
        self,
        clock: Clock,
        watchers: Watchers,
        slots: int,
        evictions: Counter,
        *,
        random_below: Callable[[int], int] = random.randrange,
    ) -> None:
        self.slots = slots
        self.partition_count = 0
        """Partitions of all sessions."""
        self._clock = clock
        self._watchers = watchers
        self._evictions = evictions
        self._random_below = random_below
        self._by_use: dict[int, FetchSession] = {}  # the longest unused first

    def __len__(self) -> int:
        return len(self._by_use)

    def create(self, partitions: Iterable[SessionPartition], uses_ids: bool) -> FetchSession | None:
        """A new session; None where there is no space, which a client understands as none."""
        members = {partition.key: partition for partition in partitions}
        now = self._clock.monotonic()
        if self.partition_count + len(members) > PARTITIONS_MAX or self.slots <= 0:
            return None
        if len(self._by_use) >= self.slots and not self._evict(len(members), now):
            return None
        session = FetchSession(self._new_id(), self._watchers, uses_ids, now)
        for partition in members.values():
            session.add(partition)
        self.partition_count += len(members)
        self._by_use[session.id] = session
        return session

    def resume(self, session_id: int, epoch: int, uses_ids: bool) -> FetchSession:
        """The session of an incremental fetch, moved on to its next epoch.

        KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR (names and ids mixed).
        """
        session = self._by_use.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used = self._clock.monotonic()
        session.sweep(session.used)
        del self._by_use[session_id]
        self._by_use[session_id] = session
        return session

    def add(self, session: FetchSession, partition: SessionPartition) -> None:
        """Add a partition to a session.

        KafkaError: FETCH_SESSION_ID_NOT_FOUND where there is no space, which ends the session.
        """
        is_full = len(session.partitions) >= FETCH_PARTITIONS_MAX
        if is_full or self.partition_count >= PARTITIONS_MAX:
            self.remove(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.add(partition)
        self.partition_count += 1

    def discard(self, session: FetchSession, key: Key) -> None:
        """Remove a partition of a session, if it has it."""
        if session.discard(key):
            self.partition_count -= 1

    def remove(self, session_id: int) -> None:
        """End a session, if there is one."""
        session = self._by_use.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)
            session.clear()

    def _evict(self, size: int, now: float) -> bool:
        """Make space for a session of ``size`` partitions, if it is worth more than another."""
        stalest = next(iter(self._by_use.values()))
        if now - stalest.used > EVICTION_SECONDS:
            victim = stalest
        else:
            old = [s for s in self._by_use.values() if now - s.created > EVICTION_SECONDS]
            victim = min(old, key=lambda s: len(s.partitions), default=stalest)
            if not old or len(victim.partitions) >= size:
                return False
        self.remove(victim.id)
        self._evictions.inc()
        return True

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self._random_below(2**31 - 1)
            if session_id not in self._by_use:
                return session_id
