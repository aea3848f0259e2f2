"""The cache of fetch sessions on its own: bounds, eviction, and which partitions are looked at."""

from __future__ import annotations

import uuid
from collections.abc import Hashable

import pytest

from penstock_broker.api import fetch_sessions
from penstock_broker.api.fetch_sessions import FetchSession, FetchSessions, SessionPartition
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.metrics import Counter
from penstock_broker.testing import SimClock
from penstock_broker.wire.messages.fetch import FetchPartition


class Watching:
    """The purgatory's part."""

    def __init__(self) -> None:
        self.watched: set[tuple[Hashable, int]] = set()
        self.advances: list[tuple[Hashable, int]] = []

    def watch(self, key: Hashable, watcher: FetchSession) -> None:
        self.watched.add((key, watcher.id))

    def unwatch(self, key: Hashable, watcher: FetchSession) -> None:
        self.watched.discard((key, watcher.id))

    def advance(self, key: Hashable, amount: int) -> None:
        self.advances.append((key, amount))


def members(count: int, topic: str = "t") -> list[SessionPartition]:
    return [
        SessionPartition(
            topic, topic, FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=100)
        )
        for n in range(count)
    ]


class Cache:
    def __init__(self, slots: int) -> None:
        self.clock = SimClock()
        self.watching = Watching()
        self.evictions = Counter()
        self.sessions = FetchSessions(self.clock, self.watching, slots, self.evictions)

    def create(self, count: int) -> FetchSession | None:
        return self.sessions.create(members(count), uses_ids=False)

    def made(self, count: int) -> FetchSession:
        session = self.create(count)
        assert session is not None
        return session

    def code(self, session_id: int, epoch: int, *, uses_ids: bool = False) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.sessions.resume(session_id, epoch, uses_ids)
        return caught.value.code


def test_epochs_grow_and_begin_again_at_1() -> None:
    """Pitfall 41: unknown id, wrong epoch, and names mixed with ids, each by its own code."""
    cache = Cache(10)
    session = cache.made(1)
    assert cache.code(session.id + 1, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.code(session.id, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.code(session.id, 1, uses_ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert cache.sessions.resume(session.id, 1, uses_ids=False) is session
    assert cache.code(session.id, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = 2**31 - 1
    cache.sessions.resume(session.id, 2**31 - 1, uses_ids=False)
    assert session.epoch == 1
    cache.sessions.remove(session.id)
    assert cache.code(session.id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_ids_are_never_0_and_never_twice() -> None:
    clock, watching = SimClock(), Watching()
    numbers = iter([0, 0, 0, 7])
    sessions = FetchSessions(clock, watching, 5, Counter(), random_below=lambda _: next(numbers))
    first = sessions.create(members(1), uses_ids=False)
    second = sessions.create(members(1), uses_ids=False)
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (1, 8)


def test_slots_are_a_bound() -> None:
    cache = Cache(2)
    assert cache.create(1) is not None
    assert cache.create(1) is not None
    assert cache.create(50) is None, "nothing is old enough to be evicted"
    assert len(cache.sessions) == 2
    assert Cache(0).create(1) is None


def test_a_silent_session_is_evicted_by_any_other() -> None:
    cache = Cache(2)
    silent, busy = cache.made(50), cache.made(50)
    cache.clock.advance(100_000)
    cache.sessions.resume(busy.id, 1, uses_ids=False)
    cache.clock.advance(20_001)
    new = cache.create(1)
    assert new is not None
    assert cache.code(silent.id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.sessions.resume(busy.id, 2, uses_ids=False) is busy
    assert cache.evictions.value == 1


def test_a_larger_session_evicts_the_smallest_old_one_only() -> None:
    cache = Cache(3)
    small, large = cache.made(2), cache.made(9)
    cache.clock.advance(120_001)
    young = cache.made(1)
    for session in (small, large):
        cache.sessions.resume(session.id, 1, uses_ids=False)
    assert cache.create(2) is None, "as large as the smallest old one"
    assert cache.create(3) is not None
    assert cache.code(small.id, 2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.sessions.resume(young.id, 1, uses_ids=False) is young
    assert cache.create(9) is None
    assert {key[1] for key, owner in cache.watching.watched if owner == large.id} == set(range(9))


def test_partitions_are_bounded_over_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 10)
    cache = Cache(5)
    session = cache.made(6)
    assert cache.create(5) is None
    assert cache.create(4) is not None
    (one,) = members(1, "other")
    with pytest.raises(KafkaError) as caught:
        cache.sessions.add(session, one)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.sessions.partition_count == 4, "the session that grew is gone"
    assert {owner for _, owner in cache.watching.watched} != {session.id}


def test_a_session_does_not_grow_beyond_a_full_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "FETCH_PARTITIONS_MAX", 3)
    cache = Cache(5)
    session = cache.made(2)
    third, fourth = members(2, "other")
    cache.sessions.add(session, third)
    with pytest.raises(KafkaError) as caught:
        cache.sessions.add(session, fourth)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache.sessions), cache.sessions.partition_count) == (0, 0)


def test_nothing_is_left_of_a_session_that_ended() -> None:
    cache = Cache(5)
    session = cache.made(3)
    cache.sessions.discard(session, ("t", 1))
    cache.sessions.discard(session, ("t", 1))
    assert cache.sessions.partition_count == 2
    cache.sessions.remove(session.id)
    cache.sessions.remove(session.id)
    assert (cache.sessions.partition_count, cache.watching.watched) == (0, set())


def test_an_append_makes_a_partition_pending_and_reaches_the_fetch_that_waits() -> None:
    cache = Cache(5)
    session = cache.made(3)
    session.pending.clear()
    assert session.advanced(("t", 2), 77) is False
    assert session.advanced(("gone", 2), 77) is False
    assert list(session.pending) == [("t", 2)]
    assert cache.watching.advances == [(session.waiting_key, 77)]


def test_a_topic_made_again_is_watched_under_its_name() -> None:
    """Pitfall 41: the old id leaves the session in the request that brings the new one."""
    cache = Cache(5)
    old, new = uuid.uuid4(), uuid.uuid4()
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    session = cache.sessions.create([SessionPartition(old, "t", wanted)], uses_ids=True)
    assert session is not None
    cache.sessions.add(session, SessionPartition(new, "t", wanted))
    cache.sessions.discard(session, (old, 0))
    session.pending.clear()
    session.advanced(("t", 0), 1)
    assert list(session.pending) == [(new, 0)]


def test_everything_is_looked_at_now_and_then() -> None:
    cache = Cache(5)
    session = cache.made(3)
    session.pending.clear()
    cache.sessions.resume(session.id, 1, uses_ids=False)
    assert not session.pending
    cache.clock.advance(5_001)
    cache.sessions.resume(session.id, 2, uses_ids=False)
    assert len(session.pending) == 3
