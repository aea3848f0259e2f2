"""One pass over the partitions of a fetch: what can be read now, before any of it is sent.

A pass changes no state that the client can see, so a waiting fetch can read any number of times;
:meth:`Reading.response` is called when the response is sent, and only it updates the session.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from penstock_broker.api.authorization import Operation, ResourceType, require
from penstock_broker.api.context import Exchange, Services
from penstock_broker.api.fetch_sessions import FetchSession, SessionPartition, TopicKey
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.files import ColdReadError
from penstock_broker.log.slice import EMPTY_SLICE, LogSlice
from penstock_broker.replication.partition import Partition
from penstock_broker.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

READ_COMMITTED = 1
ZSTD_SINCE = 10
STORAGE_ERROR_SINCE = 6
LEADER_SINCE = 16
IDS_SINCE = 13

_NOT_THERE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that are no reason to answer early: their clients would ask again at once."""

Wanted = tuple[TopicKey, str | None, FetchPartition]
"""Topic by name or id, its name if it is known, and what is wanted."""

_turn = itertools.count()


class Reading:
    """What a full fetch finds: ``found`` has every partition, in the order of the request."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        request: FetchRequest,
        wanted: Sequence[Wanted],
    ) -> None:
        self._begin(services, exchange, request)
        count = len(wanted)
        if count == 1:
            self.found.append((wanted[0], self._read(wanted[0])))
        else:
            start = next(_turn) % count if count else 0
            read = [(each, self._read(each)) for each in (*wanted[start:], *wanted[:start])]
            self.found += read[count - start :] + read[: count - start]
        self._nothing_else = self.unknown == count

    def _begin(self, services: Services, exchange: Exchange, request: FetchRequest) -> None:
        self.size = 0
        """Bytes of records."""
        self.unknown = 0
        """Partitions that are not there, for this client."""
        self.found: list[tuple[Wanted, PartitionData]] = []
        self.cold: list[ColdReadError] = []
        """What has to be brought into memory first: there is no answer yet."""
        self._services = services
        self._exchange = exchange
        self._version = exchange.api_version
        self._committed = request.isolation_level == READ_COMMITTED
        most = min(request.max_bytes, services.config.fetch_max_bytes, exchange.fetch_bytes_max)
        self._left = max(0, most)
        self._enough = min(request.min_bytes, self._left)
        self._urgent = False  # an error to be sent, or records that no longer fit
        self._nothing_else = False
        self._leaders: dict[int, NodeEndpoint] = {}
        self._read_from: list[tuple[Partition, int]] = []

    @property
    def is_enough(self) -> bool:
        """Whether this is worth an answer before the time is up."""
        return self._urgent or self.size >= self._enough or self._nothing_else

    @property
    def missing(self) -> int:
        """Bytes that would make it enough."""
        return self._enough - self.size

    def response(self, topics: Sequence[FetchTopic]) -> FetchResponse:
        """The answer, in the form of the request's ``topics``; it is sent."""
        self._count()
        position = 0
        responses = []
        for topic in topics:
            end = position + len(topic.partitions)
            responses.append(
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[data for _, data in self.found[position:end]],
                )
            )
            position = end
        return FetchResponse(responses=responses, node_endpoints=list(self._leaders.values()))

    def _count(self) -> None:
        for partition, size in self._read_from:
            counters = partition.counters
            counters.fetches += 1
            if size >= 0:
                counters.bytes_out += size
            else:
                counters.failed_fetches += 1

    def _read(self, each: Wanted) -> PartitionData:
        topic, name, wanted = each
        partition = None
        try:
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            require(self._services, self._exchange, Operation.READ, ResourceType.TOPIC, name)
            partition = self._services.replicas.partition(name, wanted.partition)
            if partition.topic_id != topic and self._version >= IDS_SINCE:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            return self._read_partition(partition, wanted)
        except KafkaError as error:
            return self._failed(partition, wanted.partition, error.code)
        except ColdReadError as cold:
            self.cold.append(cold)
            return PartitionData(
                partition_index=wanted.partition, high_watermark=-1, records=EMPTY_SLICE
            )

    def _read_partition(self, partition: Partition, wanted: FetchPartition) -> PartitionData:
        if wanted.current_leader_epoch != -1:
            partition.check_leader_epoch(wanted.current_leader_epoch)
        if self._version < ZSTD_SINCE and partition.log.config.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        offset, max_bytes = wanted.fetch_offset, wanted.partition_max_bytes
        left = self._left
        committed = self._committed
        high_watermark = partition.high_watermark
        stable_offset = partition.last_stable_offset
        end = stable_offset if committed else high_watermark
        size = 0
        if offset == end and partition.is_online:
            found = EMPTY_SLICE  # as nearly all are, where a client asks for many
        else:
            found = partition.fetch(
                offset,
                left if left < max_bytes else max_bytes,
                self.size == 0,
                committed=committed,
            )
            size = found.size
            if size:
                self.size += size
                self._left = left - size if left > size else 0
            elif offset < end:
                self._urgent = True
        self._read_from.append((partition, size))
        return PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=_aborted(partition, offset, found) if committed else None,
            records=found,
        )

    def _failed(self, partition: Partition | None, index: int, code: ErrorCode) -> PartitionData:
        if partition is not None:
            self._read_from.append((partition, -1))
        if code in _NOT_THERE:
            self.unknown += 1
        else:
            self._urgent = True
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._version < STORAGE_ERROR_SINCE:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data = PartitionData(
            partition_index=index, error_code=code, high_watermark=-1, records=EMPTY_SLICE
        )
        if (
            code is ErrorCode.FENCED_LEADER_EPOCH
            and self._version >= LEADER_SINCE
            and partition is not None
        ):
            data.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
            )
            host, port = self._services.address_of(self._exchange.session.listener_name)
            self._leaders[partition.leader_id] = NodeEndpoint(
                node_id=partition.leader_id, host=host, port=port
            )
        return data


