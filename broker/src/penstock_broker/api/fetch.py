"""Fetch (1), versions 4-17: read record batches as they are in the log.

Behaviour:
* A long poll: answered when min_bytes can be read over all partitions, when a partition has an
  error that the client can act upon, or when max_wait_ms is over. Waiting costs nothing; an append
  wakes it. A topic that is not there is no reason to answer early, unless nothing else is asked.
* Records are descriptions of file ranges until the kernel sends them. The batch that holds the
  offset asked for is sent whole, however large, if it is the first of the answer (KIP-74).
* Bounded by max_bytes, by each partition's own bound, and by the broker's ``fetch.max.bytes``.
  The partition that is read first rotates, so that a busy one does not starve the others.
* Consumers see offsets below the high watermark; with read_committed, below the last stable
  offset, with the aborted transactions among what they get. An offset at the log's end is empty;
  beyond it, or before its start, out of range.
* Sessions (KIP-227) are kept, at most ``max.incremental.fetch.session.cache.slots``; a client that
  gets none (session 0) sends full requests. A fetch in a session looks only at partitions that
  changed since the last one.

Version notes:
* v4-v5: an offline log is NOT_LEADER_OR_FOLLOWER, as KAFKA_STORAGE_ERROR is not known yet.
* v5: log start offset. v7: sessions. v9: the client's leader epoch is checked (KIP-320).
* v4-v9: topics with ``compression.type=zstd`` are UNSUPPORTED_COMPRESSION_TYPE (KIP-110).
* v11: rack (ignored). v12: flexible; diverging epochs are a follower's matter.
* v13: topics by id, UNKNOWN_TOPIC_ID where there is none (KIP-516). v15: the replica id is a tag.
* v16: the current leader and its address, beside FENCED_LEADER_EPOCH (KIP-951).
* v17: a follower's directory id (ignored).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from penstock_broker.api.bounds import FETCH_PARTITIONS_MAX, require_at_most
from penstock_broker.api.context import DEFERRED, Exchange, Reply, Services, Steps
from penstock_broker.api.fetch_reading import IDS_SINCE, IncrementalReading, Reading, Wanted
from penstock_broker.api.fetch_sessions import FetchSession, SessionPartition, TopicKey
from penstock_broker.api.registry import api
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.files import ColdReadError, not_waiting
from penstock_broker.log.slice import EMPTY_SLICE
from penstock_broker.wire.messages.fetch import (
    API_KEY,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

SESSIONS_SINCE = 7
INITIAL_EPOCH = 0
FINAL_EPOCH = -1  # "no session", or the end of one
WAIT_MS_MAX = 24 * 3_600_000
COLD_LOOKS_MAX = 8
"""Looks at partitions that are not in memory; then the disk is waited for."""


def refuse(request: FetchRequest, error: KafkaError, version: int) -> FetchResponse:
    if version >= SESSIONS_SINCE:
        return FetchResponse(error_code=error.code, responses=[])
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=p.partition,
                        error_code=error.code,
                        high_watermark=-1,
                        records=EMPTY_SLICE,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@api(API_KEY, FetchRequest, refuse=refuse)
def fetch(services: Services, exchange: Exchange, request: FetchRequest) -> Reply | Steps:
    count = sum(len(topic.partitions) for topic in request.topics)
    require_at_most(count, FETCH_PARTITIONS_MAX, "partitions")
    work: FullFetch | IncrementalFetch
    epoch = request.session_epoch
    if epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
        if request.session_id:
            services.fetch_sessions.remove(request.session_id)
        work = FullFetch(services, exchange, request)
    else:
        session = _resume(services, exchange, request)
        if session.partitions:
            work = IncrementalFetch(services, exchange, request, session)
        else:
            services.fetch_sessions.remove(session.id)
            work = FullFetch(services, exchange, request)
    with not_waiting():
        reading = work.read()
    if reading.cold:
        return _fetch_cold(services, exchange, work, reading)
    return _answer_or_park(services, exchange, work, reading)


def _fetch_cold(
    services: Services, exchange: Exchange, work: FullFetch | IncrementalFetch, reading: Reading
) -> Steps:
    """Look again when what was not in memory has been read by a thread: an index, its block, the
    batches that it names, so a few times."""
    for _ in range(COLD_LOOKS_MAX):
        yield partial(_prefetch, reading.cold)
        with not_waiting():
            reading = work.read()
        if not reading.cold:
            break
        yield
    else:
        reading = work.read()  # memory is so short that what is read is evicted at once
    return _answer_or_park(services, exchange, work, reading)


def _prefetch(cold: Sequence[ColdReadError]) -> None:
    for each in cold:
        with suppress(OSError):  # the read in the event loop reports what is wrong
            each.prefetch()


def _answer_or_park(
    services: Services, exchange: Exchange, work: FullFetch | IncrementalFetch, reading: Reading
) -> Reply:
    request = work.request
    if reading.is_enough or request.max_wait_ms <= 0:
        return work.answer(reading)
    delayed = DelayedFetch(services, exchange, work, reading)
    wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
    deadline = services.clock.monotonic() + wait_ms / 1000.0
    services.purgatory.park(delayed, work.waiting_keys(), deadline)
    exchange.on_closed(lambda: services.purgatory.cancel(delayed))
    return DEFERRED


def _resume(services: Services, exchange: Exchange, request: FetchRequest) -> FetchSession:
    """The session of an incremental fetch, with the changes that the request names."""
    sessions = services.fetch_sessions
    by_id = exchange.api_version >= IDS_SINCE
    session = sessions.resume(request.session_id, request.session_epoch, by_id)
    for topic in request.topics:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for wanted in topic.partitions:
            if not session.want(key, wanted):
                name = _name(services, topic, by_id)
                sessions.add(session, SessionPartition(key, name, wanted))
    for gone in request.forgotten_topics_data:
        for index in gone.partitions:
            sessions.discard(session, (gone.topic_id if by_id else gone.topic, index))
    return session


def _name(services: Services, topic: FetchTopic | ForgottenTopic, by_id: bool) -> str | None:
    """The name of a topic in a request; None for an id that there is not."""
    if not by_id:
        return topic.topic
    known = services.metadata.topic_by_id(topic.topic_id)
    return None if known is None else known.name


class FullFetch:
    """A fetch that names all its partitions, and may open a session with them."""

    def __init__(self, services: Services, exchange: Exchange, request: FetchRequest) -> None:
        self._services = services
        self.request = request
        self._exchange = exchange
        self._by_id = exchange.api_version >= IDS_SINCE
        self._wants: list[Wanted] = []
        self._wants_at = -1

    def _wanted(self) -> list[Wanted]:
        """Made again only when topics have changed: it is asked for at every wake."""
        version = self._services.metadata.version
        if version != self._wants_at:
            self._wants, self._wants_at = list(self._find_wanted()), version
        return self._wants

    def _find_wanted(self) -> Iterator[Wanted]:
        for topic in self.request.topics:
            name = _name(self._services, topic, self._by_id)
            key: TopicKey = topic.topic_id if self._by_id else topic.topic
            for wanted in topic.partitions:
                yield key, name, wanted

    def waiting_keys(self) -> Iterable[Hashable]:
        return [(name, wanted.partition) for _, name, wanted in self._wanted() if name is not None]

    def read(self) -> Reading:
        return Reading(self._services, self._exchange, self.request, self._wanted())

    def answer(self, reading: Reading) -> FetchResponse:
        response = reading.response(self.request.topics)
        if self._exchange.api_version >= SESSIONS_SINCE and (
            self.request.session_epoch == INITIAL_EPOCH
        ):
            self._open_session(reading, response)
        return response

    def _open_session(self, reading: Reading, response: FetchResponse) -> None:
        members = []
        for (topic, name, wanted), data in reading.found:
            member = SessionPartition(topic, name, wanted)
            if data.error_code == 0:
                member.sent_high_watermark = data.high_watermark
                member.sent_log_start = data.log_start_offset
            members.append(member)
        session = self._services.fetch_sessions.create(members, self._by_id)
        if session is not None:
            response.session_id = session.id


class IncrementalFetch:
    """A fetch in a session."""

    def __init__(
        self, services: Services, exchange: Exchange, request: FetchRequest, session: FetchSession
    ) -> None:
        self._services = services
        self._exchange = exchange
        self.request = request
        self._session = session
        self._epoch = session.epoch

    def waiting_keys(self) -> Iterable[Hashable]:
        return (self._session.waiting_key,)

    def read(self) -> IncrementalReading:
        return IncrementalReading(self._services, self._exchange, self.request, self._session)

    def answer(self, reading: Reading) -> FetchResponse:
        if self._session.epoch != self._epoch:
            # Another fetch of this session came while this one waited.
            return FetchResponse(
                error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                session_id=self._session.id,
                responses=[],
            )
        return reading.response(())


class DelayedFetch:
    """A fetch that found less than it wants."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        work: FullFetch | IncrementalFetch,
        reading: Reading,
    ) -> None:
        self._services = services
        self._exchange = exchange
        self._work = work
        self._missing = reading.missing
        self._unknown = reading.unknown
        self._reading: Reading | None = None

    def advanced(self, key: Hashable, amount: int) -> bool:
        self._missing -= amount
        return self._missing <= 0

    def still_waits(self) -> bool:
        """Whether what was appended cannot be read yet: of an open transaction, or replicated."""
        reading = self._work.read()
        if reading.is_enough or reading.unknown > self._unknown:
            self._reading = reading
            return False
        self._missing = reading.missing
        return True

    def complete(self) -> None:
        self._exchange.respond(self._work.answer(self._reading or self._work.read()))