def _aborted(partition: Partition, offset: int, found: LogSlice) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
        for entry in partition.aborted_transactions(offset, found)
    ]


class IncrementalReading(Reading):
    """What a fetch in a session finds: ``found`` has the partitions with something to say."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        request: FetchRequest,
        session: FetchSession,
    ) -> None:
        self._begin(services, exchange, request)
        self._session = session
        self._news: list[tuple[SessionPartition, PartitionData]] = []
        caught_up = []
        for key, member in session.pending.items():
            if self.size and not self._left:
                break
            wanted = member.wanted
            data = self._read((member.topic, member.name, wanted))
            has_news = (
                data.error_code != 0
                or len(data.records or b"") > 0
                or data.high_watermark != member.sent_high_watermark
                or data.log_start_offset != member.sent_log_start
            )
            if has_news:
                self._news.append((member, data))
            elif wanted.fetch_offset >= self._end(data):
                caught_up.append(key)
        if self.cold:
            return
        for key in caught_up:
            del session.pending[key]
        self._nothing_else = self.unknown == len(session.partitions)

    def _end(self, data: PartitionData) -> int:
        """Where what this fetch can see ends."""
        return data.last_stable_offset if self._committed else data.high_watermark

    def response(self, topics: Sequence[FetchTopic]) -> FetchResponse:
        """The answer; updates the session."""
        self._count()
        pending = self._session.pending
        by_topic: dict[TopicKey, FetchableTopicResponse] = {}
        for member, data in self._news:
            key = member.key
            member.sent_high_watermark = data.high_watermark  # -1 with an error: its end is news
            member.sent_log_start = data.log_start_offset
            if key in pending:
                if len(data.records or b"") > 0:
                    pending[key] = pending.pop(key)
                elif not data.error_code and member.wanted.fetch_offset >= self._end(data):
                    del pending[key]
            topic = by_topic.get(member.topic)
            if topic is None:
                topic = by_topic[member.topic] = _topic(member.topic)
            topic.partitions.append(data)
        return FetchResponse(
            session_id=self._session.id,
            responses=list(by_topic.values()),
            node_endpoints=list(self._leaders.values()),
        )


def _topic(key: TopicKey) -> FetchableTopicResponse:
    if isinstance(key, str):
        return FetchableTopicResponse(topic=key, partitions=[])
    return FetchableTopicResponse(topic_id=key, partitions=[])
